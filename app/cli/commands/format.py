"""`pml format`: the canonical form of schemas and prompts."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import click

from app.base.safe_write import write_text
from app.cli.base.documents import STDIN, read_text, rendered
from app.cli.base.options import debug_option, json_option
from app.cli.base.output import counted, emit, print_json, say
from app.cli.base.param_types import DOCUMENT
from engine.base.errors import PathError, PromptCacheError
from engine.files.text_files import TextFileError
from engine.pml import Diagnostic, PromptError
from engine.pml.edit.formatter import format_source


@dataclass(frozen=True)
class Outcome:
    """The result of formatting one file."""

    path: str  # the file, or `-`
    source: str = ""
    formatted: str = ""  # the canonical form, or the text itself if formatting failed
    fault: str = ""  # why formatting failed; empty if it succeeded
    misnamed: bool = False  # whether the path leads to no file
    diagnostics: tuple[Diagnostic, ...] = ()  # the errors of a document that is not well-formed

    @property
    def changed(self) -> bool:
        """Returns whether formatting changes the text."""
        return self.formatted != self.source

    def diff(self) -> str:
        """Returns the changes as a unified diff."""
        before, after = self.source.splitlines(keepends=True), self.formatted.splitlines(keepends=True)
        parts = difflib.unified_diff(before, after, self.path, f"{self.path} (formatted)")
        return "".join(
            part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts
        )

    def to_json(self) -> dict[str, object]:
        """Returns the file's entry of `--json`."""
        faults: dict[str, object] = {"error": self.fault} if self.fault else {"formatted": self.formatted}
        listed = [diagnostic.to_json() for diagnostic in self.diagnostics]
        return {
            "path": self.path,
            "ok": not self.fault,
            "changed": self.changed,
            "diagnostics": listed,
            **faults,
        }


@click.command(name="format")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=DOCUMENT)
@click.option("--write", is_flag=True, help="Replace the files that are not in canonical form.")
@click.option("--diff", is_flag=True, help="Show the changes; the exit status is 1 if there are any.")
@json_option
@debug_option
def format_command(files: tuple[str, ...], write: bool, diff: bool, as_json: bool) -> int:
    """Print schemas and prompts in their canonical form.

    The tokens that a model reads stay the same, and so do comments, line breaks in text, and everything under
    xml:space="preserve". Only well-formed documents are formatted; other errors do not matter.

    FILE may be - for standard input. Files are only changed with --write, and each is replaced whole.
    """
    if write and STDIN in files:
        raise click.UsageError("--write needs files; standard input has no place to write to.")
    outcomes = [_format(path) for path in files]
    if write:
        outcomes = [_written(outcome) for outcome in outcomes]
    if as_json:
        print_json({"files": [outcome.to_json() for outcome in outcomes]})
    for outcome in outcomes:
        if outcome.fault:
            say(outcome.fault, err=True)
        elif not as_json:
            _show(outcome, write, diff)
    if any(outcome.misnamed for outcome in outcomes):
        return 2
    would_change = diff and not write and any(outcome.changed for outcome in outcomes)
    return 1 if would_change or any(outcome.fault for outcome in outcomes) else 0


def _format(path: str) -> Outcome:
    try:
        source = read_text(path)
        return Outcome(path, source, format_source(source))
    except TextFileError as error:
        return Outcome(path, fault=str(error), misnamed=isinstance(error, PathError))
    except PromptError as error:
        errors = tuple(diagnostic for diagnostic in error.diagnostics if diagnostic.severity == "error")
        verdict = f"{path} has {counted(len(errors), 'error')}; it is unchanged."
        fault = f"{rendered(errors, source, path)}\n{verdict}"
        return Outcome(path, source, source, fault, diagnostics=errors)
    except PromptCacheError as error:
        return Outcome(path, source, source, f"{path}: {error}.")


def _written(outcome: Outcome) -> Outcome:
    """Replaces the file if it changed."""
    if outcome.fault or not outcome.changed:
        return outcome
    try:
        write_text(Path(outcome.path), outcome.formatted)
    except OSError as error:
        fault = f"{outcome.path} cannot be written: {error.strerror or error}. It is unchanged."
        return Outcome(outcome.path, outcome.source, outcome.source, fault)
    return outcome


def _show(outcome: Outcome, write: bool, diff: bool) -> None:
    if diff:
        emit(outcome.diff())
    if write:
        say(f"{outcome.path}: {'formatted' if outcome.changed else 'unchanged'}", err=diff)
    elif not diff:
        emit(outcome.formatted)
