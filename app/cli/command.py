"""The root command of `pml` and its exit: every error becomes a message on stderr and an exit status.

Imports neither torch nor gradio, so that `pml --help` and `pml check` start fast. Commands load on use.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from app.base.fast_imports import wait_briefly
from app.base.signals import StoppedError, as_interrupts
from app.cli.base import streams
from app.cli.base.documents import FaultyDocumentError, file_report, rendered
from app.cli.base.output import Console, PrintableFormatter, print_json, say
from app.cli.base.streams import UnreadError, UnwritableError
from app.cli.lazy_group import Commands
from engine.base.errors import PathError, PromptCacheError

MISUSED, INTERRUPTED = 2, 130
_COMMANDS = {
    "ask": "app.cli.commands.ask:ask",
    "cache": "app.cli.commands.cache:cache",
    "check": "app.cli.commands.check:check",
    "decide": "app.cli.decisions.decide:decide",
    "embed": "app.cli.embeddings.embed:embed",
    "encode": "app.cli.commands.layout:encode",
    "export": "app.cli.commands.export:export_command",
    "fidelity": "app.cli.commands.fidelity:fidelity",
    "format": "app.cli.commands.format:format_command",
    "import": "app.cli.commands.import_:import_command",
    "layout": "app.cli.commands.layout:layout",
    "lsp": "app.cli.commands.lsp:lsp",
    "maps": "app.cli.maps.maps:maps",
    "models": "app.cli.commands.models:models",
    "run": "app.cli.commands.run:run",
    "serve": "app.cli.commands.serve:serve",
    "studio": "app.cli.commands.studio:studio",
    "watch": "app.cli.commands.watch:watch",
    "why": "app.cli.recent.why:why",
}


class Root(click.Group):
    """The group of all commands. It reports a broken pipe, which click would hide."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments, or prints the help."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError as error:
            raise UnreadError from error

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise UnreadError from error


@click.group(
    cls=Root,
    commands=Commands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="prompt-cache-studio", prog_name="pml")
def pml() -> None:
    """Answer prompts made of reusable modules. The model reads each module only once.

    A schema (PML, an XML dialect) defines modules; a prompt picks some of them and adds text. The model's
    results for a module, its segments, are stored on disk, so answers to later prompts start sooner.

    \b
    Start here:
      pml studio                                  author and compare in the browser
      pml check schema.pml                        find mistakes
      pml run prompt.pml --schema schema.pml      answer with and without the cache
      pml ask schema.pml "a question"             find the modules that answer it, and ask

    Exit status: 0 success, 1 the input has errors, a check failed, or a model or store cannot be used,
    2 wrong usage or a missing path, 3 some rows of a batch failed, 4 some answers of a batch are not as
    expected, 130 interrupted, 129 and 143 the same by SIGHUP and SIGTERM, 141 broken pipe.
    """


def main(arguments: Sequence[str] | None = None, command: click.Command = pml, name: str = "pml") -> None:
    """Runs a command line and exits with its status.

    Args:
        arguments: the words after its name; those of the process by default.
        command: the root command.
        name: the name in its help.

    Raises:
        SystemExit: always, with the status.
    """
    wait_briefly()
    streams.stand_in()
    try:
        with as_interrupts():
            status = _status(list(sys.argv[1:] if arguments is None else arguments), command, name)
        streams.flush()
    except (UnreadError, BrokenPipeError):
        streams.abandon(sys.stdout, sys.stderr)
        status = streams.UNREAD
    except UnwritableError as error:
        streams.abandon(sys.stdout)
        with contextlib.suppress(UnwritableError, BrokenPipeError):
            say(f"pml: {error}", err=True)
        streams.abandon(sys.stderr)
        status = 1
    sys.exit(status)


def _status(arguments: list[str], command: click.Command, name: str) -> int:
    console = Console()
    _quiet_libraries()
    try:
        status = command.main(args=arguments, prog_name=name, standalone_mode=False, obj=console)
        return status if isinstance(status, int) else 0
    except click.UsageError as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue(), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as interrupt:
        stopped = interrupt if isinstance(interrupt, StoppedError) else interrupt.__cause__
        if isinstance(stopped, StoppedError):
            with contextlib.suppress(OSError):  # the terminal may be closed
                say(f"pml: stopped by {stopped}", err=True)
            return 128 + stopped.number
        say("pml: interrupted", err=True)
        return INTERRUPTED
    except (UnreadError, UnwritableError):
        raise
    except Exception as error:
        _report(error, console)
        if console.debug:
            say("".join(traceback.format_exception(error)), err=True, nl=False)
        return MISUSED if isinstance(error, PathError) else 1


def _report(error: Exception, console: Console) -> None:
    if isinstance(error, FaultyDocumentError):
        if console.json:
            report = file_report(error.name, error.kind, error.errors)
            print_json({"error": str(error), "files": [report]})
        say(rendered(error.errors, error.source, error.name), err=True)
        say(f"pml: {error}", err=True)
    elif isinstance(error, PromptCacheError):
        console.fail(str(error))
    elif isinstance(error, click.ClickException):
        console.fail(error.format_message())
    else:
        what = f"unexpected {type(error).__name__}: {error}"
        console.fail(what, hint="Run it with --debug for the traceback.")


def _quiet_libraries() -> None:
    """Sends the engine's warnings to stderr as messages and silences third-party advice."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("pml: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
