"""The Cache page: the store as it is, and the same functions as `pml cache`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import TypedDict

from app.studio.answers import JobState, Json, JsonOf
from app.studio.endpoints import endpoint
from app.studio.jobs import Job
from app.studio.pages.page import Page
from app.studio.parts import Parts
from app.studio.requests import Flag, Nothing, Size, Words, request
from engine.errors import PromptCacheError

if TYPE_CHECKING:
    from engine.cache.store import Removed, Verified

STORE = "engine.cache.store"
SHOWN = 2000  # segments that the page lists
EVICTIONS_SHOWN = 50


@request
class DeleteSegments:
    """Segments by their keys."""

    keys: tuple[Words, ...]


@request
class PinSchema:
    """A schema whose segments stay, or need not stay any more."""

    schema: Words
    pinned: Flag


@request
class StoreSize:
    """A size in bytes."""

    bytes: Size


@request
class VerifyStore:
    """Whether what is damaged is set right.

    Attributes:
        key: key of the work that begins, or of what goes on already.
    """

    key: Words
    repair: Flag = False


class SegmentRow(TypedDict):
    """A segment of the store. Times in seconds since 1970."""

    key: str
    schema: str | None
    path: str | None
    tokens: int
    bytes: int
    scope: str
    model: str
    hits: int
    last_used: float
    pinned: bool
    tier: Literal["disk", "memory"]


class MemoryUse(TypedDict):
    """Bytes in memory, and the most of them."""

    bytes: int
    budget: int


class Eviction(TypedDict):
    """A segment that went, and why."""

    at: float
    key: str
    schema: str | None
    path: str | None
    bytes: int
    reason: str


class StoreState(TypedDict):
    """The store as it is."""

    segments: Annotated[list[Json], JsonOf(list[SegmentRow])]
    left_out: int
    stats: Annotated[Json, JsonOf(named=f"{STORE}:StoreStats")]
    memory: MemoryUse
    pins: list[str]
    evictions: Annotated[list[Json], JsonOf(list[Eviction])]
    warnings: list[str]
    folder: str


class Gone(TypedDict):
    """What was removed."""

    removed: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]


class Surplus(TypedDict):
    """What a budget would evict now, and the bytes of what pins keep."""

    surplus: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]
    pinned: int


class Pins(TypedDict):
    """The schemas whose segments stay."""

    pins: list[str]


class CachePage(Page):
    """The server side of the Cache page."""

    name, title = "cache", "Cache"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._jobs = parts, parts.jobs
        self._verifying: Job | None = None
        self._repairing = False  # whether that sets right what is damaged
        self._lock = threading.Lock()

    @endpoint
    def cache_state(self, _request: Nothing) -> StoreState:
        """Segments with the tier that each is in, totals, pins, what was evicted, and what does not fit."""
        store, memory_tier = self._parts.engine.store, self._parts.engine.memory_tier
        rows = store.segments()
        for row in rows:
            row["tier"] = "memory" if row["key"] in memory_tier else "disk"
        return {
            "segments": rows[:SHOWN],
            "left_out": max(0, len(rows) - SHOWN),
            "stats": store.stats().to_json(),
            "memory": {"bytes": memory_tier.bytes, "budget": memory_tier.budget},
            "pins": store.settings.pins(),
            "evictions": store.evictions(EVICTIONS_SHOWN),
            "warnings": list(store.settings.warnings),
            "folder": str(store.folder),
        }

    @endpoint
    def cache_delete(self, request: DeleteSegments) -> Gone:
        """Deletes segments, pinned ones too; a prompt that needs them computes them again."""
        removed = self._parts.engine.store.remove(request.keys)
        self._parts.engine.memory_tier.drop(request.keys)
        return {"removed": removed.to_json()}

    @endpoint
    def cache_pin(self, request: PinSchema) -> Pins:
        """Pins the segments of a schema, or takes the pin away."""
        store = self._parts.engine.store
        if not request.schema:
            raise PromptCacheError("Name the schema whose segments should stay.")
        if request.pinned:
            store.finish_writing()  # what the latest answer uses is written down behind it
            store.settings.pin(request.schema)
        else:
            store.settings.unpin(request.schema)
        return {"pins": store.settings.pins()}

    @endpoint
    def cache_prune(self, request: StoreSize) -> Gone:
        """Evicts down to a size."""
        return self._gone(self._parts.engine.store.prune(max_bytes=int(request.bytes)))

    @endpoint
    def cache_surplus(self, request: StoreSize) -> Surplus:
        """What a budget of this size would evict; nothing is removed."""
        store = self._parts.engine.store
        removed = store.surplus(int(request.bytes))
        return {"surplus": removed.to_json(), "pinned": store.settings.pinned_bytes}

    @endpoint
    def cache_budget(self, request: StoreSize) -> Gone:
        """Sets the most that the store may take, for good."""
        return self._gone(self._parts.engine.store.set_budget(int(request.bytes)))

    def _gone(self, removed: Removed) -> Gone:
        """What was evicted from the disk goes from memory too, so that it is stored again when it is used."""
        held = self._parts.engine.memory_tier.keys()
        self._parts.engine.memory_tier.drop(held - self._parts.engine.store.contains(held))
        return {"removed": removed.to_json()}

    @endpoint
    def cache_verify(
        self, request: VerifyStore
    ) -> JobState[Annotated[Json, JsonOf(named=f"{STORE}:Verified")]]:
        """Begins to read every file and compare it with the index, or joins who does so already."""
        store, repair = self._parts.engine.store, request.repair

        def verify(job: Job) -> Verified:
            return store.verify(repair=repair, progress=job.progress)

        with self._lock:
            if self._verifying is None or self._verifying.over:
                self._verifying = self._jobs.start(Job(request.key, verify, "verify"))
                self._repairing = repair
            elif repair and not self._repairing:
                raise PromptCacheError(
                    "The cache is being verified, without repair. Wait for its end, or stop it; then repair."
                )
            else:
                self._jobs.join(request.key, self._verifying)
            return {**self._verifying.state(), "key": request.key}
