"""`pml import`: converts other formats to schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from app.base.importing import DEFAULT_LENGTH, KINDS, LEAST_TOKENS, MOST_TOKENS, OPTIONS_FOR, as_texts
from app.cli.base.files import FileWriteError, require_place, same_file, save_all
from app.cli.base.options import debug_option, json_option, model_option, token_counter
from app.cli.base.output import counted, emit, print_json, progress_bar, say
from app.cli.base.param_types import Name, UserPath, Whole

if TYPE_CHECKING:
    from engine.exchange import FolderOptions, Imported
    from engine.exchange.folder.sections import Split


class _Split(click.ParamType[int]):
    """`headings`, as 0, or `tokens:N`."""

    name = "split"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses `headings` or `tokens:512`."""
        if isinstance(value, int):
            return value
        words = str(value).strip().lower()
        match = re.fullmatch(r"tokens:(\d{1,7})", words)
        if match is None and words != "headings":
            self.fail(f"{value!r} is neither headings nor tokens:N, as in tokens:512.", param, ctx)
        tokens = int(match[1]) if match else 0
        if match and not LEAST_TOKENS <= tokens <= MOST_TOKENS:
            self.fail(
                f"{value!r} is out of range; write tokens:{LEAST_TOKENS} to tokens:{MOST_TOKENS}.", param, ctx
            )
        return tokens


@click.command(name="import")
@click.argument("source", type=UserPath(path_type=Path))
@click.option("--from", "kind", type=Name(KINDS), help="Kind of SOURCE. Default: from its name or content.")
@click.option("-o", "--output", type=UserPath(path_type=Path), help="Write the schema to this file.")
@click.option("--prompt-output", type=UserPath(path_type=Path), help="Write the prompt to this file.")
@click.option("--name", help="Name of the schema; for a program, the function.")
@click.option(
    "--param-length",
    type=Whole(1, 9_999_999),
    default=DEFAULT_LENGTH,
    show_default=True,
    help="Length in tokens of each template parameter.",
)
@click.option(
    "--row",
    type=Whole(1, 1_000_000),
    default=1,
    show_default=True,
    help="Number of the conversation or prompt in a file with several.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="Files of a folder to import, as .gitignore patterns. Repeatable. A path without wildcards is "
    "always imported.",
)
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Files to leave out, as .gitignore patterns. Repeatable."
)
@click.option(
    "--split",
    type=_Split(),
    metavar="headings|tokens:N",
    help="Split long texts into several modules.",
)
@click.option(
    "--titles/--no-titles",
    default=True,
    show_default=True,
    help="Start each text of a folder with a line that names the document.",
)
@click.option(
    "--refer", is_flag=True, help="Refer to the files of a folder with src instead of copying text."
)
@model_option
@click.option("--force", is_flag=True, help="Replace existing files.")
@json_option
@debug_option
def import_command(
    source: Path,
    kind: str | None,
    output: Path | None,
    prompt_output: Path | None,
    name: str | None,
    param_length: int,
    row: int,
    force: bool,
    as_json: bool,
    **of_folder: Any,
) -> int:
    """Convert another format to a schema. No code is executed.

    \b
    messages   a conversation for OpenAI, Anthropic or Gemini, a row of ShareGPT (.json, .jsonl):
               the last turn of the user becomes the prompt
    jinja      a template: conditions become modules and unions, variables become parameters, and
               lines such as "system:" begin turns (.jinja, .j2)
    folder     each text becomes a module, each folder a module around its files
    python     a program, compiled from its source (.py)
    text       plain text or Markdown: each section under a heading becomes a module (.md, .txt)
    prompty    a Prompty file (.prompty)
    langchain, langfuse, promptfoo
               a prompt in JSON or YAML (.json, .yaml)

    The schema is printed, or written with --output. Omissions are reported on standard error, one line for
    each kind. --split tokens:N counts with the tokenizer of --model.
    """
    from engine.exchange import import_from

    if of_folder["refer"] and output is None:
        raise click.UsageError("--refer needs --output: the schema refers to files below its own folder.")
    if output is not None and prompt_output is not None and same_file(output, prompt_output):
        raise click.UsageError("--output and --prompt-output name the same file. Name two files.")
    for option, path in (("--output", output), ("--prompt-output", prompt_output)):
        if path is not None and same_file(path, source):
            raise click.UsageError(f"{option} names the source file. Name another.")
    for path in (output, prompt_output):
        if path is not None:
            require_place(path, force=force)
    folder = _folder_options(output, prompt_output, **of_folder)
    with progress_bar() as bar:
        imported = import_from(
            source, kind, name=name, length=param_length, row=row, folder=folder, progress=bar
        )
        texts = as_texts(imported, bar)
    result, schema, prompt = texts.found, texts.schema, texts.prompt
    if prompt_output is not None and prompt is None:
        raise FileWriteError(f"{source} has no prompt to write. Leave out --prompt-output.")
    places = ((output, schema), (prompt_output, prompt))
    written = [(path, text) for path, text in places if path is not None and text is not None]
    save_all(written, force=force)
    remarks = [*result.notes, *_without_effect(result.kind)]
    notes = [*remarks, *_unwritten(result, prompt_output)]
    if as_json:
        print_json(
            {
                "name": result.schema.name,
                "schema": schema,
                "prompt": prompt,
                "modules": texts.modules,
                "notes": remarks,
                "written": [str(path) for path, _ in written],
            }
        )
        return 0
    for note in notes:
        say(f"note: {note}.", err=True)
    if output is None:
        emit(schema)
    for path, _ in written:
        modules = f", {counted(texts.modules, 'module')}" if path == output else ""
        say(f"{path}: written{modules}", err=output is None)
    return 0


