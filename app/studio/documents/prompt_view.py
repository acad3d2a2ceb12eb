"""What a model reads, as the page shows it: passages with their places in the two documents, in UTF-16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import TypedDict

from app.studio.documents.documents import first_error
from app.studio.web.source_offsets import to_utf16
from engine.base.tiers import Tier
from engine.inference.run_settings import RunSettings
from engine.pml import Diagnostic, PromptError, parse_prompt

if TYPE_CHECKING:
    from engine import Passage, PreparedSchema


Document = Literal["schema", "prompt", ""]


class ReadPassage(TypedDict):
    """Text that one author wrote in one place.

    `tokens` begin in it, the first at position `start`. `cached` and `bytes` are of what it is read from, no
    tier where it is computed each time; that saw so many tokens when it was encoded. `document` and `at` to
    `end` are where it is written. `meets` says what is wrong where it meets the passage before it, and `why`
    says why text of the schema is computed. Offsets in `text`: `borders` where tokens begin, `specials` the
    special tokens.
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
    """The passages of a prompt and their tokens; of texts with an error that error, and no passages."""

    passages: list[ReadPassage] | None
    tokens: int
    fault: str


def reads(schema: PreparedSchema, source: str, prompt: str, settings: RunSettings, *, borders: bool) -> Reads:
    """Returns what a model reads.

    Args:
        schema: the prepared schema.
        source: its text.
        prompt: the prompt's text.
        settings: the settings of the run.
        borders: also where tokens begin.
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
    for one in passages:
        inside = to_utf16(one.text)
        document, at, end = places.of(one)
        shown.append(
            {
                "author": one.author,
                "path": one.path,
                "text": one.text,
                "tokens": one.tokens,
                "start": one.start,
                "cached": one.cached,
                "bytes": one.bytes,
                "sees": one.sees,
                "turn": one.turn,
                "role": one.role,
                "document": document,
                "at": at,
                "end": end,
                "seam": one.seam,
                "meets": one.meets,
                "why": one.why,
                "borders": None if one.borders is None else [inside(border) for border in one.borders],
                "specials": [(inside(start), inside(end)) for start, end in one.specials],
            }
        )
    return {"passages": shown, "tokens": sum(one.tokens for one in passages), "fault": ""}


def nothing(faults: tuple[Diagnostic, ...]) -> Reads:
    """What is shown of texts with errors: the first of them."""
    fault = first_error(faults)
    return {"passages": None, "tokens": 0, "fault": f"{fault.code}: {fault.message}" if fault else ""}


def with_sources(
    pieces: Sequence[dict[str, Any]], passages: Sequence[Passage], source: str, prompt: str
) -> list[dict[str, Any]]:
    """Returns the pieces of a plan, each with the place of the first text in it that a document has.

    Args:
        pieces: by ascending position.
        passages: those of the same plan.
        source: the schema's text.
        prompt: the prompt's text.
    """
    places, written = _Places(source, prompt), [one for one in passages if one.source and one.tokens]
    found, place = [], 0
    for piece in pieces:
        while place < len(written) and written[place].start + written[place].tokens <= piece["start"]:
            place += 1
        inside = place < len(written) and written[place].start < piece["start"] + piece["tokens"]
        document, at, _ = places.of(written[place]) if inside else ("", 0, 0)
        found.append({**piece, "document": document, "at": at})
    return found


class _Places:
    """Places in both documents, in UTF-16."""

    def __init__(self, schema: str, prompt: str) -> None:
        self._wide: dict[str, Callable[[int], int]] = {"schema": to_utf16(schema), "prompt": to_utf16(prompt)}

    def of(self, passage: Passage) -> tuple[Document, int, int]:
        """The document of a passage, and where it begins and ends there."""
        if passage.source is None:
            return "", 0, 0
        wide, span = self._wide[passage.source.document], passage.source.span
        return passage.source.document, wide(span.start), wide(span.end)
