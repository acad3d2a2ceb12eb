"""Reads schemas and prompts from files and reports their errors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from app.cli.base.output import counted, printable
from engine.base.errors import PromptCacheError
from engine.files.text_files import TextFileError, decode, read_stream, read_text_file
from engine.pml import Diagnostic, Parsed, Prompt, Schema, parse_prompt, parse_schema
from engine.pml.edit.writer import self_contained_prompt, write_prompt

Tree = TypeVar("Tree", Schema, Prompt)

STDIN = "-"


class FaultyDocumentError(PromptCacheError):
    """A document with errors.

    Attributes:
        name: the file's name in messages.
        kind: `schema` or `prompt`.
        source: its text.
        errors: at least one diagnostic.
    """

    def __init__(self, name: str, kind: str, source: str, errors: Sequence[Diagnostic]) -> None:
        super().__init__(f"{name} has {counted(len(errors), 'error')}, so nothing was computed.")
        self.name = name
        self.kind = kind
        self.source = source
        self.errors = tuple(errors)


@dataclass(frozen=True)
class Document(Generic[Tree]):
    """A parsed file."""

    name: str  # the file's name in messages
    source: str
    tree: Tree  # its parsed content


def read_text(path: str) -> str:
    """Returns the text of the file at `path`, or of standard input for `-`.

    Raises:
        TextFileError: the file is missing, not a plain file, unreadable, over 5 MB, or not UTF-8.
    """
    if path == STDIN:
        return decode(read_stream(sys.stdin.buffer, "standard input"), "standard input")
    return read_text_file(path)


def folder_of(path: str) -> Path:
    """Returns the base folder for `src` attributes of the document at `path`."""
    return Path.cwd() if path == STDIN else Path(path).resolve().parent


def read_schema(path: str) -> Document[Schema]:
    """Reads a schema without errors.

    Raises:
        TextFileError: the file cannot be read.
        FaultyDocumentError: the schema has errors.
    """
    parsed = parse_schema(read_text(path), base=folder_of(path))
    return Document(path, parsed.source, _sound(path, "schema", parsed))


def read_prompt(path: str) -> Document[Prompt]:
    """Reads a prompt without errors.

    Raises:
        TextFileError: the file cannot be read.
        FaultyDocumentError: the prompt has errors.
    """
    parsed = parse_prompt(read_text(path), base=folder_of(path))
    return Document(path, parsed.source, _sound(path, "prompt", parsed))


def self_contained_source(prompt: Document[Prompt]) -> str:
    """Returns the text of a prompt, with the text of a file that it names."""
    tree = self_contained_prompt(prompt.tree)
    return prompt.source if tree is prompt.tree else write_prompt(tree)


def require_sound(name: str, kind: str, source: str, diagnostics: Iterable[Diagnostic]) -> None:
    """Raises FaultyDocumentError if the diagnostics have an error."""
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if errors:
        raise FaultyDocumentError(name, kind, source, errors)


def file_report(
    name: str, kind: str | None, diagnostics: Sequence[Diagnostic], **more: object
) -> dict[str, object]:
    """Returns a file's entry of `--json`."""
    return {
        "path": name,
        "kind": kind,
        "ok": not any(diagnostic.severity == "error" for diagnostic in diagnostics),
        "diagnostics": [diagnostic.to_json() for diagnostic in diagnostics],
        **more,
    }


def rendered(diagnostics: Iterable[Diagnostic], source: str, name: str) -> str:
    """Formats diagnostics for people, each with its line and a caret."""
    texts: dict[str, str] = {}
    shown = []
    for diagnostic in diagnostics:
        file = str(Path(name).parent / diagnostic.file) if diagnostic.file else name
        if diagnostic.file and file not in texts:
            with contextlib.suppress(TextFileError):  # it was readable before
                texts[file] = read_text_file(file)
        text = texts.get(file, "") if diagnostic.file else source
        shown.append(printable(diagnostic.render(text, file)))
    return "\n".join(shown)


def _sound(name: str, kind: str, parsed: Parsed[Tree]) -> Tree:
    require_sound(name, kind, parsed.source, parsed.diagnostics)
    assert parsed.tree is not None
    return parsed.tree
