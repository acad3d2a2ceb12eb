"""What the page gets. The objects are as they are sent; types of the engine stand for their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from app.studio.drafts import Workspace
from app.studio.folder import Encoding, Stamp
from engine.cache.store import Verified
from engine.choices import TimelinePart
from engine.inference.findings import Fidelity
from engine.inference.settings import Kind
from engine.tiers import Tier

Json = dict[str, Any]
Side = Literal["cached", "uncached"]
State = Literal["waiting", "working", "streaming", "done", "stopped", "not run", "failed"]


@dataclass(frozen=True)
class JsonOf:
    """Says of an object which type it spells in JSON, to whoever checks it.

    Attributes:
        type: the type.
    """

    type: Any

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Has pydantic read the object as that type."""
        return handler(self.type)


Mark = TypedDict(
    "Mark",
    {
        "code": str,
        "severity": Literal["error", "warning", "info"],
        "message": str,
        "fix": str,
        "from": int,
        "to": int,
        "line": int,
        "column": int,
    },
)


class Parameter(TypedDict):
    """A blank of a module."""

    name: str
    length: int
    default: str


class TreeRow(TypedDict):
    """One row of the module tree; a union has no more than its depth."""

    kind: Literal["module", "union"]
    depth: int
    name: NotRequired[str]
    path: NotRequired[str]
    preview: NotRequired[str]
    params: NotRequired[list[Parameter]]


class Word(TypedDict):
    """An element that can be completed."""

    name: str
    kind: str
    detail: str
    info: NotRequired[str]
    parents: NotRequired[list[str]]
    empty: NotRequired[bool]


class Attribute(TypedDict):
    """An attribute that can be completed."""

    name: str
    detail: str


class EditorWords(TypedDict):
    """What one editor can complete and explain."""

    elements: list[Word]
    attributes: dict[str, list[Attribute]]
    help: dict[str, str]


class WordsOfBoth(TypedDict):
    """What both editors can complete and explain."""

    schema: EditorWords
    prompt: EditorWords


class Picks(TypedDict):
    """What a prompt has picked: paths, and arguments by path and name."""

    paths: list[str]
    arguments: dict[str, dict[str, str]]


class Basis(TypedDict):
    """The schema that the prompt was checked against; its tree where the page does not know it."""

    digest: str
    stale: bool
    tree: NotRequired[list[TreeRow]]
    words: NotRequired[WordsOfBoth]


class CheckedSchema(TypedDict):
    """Marks of the schema; its name, "" where it has none."""

    diagnostics: list[Mark]
    name: str
    ok: bool
    modules: int


class CheckedPrompt(TypedDict):
    """Marks of the prompt; the name of the schema that it is written for."""

    diagnostics: list[Mark]
    name: str


class CheckedTexts(TypedDict):
    """One look at both documents."""

    schema: CheckedSchema
    prompt: CheckedPrompt
    basis: Basis
    picks: Picks


class ModuleSize(TypedDict):
    """Tokens of a module, its own and all it holds; bytes of its keys and values, and where they are."""

    tokens: int
    total: int
    bytes: int
    cached: Tier


class Piece(TypedDict):
    """A part of the prompt along its positions."""

    kind: Literal["anonymous", "module", "argument", "text"]
    path: str
    start: int
    tokens: int
    cached: Tier
    bytes: int
    label: str


class Strip(TypedDict):
    """The prompt along its positions."""

    pieces: Annotated[list[Json], JsonOf(list[Piece])]
    total: int
    cached: int
    new: int


class MarksOfBoth(TypedDict):
    """Marks of both documents."""

    schema: list[Mark]
    prompt: list[Mark]


class Measured(TypedDict):
    """Sizes by module path, and what only a tokenizer can see."""

    sizes: dict[str, ModuleSize]
    positions: NotRequired[int]
    strip: Strip | None
    diagnostics: MarksOfBoth


class Prompted(TypedDict):
    """A prompt after an edit."""

    prompt: str


class Written(TypedDict):
    """A text after an edit."""

    text: str


class Exported(TypedDict):
    """A document in another form."""

    text: str
    filename: str
    media_type: str
    notes: list[str]


class Counted(TypedDict):
    """A number of tokens."""

    tokens: int


