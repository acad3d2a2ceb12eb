"""The model's input as the page shows it: passages with UTF-16 places in both documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from app.studio.documents.documents import first_error
from app.studio.web.json_answers import Json, JsonOf
from app.studio.web.source_offsets import to_utf16
from engine.base.tiers import TIERS, Tier
from engine.inference.run_settings import RunSettings
from engine.pml import Diagnostic, PromptError, parse_prompt

if TYPE_CHECKING:
    from engine import Passage, PreparedSchema


Document = Literal["schema", "prompt", ""]


class Piece(TypedDict):
    """A part of the prompt along its positions; `document` and `at` locate its start.

    `why` explains why schema text is computed; it is empty otherwise.
    """

    kind: Literal["anonymous", "module", "argument", "text"]
    path: str
    start: int
    tokens: int
    cached: Tier
    bytes: int
    label: str
    why: str
    document: Document
    at: int


class Strip(TypedDict):
    """The prompt along its positions."""

    pieces: Annotated[list[Json], JsonOf(list[Piece])]
    total: int
    cached: int
    new: int


class ReadPassage(TypedDict):
    """Text from one place in a document.

    `tokens` begin in it, the first at position `start`. `cached` and `bytes` describe its segment; the tier
    is none if it is computed each time. `document`, `at` and `end` locate the source. `meets` is a warning
    about the join with the previous passage. `why` explains why schema text is computed. `borders` are token
    starts in `text`, `specials` its special tokens.
    """

    author: Literal["template", "anonymous", "module", "argument", "text"]
    path: str
    text: str
    tokens: int
    start: int
    cached: Tier | None
    bytes: int
    sees: int
    turn: int | None
    role: str
    document: Document
    at: int
    end: int
    seam: bool
    meets: str
    why: str
    borders: list[int] | None
    specials: list[tuple[int, int]]


class Reads(TypedDict):
    """The passages of a prompt and their tokens; no passages but the error if a document has one."""

    passages: list[ReadPassage] | None
    tokens: int
    fault: str


def reads(schema: PreparedSchema, source: str, prompt: str, settings: RunSettings, *, borders: bool) -> Reads:
    """Returns the model's input.

    Args:
        schema: the prepared schema.
        source: its text.
        prompt: the prompt's text.
        settings: the settings of the run.
        borders: whether to include token boundaries.
    """
    parsed = parse_prompt(prompt)
    if parsed.tree is None or not parsed.ok:
        return nothing(parsed.diagnostics)
    try:
        prepared = schema.prompt(parsed.tree)
        fault = first_error(prepared.check(scope=settings.scope, placement=settings.placement))
        if fault is not None:
            return nothing((fault,))
        passages = prepared.passages(settings, borders=borders)
    except PromptError as error:
        return nothing(error.diagnostics)
    places = _Places(source, prompt)
    shown: list[ReadPassage] = []
    for part in passages:
        inside = to_utf16(part.text)
        document, at, end = places.of(part)
        shown.append(
            {
                "author": part.author,
                "path": part.path,
                "text": part.text,
                "tokens": part.tokens,
                "start": part.start,
                "cached": part.cached,
                "bytes": part.bytes,
                "sees": part.sees,
                "turn": part.turn,
                "role": part.role,
                "document": document,
                "at": at,
                "end": end,
                "seam": part.seam,
                "meets": part.meets,
                "why": part.why,
                "borders": None if part.borders is None else [inside(border) for border in part.borders],
                "specials": [(inside(start), inside(end)) for start, end in part.specials],
            }
        )
    return {"passages": shown, "tokens": sum(part.tokens for part in passages), "fault": ""}


def nothing(faults: tuple[Diagnostic, ...]) -> Reads:
    """Returns the first error of documents with errors."""
    fault = first_error(faults)
    return {"passages": None, "tokens": 0, "fault": f"{fault.code}: {fault.message}" if fault else ""}


def with_sources(
    pieces: Sequence[dict[str, Any]], passages: Sequence[Passage], source: str, prompt: str
) -> list[dict[str, Any]]:
    """Returns the pieces of a plan with the place of their first text in a document.

    Args:
        pieces: by ascending position.
        passages: the passages of the same plan.
        source: the schema's text.
        prompt: the prompt's text.
    """
    places, written = _Places(source, prompt), [part for part in passages if part.source and part.tokens]
    located, place = [], 0
    for piece in pieces:
        while place < len(written) and written[place].start + written[place].tokens <= piece["start"]:
            place += 1
        inside = place < len(written) and written[place].start < piece["start"] + piece["tokens"]
        document, at, _ = places.of(written[place]) if inside else ("", 0, 0)
        located.append({**piece, "document": document, "at": at})
    return located


class _Places:
    def __init__(self, schema: str, prompt: str) -> None:
        self._wide: dict[str, Callable[[int], int]] = {"schema": to_utf16(schema), "prompt": to_utf16(prompt)}

    def of(self, passage: Passage) -> tuple[Document, int, int]:
        """Returns a passage's document, start and end."""
        if passage.source is None:
            return "", 0, 0
        wide, span = self._wide[passage.source.document], passage.source.span
        return passage.source.document, wide(span.start), wide(span.end)


def read_tiers(strip: Strip | None) -> dict[str, Tier]:
    """Returns the slowest tier of each module's segments that a prompt reads, by path."""
    found: dict[str, list[Tier]] = {}
    for piece in strip["pieces"] if strip is not None else ():
        if piece["kind"] == "module" and piece["bytes"]:
            found.setdefault(piece["path"], []).append(piece["cached"])
    return {path: min(tiers, key=TIERS.index) for path, tiers in found.items()}


def measured(
    schema: PreparedSchema, source: str, prompt: str, settings: RunSettings
) -> tuple[tuple[Diagnostic, ...], Strip | None]:
    """Returns diagnostics that need a tokenizer, and the prompt by position if there are no errors."""
    parsed = parse_prompt(prompt)
    if parsed.tree is None or not parsed.ok:
        return (), None
    try:
        prepared = schema.prompt(parsed.tree)
        faults = prepared.check(scope=settings.scope, placement=settings.placement)
        if first_error(faults) is not None:
            return faults, None
        plan, passages = prepared.plan(settings), prepared.passages(settings)
    except PromptError as error:
        return error.diagnostics, None
    return faults, {
        "pieces": with_sources(plan.strip(), passages, source, prompt),
        "total": plan.total_tokens,
        "cached": plan.cached_tokens,
        "new": plan.new_tokens,
    }
