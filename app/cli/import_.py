"""`pml import`: other forms as schemas."""

from __future__ import annotations

from pathlib import Path

import click

from app.cli.files import FileWriteError, same_file, save_all
from app.cli.options import debug_option, json_option
from app.cli.output import counted, emit, print_json, say
from app.cli.param_types import Name, Whole

KINDS = ("messages", "jinja", "folder", "python")


@click.command(name="import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--from", "kind", type=Name(KINDS), help="What SOURCE is; by default its name tells.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the schema to this file.")
@click.option("--prompt-output", type=click.Path(path_type=Path), help="Write the prompt to this file.")
@click.option("--name", help="Name of the schema; for a program, the function.")
@click.option(
    "--param-length",
    type=Whole(1, 9_999_999),
    default=32,
    show_default=True,
    help="Tokens of each parameter that a template has.",
)
@click.option("--refer", is_flag=True, help="Refer to the files of a folder with src, and copy no text.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@json_option
@debug_option
def import_command(
    source: Path,
    kind: str | None,
    output: Path | None,
    prompt_output: Path | None,
    name: str | None,
    param_length: int,
    refer: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Make a schema of something else. Nothing in it is run.

    \b
    messages   JSON for OpenAI or Anthropic: the last turn of the user becomes the prompt (.json)
    jinja      a template: if becomes modules and unions, variables parameters (.jinja, .j2)
    folder     each text file becomes a module
    python     a program, which is compiled from its source (.py)

    The schema is printed, or written with --output. What is left out is said on standard error.
    """
    from engine.exchange import import_from
    from engine.pml.writer import write_prompt, write_schema

    if refer and output is None:
        raise click.UsageError("--refer needs --output: the schema refers to files below its own folder.")
    if output is not None and prompt_output is not None and same_file(output, prompt_output):
        raise click.UsageError(
            "--output and --prompt-output name the same file, which holds one document. Name two files."
        )
    for option, path in (("--output", output), ("--prompt-output", prompt_output)):
        if path is not None and same_file(path, source):
            raise click.UsageError(f"{option} names the file that is read. Name another.")
    refer_from = output.resolve().parent if refer and output is not None else None
    found = import_from(source, kind, name=name, length=param_length, refer_from=refer_from)
    schema = write_schema(found.schema)
    prompt = write_prompt(found.prompt) if found.prompt is not None else None
    if prompt_output is not None and prompt is None:
        raise FileWriteError(
            f"{source} holds no prompt, so there is none to write. Leave out --prompt-output."
        )
    texts = ((output, schema), (prompt_output, prompt))
    written = [(path, text) for path, text in texts if path is not None and text is not None]
    save_all(written, force=force)
    if as_json:
        print_json(
            {
                "name": found.schema.name,
                "schema": schema,
                "prompt": prompt,
                "modules": len(found.schema.modules()),
                "notes": list(found.notes),
                "written": [str(path) for path, _ in written],
            }
        )
        return 0
    for note in found.notes:
        say(f"note: {note}.", err=True)
    if output is None:
        emit(schema)
    for path, _ in written:
        modules = f", {counted(len(found.schema.modules()), 'module')}" if path == output else ""
        say(f"{path}: written{modules}", err=output is None)
    return 0
