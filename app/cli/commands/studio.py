"""`pml studio`: the studio in the browser."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, engine_options
from app.cli.base.output import reading_bar, say
from app.cli.base.param_types import UserPath, Whole
from app.cli.base.server_options import offer_options, offered
from engine.files.text_files import require_folder


@click.command()
@click.option(
    "--port",
    type=Whole(1, 65535),
    default=7860,
    show_default=True,
    envvar="PML_PORT",
    show_envvar=True,
    help="Port on 127.0.0.1.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser window.")
@click.option(
    "--schemas",
    "schemas_dir",
    type=UserPath(path_type=Path),
    metavar="DIR",
    help="Also offer the schemas of this folder.",
)
@offer_options
@engine_options
@debug_option
def studio(port: int, no_browser: bool, schemas_dir: Path | None, **given: Any) -> None:
    """Open the studio in the browser.

    It listens on 127.0.0.1 only, and contacts no other host, unless --model names a model on the
    Hugging Face hub. Ctrl-C ends it.
    """
    if schemas_dir is not None:
        require_folder(schemas_dir)
    options = ModelOptions(**{field.name: given.pop(field.name) for field in fields(ModelOptions)})
    offer = offered(**given)
    from app.studio import launch

    say(f"Starting the studio at http://127.0.0.1:{port} (Ctrl-C ends it).")

    with reading_bar(aloud=True) as progress:
        launch(
            model=options.name,
            port=port,
            open_browser=not no_browser,
            schemas_dir=schemas_dir,
            offer=offer,
            progress=progress,
            **options.for_engine(),
        )
