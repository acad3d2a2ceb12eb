"""`pml models`: which models can be used, and what the probe measured on one."""

from __future__ import annotations

from typing import Any

import click

from app.cli.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.output import print_json, say, size

USABLE = """\
--model takes
  demo            the bundled model (default)
  FOLDER          what save_pretrained wrote: config.json, *.safetensors, the tokenizer's files
  OWNER/NAME      a Hugging Face id, fetched once into the hub's own cache
  random:SHAPE    random weights, for timing: llama-100m, tinyllama-1.1b, llama2-7b

Usable are causal language models of attention layers: those on transformers' attention interface (Llama,
Mistral, Qwen, Gemma, Phi, GPT-NeoX, Cohere, GLM, gpt-oss, GPT-2, OPT and their like) read segments in place;
Falcon, BLOOM, MPT and GPT-J, with attention code of their own, copy them into a dense cache. Each is probed
when it is loaded, and refused if neither reproduces it; so are recurrent and hybrid models,
encoder-decoders, and models that need code of their own."""


@click.command()
@model_options
@quantize_option
@json_option
@debug_option
def models(as_json: bool, **model_choice: Any) -> None:
    """Say which models can be used, and probe one.

    The probe runs a dozen tokens through the model's own attention and through attention over segments, also
    with a segment that was moved, at the end of the context, and across its thresholds, and compares the
    logits. Without --model it probes the bundled model.
    """
    model = ModelOptions(**model_choice).load()
    probe = model.probe
    if as_json:
        print_json(
            {
                "model": model.name,
                "family": model.family,
                "positions": probe.positions,
                "path": probe.path,
                "relocatable": probe.relocatable,
                "exact_up_to": probe.exact_up_to,
                "checks": dict(probe.checks),
                "summary": probe.summary,
                "apart": model.apart,
                "context_length": model.context_length,
                "bytes_per_token": model.bytes_per_token,
                "device": model.device,
                "dtype": model.dtype,
                "weights": model.weights,
                "fingerprint": model.fingerprint,
            }
        )
        return
    say(f"{USABLE}\n")
    say(
        f"{model.name}: {model.family}, {model.dtype} on {model.device}, {model.weights} weights, a context "
        f"window of {model.context_length} tokens, {size(model.bytes_per_token)} of keys and values per token"
    )
    say(probe.summary)
    if model.apart:
        say(f"What prompts share is read segment by segment on this GPU: {model.apart}.")
    for check, difference in probe.checks.items():
        say(f"  {check}: {difference:.1e}")
