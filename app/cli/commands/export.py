"""`pml export`: converts schemas and prompts to other formats."""

from __future__ import annotations

import os
from pathlib import Path

import click

from app.cli.base.documents import folder_of, read_prompt, read_schema, require_sound
from app.cli.base.files import save
from app.cli.base.options import debug_option, json_option
from app.cli.base.output import emit, print_json, say
from app.cli.base.param_types import DOCUMENT, Name, UserPath

FORMS = ("pml", "python", "openai", "decisions", "anthropic", "jinja", "text")


@click.command(name="export")
@click.argument("schema_path", metavar="SCHEMA", type=DOCUMENT)
@click.option("--to", "form", required=True, type=Name(FORMS), help="Format to convert to.")
@click.option("--prompt", "prompt_path", type=DOCUMENT, metavar="FILE", help="The prompt to export.")
@click.option("-o", "--output", type=UserPath(path_type=Path), help="Write to this file or folder.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
@debug_option
def export_command(
    schema_path: str, form: str, prompt_path: str | None, output: Path | None, force: bool, as_json: bool
) -> int:
    """Convert a schema, or a prompt of it, to another format.

    \b
    pml        one document, with the text of src files in it
    python     a program that compiles to the schema
    openai     the messages of the prompt
    decisions  the messages of the prompt and its questions
    anthropic  the messages of the prompt, with cache breakpoints at module boundaries
    jinja      the schema as a template; with --prompt, its variables in a comment
    text       the text of the prompt

    The result is printed, or written with --output. Omissions are reported on standard error.
    """
    from engine.exchange import export
    from engine.pml import bind

    schema = read_schema(schema_path)
    prompt = read_prompt(prompt_path) if prompt_path else None
    if prompt is not None:
        bound = bind(schema.tree, prompt.tree)
        require_sound(prompt.name, "prompt", prompt.source, bound.diagnostics)
    exported = export(form, schema.tree, prompt.tree if prompt else None, folder_of(schema_path))
    written = None
    if output is not None:
        written = output / exported.filename if os.path.isdir(output) else output  # noqa: PTH112 - never raises
        save(written, exported.text, force=force)
    if as_json:
        print_json(
            {
                "form": form,
                "schema": schema.tree.name,
                "filename": exported.filename,
                "media_type": exported.media_type,
                "text": exported.text,
                "notes": list(exported.notes),
                "written": str(written) if written else None,
            }
        )
        return 0
    for note in exported.notes:
        say(f"note: {note}.", err=True)
    if written is not None:
        say(f"{written}: written")
    else:
        emit(exported.text, nl=not exported.text.endswith("\n"))
    return 0