def _folder_options(
    output: Path | None,
    prompt_output: Path | None,
    *,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    split: int | None,
    titles: bool,
    refer: bool,
    model: str | None,
) -> FolderOptions:
    from engine.exchange import FolderOptions
    from engine.exchange.folder.folder_files import Choice

    outputs = tuple(path for path in (output, prompt_output) if path is not None)
    return FolderOptions(
        choice=Choice(include, exclude, outputs),
        refer=refer,
        beside=output.resolve().parent if output is not None else None,
        titles=titles,
        split=None if split is None else _splitting(split, model),
    )


def _splitting(most: int, model: str | None) -> Split:
    from engine.exchange.folder.sections import Split

    return Split(most, token_counter(model)) if most else Split()


def _without_effect(kind: str) -> list[str]:
    """The given options that apply only to other kinds of sources."""
    context = click.get_current_context()
    lines: list[str] = []
    for options, (kinds, words) in OPTIONS_FOR.items():
        ineffective = [
            f"--{'no-' if context.params[option] is False else ''}{option.replace('_', '-')}"
            for option in options
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        ]
        if ineffective and kind not in kinds:
            has, they = ("have", "they apply") if len(ineffective) > 1 else ("has", "it applies")
            names = " and ".join(filter(None, (", ".join(ineffective[:-1]), ineffective[-1])))
            lines.append(f"{names} {has} no effect here: {they} to {words}")
    return lines


def _unwritten(found: Imported, prompt_output: Path | None) -> list[str]:
    """Describes the parts of the prompt that are lost if it is not written."""
    from engine.pml import Role, Text

    if found.prompt is None or prompt_output is not None:
        return []
    texts = [
        node.text
        for child in found.prompt.children
        for node in (child.children if isinstance(child, Role) else (child,))
        if isinstance(node, Text)
    ]
    words = " ".join("".join(texts).split())
    if not words:
        return []
    shown = words if len(words) <= 40 else f"{words[:39]}…"
    return [f"the last turn of the user ({shown!r}) belongs to the prompt; write it with --prompt-output"]
