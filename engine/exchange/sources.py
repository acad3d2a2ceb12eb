"""What can be imported, and which it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.exchange.errors import ExchangeError
from engine.exchange.from_folder import from_folder
from engine.exchange.from_jinja import DEFAULT_LENGTH, from_jinja
from engine.exchange.from_messages import from_messages
from engine.exchange.imported import Imported
from engine.pml.text_files import is_folder, read_text_file, require_folder
from engine.programs import compile_source
from engine.programs.naming import legible

KINDS: Final = ("messages", "jinja", "folder", "python")
"""What `import_from` reads."""

_ENDINGS: Final = {
    ".json": "messages",
    ".jinja": "jinja",
    ".jinja2": "jinja",
    ".j2": "jinja",
    ".py": "python",
}


def kind_of(source: Path) -> str:
    """The kind of a source, by its name.

    Raises:
        ExchangeError: the name does not tell.
        TextFileError: nothing is there.
    """
    if is_folder(source):
        return "folder"
    found = _ENDINGS.get(source.suffix.lower())
    if found is None:
        kinds, known = ", ".join(KINDS), ", ".join(_ENDINGS)
        message = f"{source} could be anything; name what it is ({kinds}), or let it end in {known}"
        raise ExchangeError(message)
    return found


def import_from(
    source: Path,
    kind: str | None = None,
    *,
    name: str | None = None,
    length: int = DEFAULT_LENGTH,
    refer_from: Path | None = None,
) -> Imported:
    """Makes a schema of a file or folder in another form. Nothing in it is run.

    Args:
        source: the file or folder.
        kind: one of `KINDS`; by default what its name tells.
        name: name of the schema; by default that of the source. A program names its own schema; there, `name`
            picks the function where the file holds several.
        length: length of a template's parameters, in tokens.
        refer_from: for a folder, where the schema will be saved; its modules then refer to the files.

    Raises:
        ExchangeError: a folder cannot be read, or nothing in the source can become a schema.
        TextFileError: there is no such file or folder, or the file cannot be read as text.
        ProgramError: the program cannot be compiled; the error names the line.
    """
    kind = kind_of(source) if kind is None else kind
    if kind not in KINDS:
        raise ExchangeError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    if kind == "folder":
        require_folder(source)
        return from_folder(source, legible(name or source.resolve().name), refer_from=refer_from)
    content = read_text_file(source)
    if not content.strip():
        raise ExchangeError(f"{source} is empty, so no schema comes of it; name another file")
    if kind == "python":
        program = compile_source(content, str(source), name=name, base=source.parent)
        return Imported(program.schema(), None)
    try:
        if kind == "messages":
            return from_messages(content, legible(name or _stem(source)))
        return from_jinja(content, legible(name or _stem(source)), length)
    except ExchangeError as error:
        raise ExchangeError(f"{source}: {error}") from error


def _stem(source: Path) -> str:
    return source.name.partition(".")[0]
