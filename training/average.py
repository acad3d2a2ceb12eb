"""Averages the weights of two models, of which one was trained on from the other.

    python -m training.average training/runs/next/export training/runs/last/export --out training/runs/mean

A short run over other texts gains on these and forgets a little of the rest; the mean of the weights before
and after it answered more of the 60 questions to eight documents than either (after Wortsman et al., "Model
soups", 2022).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from training.train import export


def averaged(folders: list[Path]) -> LlamaForCausalLM:
    """The mean of the weights of models of one shape, in fp32.

    Raises:
        ValueError: the models have not the same parameters.
    """
    models = [LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in folders]
    states = [model.state_dict() for model in models]
    shapes = [{name: weight.shape for name, weight in state.items()} for state in states]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "the models have parameters of different names or shapes; only one shape can be averaged"
        )
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    models[0].load_state_dict(mean)
    return models[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", help="folders as `training.train` exports them")
    parser.add_argument("--out", type=Path, required=True, help="folder for the mean")
    given = parser.parse_args()
    export(averaged(given.models), given.models[0], given.out)
