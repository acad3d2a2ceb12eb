"""The table of families: `python -m tests.engine.families` prints it as Markdown.

Tiny models with random weights of every family, in fp32: which path the probe took, whether segments may
move, and the greatest differences of logits. `reference` is the distance to the dense reference over 12 drawn
prompts under every scope, `scaffold` that of a scaffold over all modules to one plain pass, `bf16` what
rounding costs the cached side, by the spread of the logits.

Then by distance: the greatest difference to one plain pass over a prompt of 100 and of 1,000 tokens; of 64
tokens whose last stands at 4,096 and at 32,768, in models that declare so long a context; and what the own
pass of the model changes by there when all positions change by one.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import torch
from transformers.utils import logging

from engine.base.choices import SCOPES
from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.model.model import Model
from engine.store import Store
from tests.engine.cases import Case, apart, model_of, prompt_of, schema_of
from tests.engine.model.test_distance import FEW, plain, read
from tests.engine.reference import Reference
from tests.engine.test_exactness import FULL, SCHEMA, random_prompt
from tests.engine.tiny import FAMILIES, FIXED, tiny_network

DASH = "–"
BOTH = '<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>'


def row(family: str, folder: Path) -> list[str]:
    """One family's figures."""
    model = model_of(family)
    reference = Reference(tiny_network(family), relocatable=family not in FIXED)
    engine = Engine(model, Store.open(folder / family))
    schema, draw, furthest = schema_of(SCHEMA), random.Random(family), 0.0
    for scope in SCOPES:
        for _ in range(12):
            prompt = prompt_of(random_prompt(draw, ordered=family in FIXED))
            case = Case(engine, schema, prompt, scope)
            furthest = max(furthest, apart(case.logits(), reference.logits(case.plan, case.uses)))
    whole = Case(engine, schema_of(FULL), prompt_of("<prompt><a><x/></a><b/><user>Well?</user></prompt>"))
    rows = torch.ones(whole.plan.total_tokens, whole.plan.total_tokens, dtype=torch.bool).tril()
    plain = reference.masked_pass(whole.plan.token_ids, whole.plan.positions, rows)
    coarse = Engine(
        Model("bf16", tiny_network(family).bfloat16(), model.tokenizer, "bf16"),
        Store.open(folder / f"{family}-bf16"),
    )
    exact, rounded = Case(engine, schema, prompt_of(BOTH)), Case(coarse, schema, prompt_of(BOTH))
    lost = apart(rounded.logits().float(), exact.logits()) / exact.full().std().item()
    engine.close()
    coarse.close()
    far = [f"{away(family, length, length):.1e}" for length in (100, 1000)]
    far += [DASH] * 3 if "ALiBi" in model.probe.positions else far_out(family)
    return [
        family,
        model.path,
        model.probe.positions,
        "yes" if model.relocatable else "no",
        f"{furthest:.1e}",
        f"{apart(whole.logits()[-1], plain[-1]):.1e}",
        f"{lost:.2f}",
        *far,
    ]


def away(family: str, count: int, end: int) -> float:
    """How far segments of that many tokens are from one plain pass, the last token at end - 1."""
    length = max(end, 2048)
    model = Model("far", tiny_network(family, length=length), byte_tokenizer(), "far")
    return apart(read(model, count, end), plain(tiny_network(family, length=length), count, end))


def far_out(family: str) -> list[str]:
    """The three figures of far positions; the last has no meaning where positions are learned."""
    own = tiny_network(family, length=32_768)
    noise = apart(plain(own, FEW, 32_768), plain(own, FEW, 32_767))
    figures = [away(family, FEW, end) for end in (4096, 32_768)]
    return [*(f"{figure:.1e}" for figure in figures), DASH if family in FIXED else f"{noise:.1e}"]


def main() -> None:
    """Prints the table."""
    logging.set_verbosity_error()
    head = ["family", "path", "positions", "moves", "reference", "scaffold", "bf16"]
    head += ["100", "1,000", "4,096", "32,768", "model's own"]
    lines = [head, ["---"] * len(head)]
    with tempfile.TemporaryDirectory() as folder:
        lines += [row(family, Path(folder)) for family in sys.argv[1:] or FAMILIES]
    sys.stdout.write("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")


if __name__ == "__main__":
    main()