class ModelFacts(TypedDict):
    """The loaded model in a few words."""

    about: str
    name: str
    family: str
    device: str
    dtype: str
    context_length: int
    bytes_per_token: int
    summary: str


class SampleTitle(TypedDict):
    """A sample of the File menu."""

    name: str
    title: str


class SettingForm(TypedDict):
    """A setting as `engine.inference.settings.Setting.describe` tells it."""

    name: str
    kind: Kind
    label: str
    sentence: str
    default: Any
    range: str
    unit: NotRequired[str]
    least: NotRequired[float]
    most: NotRequired[float]
    above: NotRequired[bool]
    choices: NotRequired[dict[str, str]]
    pattern: NotRequired[str]
    examples: NotRequired[list[str]]


class TierWords(TypedDict):
    """A tier in a word or two, and in a sentence."""

    name: Tier
    label: str
    meaning: str


class Start(TypedDict):
    """Everything a page needs to start."""

    workspace: Annotated[Json, JsonOf(Workspace)]
    model: ModelFacts
    samples: list[SampleTitle]
    folder: bool
    files: list[str]
    settings: Annotated[list[Json], JsonOf(list[SettingForm])]
    tiers: Annotated[list[dict[str, str]], JsonOf(list[TierWords])]
    timeline_parts: dict[TimelinePart, str]
    runs: list[RunFrame]


class Opened(TypedDict):
    """The workspace that is open now; or what to ask about a file in another encoding."""

    workspace: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    kind: NotRequired[Literal["schema", "prompt"]]
    encoding: NotRequired[Encoding]
    message: NotRequired[str]


class DraftSaved(TypedDict):
    """The revision that was kept and when; or the draft of another tab that was faster."""

    revision: NotRequired[int]
    saved: NotRequired[str]
    conflict: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    message: NotRequired[str]


class Files(TypedDict):
    """Names of the documents in the user's folder."""

    files: list[str]


class FileSaved(TypedDict):
    """The name of the file that was written; or why it was not, and what to ask."""

    saved: NotRequired[str]
    origin: NotRequired[str]
    stamp: NotRequired[Annotated[Json, JsonOf(Stamp)]]
    files: NotRequired[list[str]]
    refused: NotRequired[Literal["elsewhere", "unknown", "gone", "changed"]]
    message: NotRequired[str]


class Shelved(TypedDict):
    """The key among the earlier workspaces; none where the texts are the open ones."""

    key: NotRequired[str]


class KeptWorkspace(TypedDict):
    """An earlier workspace: the beginnings of its texts."""

    key: str
    name: str
    saved: str
    schema: str
    prompt: str


class Shelf(TypedDict):
    """Earlier workspaces, latest first."""

    shelf: list[KeptWorkspace]


class SideFrame(TypedDict):
    """One side of a run, so far. Times in milliseconds."""

    state: State
    working: str
    done: int
    total: int
    text: str
    ttft_ms: float | None
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    tokens_per_second: float | None
    samples_ms: list[float]
    ended: str


class Sides(TypedDict):
    """Both sides."""

    cached: SideFrame
    uncached: SideFrame


class Compared(TypedDict):
    """The cached answer beside the uncached one, as far as it is known."""

    ttft_speedup: NotRequired[float]
    first_token_agrees: NotRequired[bool]
    kl_first_token: NotRequired[float]
    same_text: NotRequired[bool]


class Difference(TypedDict):
    """Both texts cut into runs of words, each with whether it differs; how many words do."""

    cached: list[tuple[str, bool]]
    uncached: list[tuple[str, bool]]
    differing: int


class RunFrame(TypedDict):
    """A run, so far."""

    number: int
    schema: str
    started: str
    scope: str
    repair: str
    placement: str
    order: list[Side]
    repeats: int
    repeat: int
    state: State
    message: str
    warnings: list[str]
    sides: Sides
    comparison: Compared
    difference: Difference | None


class OldRun(TypedDict):
    """An earlier run of this session."""

    run: RunFrame


class JobState(TypedDict):
    """How far a piece of long work is, what has come of it, and what went wrong in words."""

    key: str
    what: str
    done: int
    total: int
    over: bool
    fault: str
    result: Annotated[Any, JsonOf(RunFrame | Fidelity | Verified | None)]


class Done(TypedDict):
    """It was done."""
