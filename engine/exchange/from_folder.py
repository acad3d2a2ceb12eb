"""A folder of documents as a schema: each file is a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from engine.exchange.errors import ExchangeError
from engine.exchange.imported import Imported, imports, module, role, text
from engine.pml import Module, Prompt, Schema
from engine.pml.diagnostics import NOWHERE
from engine.pml.entities import forbidden_character
from engine.pml.sources import MAX_TOTAL, SourceError, read_source
from engine.pml.text_files import MAX_BYTES
from engine.programs.naming import legible, unique

MAX_FILES: Final = 2000
"""How many files a folder may give."""


def from_folder(folder: Path, name: str, *, refer_from: Path | None = None) -> Imported:
    """Reads every text file below a folder, in the order of their paths.

    Hidden files, links out of the folder, and what is not text are skipped and noted. A copied text that ends
    without a line break gets one, so that no two run together.

    Args:
        folder: the folder.
        name: name of the schema.
        refer_from: the folder that the schema will be saved in; modules then refer to their files with `src`
            instead of copying them.

    Raises:
        ExchangeError: the folder cannot be read, lies outside of `refer_from`, or holds no text.
    """
    prefix = None if refer_from is None else _below(folder, refer_from)
    notes: list[str] = []
    taken: dict[str, int] = {}
    modules: list[Module] = []
    total, most = 0, MAX_BYTES if prefix is None else MAX_TOTAL
    for path in _files(folder, notes):
        content = _read(folder, path, notes)
        if content is None:
            continue
        total += len(content.encode("utf-8"))
        if total > most or len(modules) == MAX_FILES:
            limit = f"{MAX_FILES} files" if len(modules) == MAX_FILES else f"{most >> 20} MB"
            notes.append(f"{path} and all after it are left out: a schema from a folder holds {limit}")
            break
        short = unique(legible(path.removesuffix(".txt").removesuffix(".md").replace("/", "-")), taken, 0)
        modules.append(_module(short, content, str(prefix / path) if prefix is not None else None))
    if not modules:
        raise ExchangeError("; ".join([f"{folder} holds no text that could become a module", *notes[:3]]))
    schema = Schema(name, (role("user", tuple(modules)),), (), NOWHERE)
    prompt = Prompt(name, imports([one.name for one in modules]), NOWHERE)
    return Imported(schema, prompt, tuple(notes))


def _below(folder: Path, above: Path) -> PurePosixPath:
    """The path of a folder from the folder of the schema on."""
    try:
        return PurePosixPath(folder.resolve().relative_to(above.resolve()).as_posix())
    except ValueError:
        message = (
            f"{folder} does not lie in the folder of the schema, so it cannot refer to its files; save "
            "the schema beside the folder, or copy the texts"
        )
        raise ExchangeError(message) from None


def _module(name: str, content: str, src: str | None) -> Module:
    if src is None and not content.endswith("\n"):
        content += "\n"
    plain = module(name, text(content))
    return Module(name, name, plain.children, True, src, NOWHERE, NOWHERE)


def _files(folder: Path, notes: list[str]) -> Iterator[str]:
    """The files below a folder as paths with /, in order."""

    def failed(error: OSError) -> None:
        notes.append(f"{error.filename} is left out: {error.strerror}")

    found: list[str] = []
    folder = folder.resolve() if folder.is_symlink() else folder
    # fwalk opens folder from folder, so that none that is exchanged meanwhile leads it elsewhere.
    walk: Any = getattr(os, "fwalk", os.walk)(folder, onerror=failed)
    for above, folders, files, *_ in walk:
        hidden = [name for name in (*folders, *files) if name.startswith(".")]
        notes.extend(f"{_relative(folder, above, name)} is left out: it is hidden" for name in sorted(hidden))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(_relative(folder, above, name) for name in files if not name.startswith("."))
    return iter(sorted(found))


def _relative(folder: Path, above: str, name: str) -> str:
    return (Path(above).relative_to(folder) / name).as_posix()


def _read(folder: Path, path: str, notes: list[str]) -> str | None:
    try:
        content = read_source(path, folder)
    except SourceError as error:
        notes.append(f"{path} is left out: {error}")
        return None
    if not content.strip():
        notes.append(f"{path} is left out: it is empty")
        return None
    bad = forbidden_character(content)
    if bad is not None:
        notes.append(f"{path} is left out: it holds {bad!r}, so it is no text that a document may hold")
        return None
    return content
