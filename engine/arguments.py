"""Checks of the arguments that callers pass to the library."""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.base.errors import PathError, SettingsError
from engine.files.text_files import read_text_file
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, PromptError, parse_prompt


def document_text(source: object, kind: str) -> str:
    """Returns the text of a document, from PML text or the path of a file with it.

    Raises:
        PathError: the text is a file name, not a document.
        TextFileError: the file cannot be read as text.
        TypeError: the source has another type.
    """
    if isinstance(source, Path):
        return read_text_file(source)
    if not isinstance(source, str):
        words = f"the {kind} must be PML text, a Path or a tree, not {type(source).__name__}"
        raise TypeError(words)
    if source.endswith(".pml") and "<" not in source and "\n" not in source:
        raise PathError(f"{source!r} is a file name, not the text of a {kind}. Give Path({source!r}).")
    return source


def prompt_tree(
    source: str | Path | Prompt, base: Path | None, of_schema: Path | None
) -> tuple[Prompt, float]:
    """Returns the tree of a prompt, and the milliseconds spent on reading its text.

    A relative `src` is in the folder `base`, else in the file's own folder, else in the schema's.

    Raises:
        PathError, TextFileError, TypeError: as for `document_text`.
        PromptError: the prompt has errors.
    """
    if isinstance(source, Prompt):
        return source, 0.0
    text = document_text(source, "prompt")
    started = time.perf_counter()
    own = source.resolve().parent if isinstance(source, Path) else of_schema
    parsed = parse_prompt(text, base=base or own)
    if parsed.tree is None or not parsed.ok:
        raise PromptError(parsed.diagnostics)
    return parsed.tree, (time.perf_counter() - started) * 1000


def require_mode(mode: str, modes: Sequence[str]) -> None:
    """Raises SettingsError for a mode that is not in the list."""
    if mode not in modes:
        raise SettingsError(f"mode is {mode!r}; it must be one of {', '.join(modes)}.")


def settings_with(given: RunSettings | None, changes: dict[str, Any]) -> RunSettings:
    """Returns settings with single changes.

    Raises:
        SettingsError: a setting is out of range or unknown.
    """
    if not isinstance(given, RunSettings | None):
        raise SettingsError(
            f"settings is {given!r}; it must be RunSettings. Single settings go by name: max_new_tokens=20."
        )
    known = RunSettings.__dataclass_fields__
    if unknown := [name for name in changes if name not in known]:
        raise SettingsError(f"There is no setting {unknown[0]!r}; there are {', '.join(known)}.")
    return replace(given or RunSettings(), **changes)


def prompt_series(given: Any) -> Iterator[Any]:
    """Returns an iterator over prompts; raises SettingsError for a text or a value that is not iterable."""
    if not isinstance(given, str | bytes):
        with contextlib.suppress(TypeError):
            prompts: Iterator[Any] = iter(given)
            return prompts
    raise SettingsError(
        f"prompts is {reprlib.repr(given)}; it must be an iterable of prepared prompts, such as "
        "[schema.prompt('<prompt>…</prompt>')]."
    )
