"""The prompt and settings that the rows of a batch start from, and the cost of their scope."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from app.batch.batch_table import spelled
from app.batch.row_answers import in_force
from app.studio.documents.samples import gist
from app.studio.runs.settings import declarations
from engine.base.errors import PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.rows.row_prompts import modules_of

if TYPE_CHECKING:
    from engine import Engine, PreparedPrompt

PLANNED_SECONDS = 1.0  # time limit for planning rows in advance
NEAR = frozenset({"isolated", "anchored"})  # scopes whose segments do not depend on the row


class SettingHeld(TypedDict):
    """A setting in force: its name, its label in the form, its value, and whether it is not the default."""

    name: str
    label: str
    value: str
    changed: bool


class Held(TypedDict):
    """The prompt and settings that rows start from, unless a row has its own.

    `modules` are all modules of the open prompt and `question` is its text; empty if rows ignore it.
    """

    modules: list[str]
    question: str
    settings: list[SettingHeld]


class Encoded(TypedDict):
    """The tokens that the first `rows` rows encode, because no segment has them yet.

    With the scope anchored they encode `anchored` tokens. `scope` is the scope that encodes more, or "".
    """

    rows: int
    tokens: int
    anchored: int
    scope: str


def held(over: str | None, settings: RunSettings) -> Held:
    """Returns what all rows start from; `over` is the prompt that they change, if any."""
    question = "" if over is None else gist(over)["words"]
    modules = [] if over is None else modules_of(over)
    return {"modules": modules, "question": question, "settings": settings_held(in_force(settings))}


def settings_held(values: Mapping[str, Any]) -> list[SettingHeld]:
    """Returns settings with their labels and units."""
    known = declarations()
    return [
        {
            "name": name,
            "label": known[name].label,
            "value": " ".join(filter(None, (spelled(value), known[name].unit))),
            "changed": value != known[name].default,
        }
        for name, value in values.items()
    ]


def encoded(engine: Engine, prompts: Iterable[tuple[PreparedPrompt, RunSettings]]) -> Encoded:
    """Counts the tokens of segments that rows need and the cache lacks, without computing."""
    until = time.monotonic() + PLANNED_SECONDS
    own: dict[str, int] = {}
    anchored: dict[str, int] = {}
    rows, scope = 0, ""
    for prompt, settings in prompts:
        if time.monotonic() > until:
            break
        with contextlib.suppress(PromptCacheError):  # the row reports it when it runs
            rows += 1
            segments = _segments(prompt, settings)
            own |= segments
            if settings.reuse == "off" and settings.scope not in NEAR:
                scope = settings.scope
                segments = _segments(prompt, replace(settings, scope="anchored"))
            anchored |= segments
    missing = {*own, *anchored} - engine.segment_cache.memory_tier.keys()
    missing -= engine.store.contains(missing)
    tokens, least = (sum(found[key] for key in missing & found.keys()) for found in (own, anchored))
    return {"rows": rows, "tokens": tokens, "anchored": least, "scope": scope if tokens > least else ""}


def _segments(prompt: PreparedPrompt, settings: RunSettings) -> dict[str, int]:
    (submission,) = prompt.submissions(settings)
    return {use.recipe.key: use.recipe.tokens for use in submission.planned.slices if use is not None}
