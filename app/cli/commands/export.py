"""`pml export`: schemas and prompts in other forms."""

from __future__ import annotations

import os
from pathlib import Path

import click

from app.cli.base.documents import folder_of, read_prompt, read_schema, require_sound
from app.cli.base.files import save
from app.cli.base.options import debug_option, json_option
from app.cli.base.output import emit, print_json, say
from app.cli.base.param_types import DOCUMENT, Name, UserPath

FORMS = ("pml", "python", "openai", "anthropic", "jinja", "text")


@click.command(name="export")
@click.argument("schema_path", metavar="SCHEMA", type=DOCUMENT)
@click.option("--to", "form", required=True, type=Name(FORMS), help="The form.")
@click.option("--prompt", "prompt_path", type=DOCUMENT, metavar="FILE", help="A prompt of the schema.")
@click.option("-o", "--output", type=UserPath(path_type=Path), help="Write this file, or into this folder.")
@click.option("--force", is_flag=True, help="Replace the file where it is there already.")
@json_option
@debug_option
def export_command(
    schema_path: str, form: str, prompt_path: str | None, output: Path | None, force: bool, as_json: bool
) -> int:
    """Give a schema, or a prompt of it, another form.

    \b
    pml        one document, with the text of src files in it
    python     a program that compiles to the schema
    openai     the messages of the prompt
    anthropic  the messages of the prompt, with cache breakpoints at borders of modules
    jinja      the schema as a template; with --prompt, what to render it with
    text       the text of the prompt

    It is printed, or written with --output. What a form cannot hold is said on standard error.
    """
    from engine.exchange import export
    from engine.pml import bind

    schema = read_schema(schema_path)
    prompt = read_prompt(prompt_path) if prompt_path else None
    if prompt is not None:
        bound = bind(schema.tree, prompt.tree)
        require_sound(prompt.name, "prompt", prompt.source, bound.diagnostics)
    found = export(form, schema.tree, prompt.tree if prompt else None, folder_of(schema_path))
    written = None
    if output is not None:
        written = output / found.filename if os.path.isdir(output) else output  # noqa: PTH112 - never raises
        save(written, found.text, force=force)
    if as_json:
        print_json(
            {
                "form": form,
                "schema": schema.tree.name,
                "filename": found.filename,
                "media_type": found.media_type,
                "text": found.text,
                "notes": list(found.notes),
                "written": str(written) if written else None,
            }
        )
        return 0
    for note in found.notes:
        say(f"note: {note}.", err=True)
    if written is not None:
        say(f"{written}: written")
    else:
        emit(found.text, nl=not found.text.endswith("\n"))
    return 0
