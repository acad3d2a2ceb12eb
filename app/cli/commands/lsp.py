"""`pml lsp`: the language server, and configuration files for editors."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from app.cli.base.files import NoPlaceError, save_all
from app.cli.base.options import debug_option, plain_model
from app.cli.base.output import say
from app.cli.base.param_types import UserPath
from engine.files.text_files import read_text_file

EDITOR_FILES = Path(__file__).resolve().parents[3] / "assets" / "editors"


@click.command()
@click.option(
    "--model",
    callback=plain_model,
    envvar="PML_MODEL",
    show_envvar=True,
    metavar="NAME_OR_PATH",
    help="Count tokens by this model's tokenizer; its weights are not read. Default: words and characters.",
)
@click.option(
    "--files",
    "folder",
    type=UserPath(path_type=Path),
    metavar="DIR",
    help="Write the grammar, the RNG schema and the VS Code extension into DIR instead of serving.",
)
@click.option("--force", is_flag=True, help="With --files, replace existing files.")
@click.option(
    "--stdio", is_flag=True, expose_value=False, help="Accepted for compatibility; stdio is always used."
)
@debug_option
def lsp(model: str | None, folder: Path | None, force: bool) -> int:
    """Run the language server of PML for an editor.

    The editor starts this command and uses its standard input and output; docs/editors.md has the setup for
    VS Code, Neovim and Emacs. It provides errors while you type, completion, hovers, definitions, renaming
    across a schema and its prompts, quick fixes and formatting. A prompt uses the schema of its folder that
    its `schema` attribute names. Unsaved text takes precedence over files.
    """
    if folder is not None:
        for path in copy_editor_files(folder, force=force):
            say(str(path))
        return 0
    from app.lsp.server import pml_server, serve

    with contextlib.ExitStack() as stack:
        stack.enter_context(_ending_at_once())
        stdout = stack.enter_context(os.fdopen(os.dup(sys.stdout.fileno()), "wb"))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # a print must not corrupt the protocol
        return serve(pml_server(model), sys.stdin.buffer, stdout)


def copy_editor_files(folder: Path, *, force: bool) -> list[Path]:
    """Copies editor configuration files; raises FileWriteError, writing none, if one exists."""
    sources = [path for path in sorted(EDITOR_FILES.rglob("*")) if path.is_file()]
    texts = [(folder / path.relative_to(EDITOR_FILES), read_text_file(path)) for path in sources]
    for path, _ in texts:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NoPlaceError(f"{path.parent} cannot be created: {error.strerror or error}.") from None
    save_all(texts, force=force)
    return [path for path, _ in texts]


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """Lets signals end the process immediately, because a blocked read ignores them."""
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
