"""Imports any supported source and recognises its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.base.json_files import parsed_json
from engine.exchange.base.yaml_files import parsed_yaml
from engine.exchange.folder.folder_files import Progress
from engine.exchange.folder.from_folder import FolderOptions, from_folder
from engine.exchange.folder.from_text import ENDINGS, from_text, is_template
from engine.exchange.from_libraries import from_langchain, from_langfuse, from_promptfoo, library_of
from engine.exchange.from_messages import from_conversation
from engine.exchange.templates.from_jinja import DEFAULT_LENGTH, from_jinja
from engine.exchange.templates.from_prompty import from_prompty, is_prompty
from engine.exchange.templates.from_templates import role_turns
from engine.files.text_files import MAX_BYTES, Lines, is_folder, open_file, read_text_file, require_folder
from engine.programs import compile_source
from engine.programs.compile.naming import legible

KINDS: Final = (
    *("messages", "jinja", "folder", "python", "text"),
    *("prompty", "langchain", "langfuse", "promptfoo"),
)
"""The kinds that `import_from` reads."""

_ENDINGS: Final = {
    ".jinja": "jinja",
    ".jinja2": "jinja",
    ".j2": "jinja",
    ".py": "python",
    ".prompty": "prompty",
}
_VALUES: Final = (".json", ".jsonl", ".ndjson", ".yaml", ".yml")
_LINES: Final = (".jsonl", ".ndjson")
_MOST_ROWS: Final = 1_000_000


def import_from(
    source: Path,
    kind: str | None = None,
    *,
    name: str | None = None,
    length: int = DEFAULT_LENGTH,
    row: int = 1,
    folder: FolderOptions | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Converts a file or folder in another form to a schema. Nothing in it is executed.

    Args:
        source: the file or folder.
        kind: one of `KINDS`; by default recognised by name or content.
        name: name of the schema; by default that of the source. A program names its own schema, so `name`
            selects one of several functions.
        length: length of a template's parameters, in tokens.
        row: number of the conversation or prompt in a file with several, from 1.
        folder: for a folder, the selection of files and their conversion; for a text, how it is cut.
        progress: called before each file of a folder is read; its exceptions end the import.

    Raises:
        ExchangeError: a folder is unreadable, or nothing in the source can become a schema.
        TextFileError: there is no such file or folder, or the file cannot be read as text.
        ProgramError: the program cannot be compiled; the error names the line.
    """
    if kind is not None and kind not in KINDS:
        raise ExchangeError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    if kind == "folder" or (kind is None and is_folder(source)):
        require_folder(source)
        return replace(
            from_folder(source, legible(name or source.resolve().name), folder, progress), kind="folder"
        )
    short = legible(name or _stem(source))
    guessed = False
    try:
        if source.suffix.lower() in _LINES and kind in (None, "messages"):
            value, total = _row(source, row)
            return _with_total(replace(from_conversation(value, short), kind="messages"), row, total)
        content = read_text_file(source)
        if not content.strip():
            raise ExchangeError("it is empty; name another file")
        if kind is None:
            kind, value = _recognised(source, content)
            guessed = kind != "text" and source.suffix.lower() in ENDINGS
        else:
            value = _value(source, content, kind)
        if kind == "python":
            program = compile_source(content, str(source), name=name, base=source.parent)
            return Imported(program.schema(), None, kind="python")
        readers: dict[str, Callable[[], Imported]] = {
            "messages": lambda: from_conversation(value, short, row),
            "jinja": lambda: from_jinja(content, short, length),
            "text": lambda: from_text(content, short, folder.split if folder else None),
            "prompty": lambda: from_prompty(content, short, length),
            "langchain": lambda: from_langchain(value, short, length),
            "langfuse": lambda: from_langfuse(value, short, length, row),
            "promptfoo": lambda: from_promptfoo(value, short, length, row),
        }
        return replace(readers[kind](), kind=kind)
    except ExchangeError as error:
        remedy = f"; it was read as {kind}; add --from text to import it as text" if guessed else ""
        raise ExchangeError(f"{source}: {error}{remedy}") from error


def _recognised(source: Path, content: str) -> tuple[str, Any]:
    """The kind of a file, and its parsed JSON or YAML.

    Raises:
        ExchangeError: the kind is unknown, or the file cannot be parsed.
    """
    ending = source.suffix.lower()
    known = _ENDINGS.get(ending)
    if known is not None:
        return known, None
    if ending in _VALUES:
        value = _value(source, content, "messages")
        return library_of(value) or "messages", value
    if is_prompty(content):
        return "prompty", None
    if role_turns(content, None):
        return "jinja", None
    if content.lstrip()[:1] in ("{", "["):
        try:
            value = parsed_json(content)
        except ExchangeError:
            pass
        else:
            return library_of(value) or "messages", value
    if ending in ENDINGS and is_template(content):
        raise ExchangeError("it has template markup; add --from jinja, or --from text to import it as text")
    if ending in ENDINGS:
        return "text", None
    kinds, endings = ", ".join(KINDS), ", ".join((*_ENDINGS, *_VALUES, *ENDINGS))
    raise ExchangeError(f"its kind is unclear; name it ({kinds}), or use a file ending: {endings}")


def _value(source: Path, content: str, kind: str) -> Any:
    """The parsed JSON or YAML of a file; None for other kinds."""
    if kind in ("jinja", "prompty", "python", "text"):
        return None
    written_in_yaml = source.suffix.lower() in (".yaml", ".yml") or kind == "promptfoo"
    if written_in_yaml and content.lstrip()[:1] not in "{[":
        return parsed_yaml(content)
    return parsed_json(content)


def _row(source: Path, row: int) -> tuple[Any, int]:
    """A row of a file of lines, and the total number of rows.

    Raises:
        ExchangeError: there is no such row, or it is invalid JSON.
    """
    text, total = "", 0
    with open_file(source) as file:
        for line in Lines(file, str(source), limit=MAX_BYTES):
            if line.strip():
                total += 1
                text = line if total == row else text
            if total == _MOST_ROWS:
                break
    if not total:
        raise ExchangeError("it is empty; name another file")
    if row > total:
        raise ExchangeError(f"there is no conversation {row}: it has {total:,}; give --row 1 to {total}")
    return parsed_json(text), total


def _with_total(found: Imported, row: int, total: int) -> Imported:
    if total == 1:
        return found
    note = f"it has {total:,} conversations, and number {row} is imported; --row gives another"
    return replace(found, notes=(note, *found.notes))


def _stem(source: Path) -> str:
    return source.name.partition(".")[0]
