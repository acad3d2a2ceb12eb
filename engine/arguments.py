"""What callers give the library, refused in words where it is not what is wanted."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.base.errors import PathError, SettingsError
from engine.files.text_files import read_text_file
from engine.inference.run_settings import RunSettings


def document_text(source: object, kind: str) -> str:
    """Returns the text of a document.

    Args:
        source: PML text, or a file with it.
        kind: what the document is, in a word.

    Raises:
        PathError: the text is no document but the name of one.
        TextFileError: the file cannot be read as text.
        TypeError: the source is neither.
    """
    if isinstance(source, Path):
        return read_text_file(source)
    if not isinstance(source, str):
        words = (
            f"a {kind} is PML text, a Path of a file with it, or its tree, and not {type(source).__name__}"
        )
        raise TypeError(words)
    if source.endswith(".pml") and "<" not in source and "\n" not in source:
        raise PathError(
            f"{source!r} is the name of a file, and is taken for the text of a {kind}. Give Path({source!r})."
        )
    return source


def require_mode(mode: str, modes: Sequence[str]) -> None:
    """Refuses a mode that is none of these.

    Raises:
        SettingsError: it is none.
    """
    if mode not in modes:
        raise SettingsError(f"mode is {mode!r}; it must be one of {', '.join(modes)}.")


def settings_with(given: RunSettings | None, changes: dict[str, Any]) -> RunSettings:
    """Returns settings with single ones changed.

    Raises:
        SettingsError: a setting is out of its range, or there is none of that name.
    """
    if not isinstance(given, RunSettings | None):
        raise SettingsError(
            f"settings are {given!r}; they must be RunSettings, or single ones by name: max_new_tokens=20."
        )
    known = RunSettings.__dataclass_fields__
    if unknown := [name for name in changes if name not in known]:
        raise SettingsError(f"There is no setting {unknown[0]!r}; there are {', '.join(known)}.")
    return replace(given or RunSettings(), **changes)


def prompt_series(given: Any) -> Iterator[Any]:
    """Returns prompts as they come one by one.

    Raises:
        SettingsError: they are one prompt, a text, or nothing that has several.
    """
    if not isinstance(given, str | bytes):
        with contextlib.suppress(TypeError):
            prompts: Iterator[Any] = iter(given)
            return prompts
    raise SettingsError(
        f"prompts is {reprlib.repr(given)}; it must be a series of prepared ones, such as "
        "[schema.prompt('<prompt>…</prompt>')]."
    )
