"""`pml watch`: checks and encodes documents when they are saved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.base.signals import StoppedError
from app.base.watcher import Encode, Watch
from app.cli.base.options import ModelOptions, debug_option, engine_options
from app.cli.base.output import counted, inline, say
from app.cli.base.param_types import UserPath
from app.cli.base.setting_options import setting_option
from app.cli.commands.check import tokenizing
from engine.base.stopwatch import milliseconds

if TYPE_CHECKING:
    from engine import Engine
    from engine.base.choices import Scope
    from engine.pml import Schema

PAUSE = 0.25  # seconds between two scans


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...", type=UserPath(path_type=Path))
@click.option("--encode", is_flag=True, help="Encode the new modules of each saved schema without errors.")
@setting_option("scope", only=("isolated", "anchored", "preceding"))
@engine_options
@debug_option
def watch(paths: tuple[Path, ...], encode: bool, scope: Scope, **engine_choice: Any) -> int:
    """Check schemas and prompts whenever they are saved.

    In a FOLDER it watches the documents directly inside, and the files that their modules read. A prompt is
    checked against the schema of its folder that its `schema` attribute names, and again when that changes.
    With --model tokens are checked too. With --encode changed modules are computed and stored. Ctrl-C stops.
    """
    context = click.get_current_context()
    engine: Engine | None
    if encode:
        engine = context.with_resource(ModelOptions(**engine_choice).open())
    else:
        engine = context.with_resource(tokenizing(engine_choice["model"]))
    check = engine.check if engine is not None else None
    watched = Watch(paths, check, _encoder(engine, scope) if encode and engine is not None else None)
    say(f"Watching {', '.join(inline(str(path)) for path in paths)} (Ctrl-C ends it).")
    try:
        while True:
            for line in watched.look():
                say(f"{time.strftime('%H:%M:%S')} {inline(line)}")
            time.sleep(PAUSE)
    except StoppedError:
        raise
    except KeyboardInterrupt:
        return 0


def _encoder(engine: Engine, scope: Scope) -> Encode:
    def encoded(schema: Schema) -> str:
        report = engine.schema(schema).encode(scope=scope)
        words = f"encoded {counted(report.encoded, 'segment')} ({counted(report.tokens, 'token')})"
        stored = "" if report.kept == report.total else f", {report.kept} of {report.total} stored"
        took = milliseconds(report.seconds * 1000)
        return f"{words} in {took}, {report.reused} were already stored{stored}"

    return encoded
