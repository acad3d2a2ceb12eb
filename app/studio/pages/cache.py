"""The Cache page: the store's state, and the functions of `pml cache`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from app.studio.documents.requests import Count, Flag, Nothing, Size, Words, request
from app.studio.pages.page import Page
from app.studio.web.endpoints import endpoint
from app.studio.web.jobs import Job
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.base.tiers import Reason, Tier

if TYPE_CHECKING:
    from engine.store import Removed, Verified
    from engine.store.index.listing import Sums, Wanted

STORE = "engine.store"
ROWS = 100  # segments per page of the list
MODULES_SHOWN = 300  # in the map of bytes
LATEST = 50  # evictions, misses and next evictions to list
Policy = Literal["lru", "cost"]
Order = Literal["schema", "path", "scope", "model", "tokens", "bytes", "tier", "hits", "last_used"]


@request
class WantedSegments:
    """Segments that match all words.

    Attributes:
        schema: only segments of this schema; None for any.
        path: only segments of this module; None for any.
    """

    words: tuple[Words, ...] = ()
    schema: Words | None = None
    path: Words | None = None


@request
class SegmentPage(WantedSegments):
    """A page of the list.

    Attributes:
        start: the number of segments before it.
    """

    order: Order = "last_used"
    down: Flag = True
    start: Count = 0


@request
class DeleteSegments:
    """Keys of segments."""

    keys: tuple[Words, ...]


@request
class PinSchema:
    """A schema to pin or unpin."""

    schema: Words
    pinned: Flag


@request
class StoreSize:
    """A size in bytes."""

    bytes: Size


@request
class VerifyStore:
    """A verification, with or without repair.

    Attributes:
        key: the key of the new or running job.
    """

    key: Words
    repair: Flag = False


class SegmentRow(TypedDict):
    """A segment of the store. Times in seconds since 1970; `seconds` is its computing time."""

    key: str
    schema: str
    path: str
    tokens: int
    bytes: int
    scope: str
    model: str
    hits: int
    seconds: float
    last_used: float
    pinned: bool
    tier: Tier


class SegmentSums(TypedDict):
    """Totals of segments; `seconds` is their computing time."""

    segments: int
    bytes: int
    tokens: int
    seconds: float
    pinned: int


class SegmentList(TypedDict):
    """A page of the list, and the totals of the whole list."""

    rows: list[SegmentRow]
    all: SegmentSums
    most: int


class SegmentKeys(TypedDict):
    """Keys of segments."""

    keys: list[str]


class Weighed(TypedDict):
    """Totals of segments, the keys of pinned ones, and the pinned schemas."""

    all: SegmentSums
    pinned: list[str]
    schemas: list[str]


class ModuleBytes(TypedDict):
    """A module in the map of bytes; without path, all modules that are too small to draw."""

    schema: str
    path: str | None
    segments: int
    bytes: int


class Missing(TypedDict):
    """A missing segment, the reason, and the time of its eviction if known."""

    at: float
    key: str
    schema: str
    path: str
    bytes: int
    ms: float
    reason: str
    meaning: str
    gone_at: float | None


class NextOut(TypedDict):
    """A segment that would be evicted."""

    key: str
    schema: str | None
    path: str | None
    tokens: int
    bytes: int
    seconds: float
    last_used: float


class WouldGo(TypedDict):
    """Evictions for a given number of further bytes: totals, and the first of them in order.

    `spare` bytes of the budget are free; `missing` bytes lack even after all evictions.
    """

    total: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]
    first: Annotated[list[Json], JsonOf(list[NextOut])]
    budget: int
    spare: int
    missing: int
    policy: Policy


class MemoryUse(TypedDict):
    """Bytes in memory, and the maximum."""

    bytes: int
    budget: int


class Eviction(TypedDict):
    """An evicted segment, and the reason."""

    at: float
    key: str
    schema: str | None
    path: str | None
    bytes: int
    reason: str


class StoreState(TypedDict):
    """The store's state."""

    modules: Annotated[list[Json], JsonOf(list[ModuleBytes])]
    schemas: list[str]
    stats: Annotated[Json, JsonOf(named=f"{STORE}:StoreStats")]
    memory: MemoryUse
    pins: list[str]
    pinned_until: dict[str, float]
    evictions: Annotated[list[Json], JsonOf(list[Eviction])]
    misses: list[Missing]
    warnings: list[str]
    folder: str


class Gone(TypedDict):
    """Removed segments."""

    removed: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]


class Surplus(TypedDict):
    """What a budget would evict now, and the bytes of pinned segments."""

    surplus: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]
    pinned: int


class Pins(TypedDict):
    """The pinned schemas, and the end of each pin in seconds since 1970, if any."""

    pins: list[str]
    pinned_until: dict[str, float]


class CachePage(Page):
    """The server side of the Cache page."""

    name, title = "cache", "Cache"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._jobs = parts, parts.jobs
        self._verifying: Job | None = None
        self._repairing = False  # whether the running verification repairs
        self._lock = threading.Lock()

    @endpoint
    def cache_state(self, _request: Nothing) -> StoreState:
        """Returns totals, bytes by module, pins, evictions, misses, and segments that do not fit."""
        engine = self._parts.engine
        store, memory_tier = engine.store, engine.memory_tier
        engine.segment_cache.count_answers()
        stats, modules = store.stats(), store.listing.modules(MODULES_SHOWN)
        schemas = {name for row in modules for name in row["schema"].split(",") if name}
        return {
            "modules": modules,
            "schemas": sorted(schemas | set(store.settings.pins())),
            "stats": stats.to_json(),
            "memory": {"bytes": memory_tier.bytes, "budget": memory_tier.budget},
            "pins": store.settings.pins(),
            "pinned_until": store.settings.pinned_until(),
            "evictions": store.evictions(LATEST),
            "misses": [_missing(row) for row in store.misses(LATEST)],
            "warnings": list(store.settings.warnings),
            "folder": str(store.folder),
        }

    @endpoint
    def cache_list(self, request: SegmentPage) -> SegmentList:
        """Returns a page of segments with their tiers."""
        store, in_memory = self._parts.engine.store, self._parts.engine.memory_tier.keys()
        store.finish_writing()
        page = store.listing.page(
            self._wanted(request),
            request.order,
            down=request.down,
            start=request.start,
            limit=ROWS,
            held=in_memory,
        )
        rows: list[SegmentRow] = [
            {
                "key": row.key,
                "schema": row.schema,
                "path": row.path,
                "tokens": row.tokens,
                "bytes": row.bytes,
                "scope": row.scope,
                "model": row.model,
                "hits": row.hits,
                "seconds": row.seconds,
                "last_used": row.last_used,
                "pinned": row.pinned,
                "tier": row.tier,
            }
            for row in page.rows
        ]
        return {"rows": rows, "all": _sums(page.all), "most": ROWS}

    @endpoint
    def cache_keys(self, request: WantedSegments) -> SegmentKeys:
        """Returns the keys of all segments that match, on every page."""
        query, in_memory = self._wanted(request), self._parts.engine.memory_tier.keys()
        return {"keys": self._parts.engine.store.listing.keys(query, in_memory)}

    @endpoint
    def cache_weigh(self, request: DeleteSegments) -> Weighed:
        """Returns the totals of segments to delete, and the pinned ones among them."""
        from engine.store.index.listing import Sums

        store = self._parts.engine.store
        rows, pins = store.listing.chosen(request.keys), set(store.settings.pins())
        pinned = [row for row in rows if row.pinned]
        schemas = {name for row in pinned for name in row.schema.split(",")} & pins
        return {
            "all": _sums(Sums.of(rows)),
            "pinned": [row.key for row in pinned],
            "schemas": sorted(schemas),
        }

    @endpoint
    def cache_next(self, request: StoreSize) -> WouldGo:
        """Returns what the budget would evict for further bytes, in order; removes nothing."""
        next_out = self._parts.engine.store.next_out(int(request.bytes), LATEST)
        return {
            "total": next_out.total.to_json(),
            "first": list(next_out.first),
            "budget": next_out.budget,
            "spare": next_out.spare,
            "missing": next_out.missing,
            "policy": next_out.policy,
        }

    @staticmethod
    def _wanted(request: WantedSegments) -> Wanted:
        from engine.store.index.listing import Wanted

        return Wanted(request.words, request.schema, request.path)

    @endpoint
    def cache_delete(self, request: DeleteSegments) -> Gone:
        """Deletes segments, including pinned ones; prompts recompute them."""
        removed = self._parts.engine.store.remove(request.keys)
        self._parts.engine.memory_tier.drop(request.keys)
        return {"removed": removed.to_json()}

    @endpoint
    def cache_pin(self, request: PinSchema) -> Pins:
        """Pins or unpins the segments of a schema."""
        store = self._parts.engine.store
        if not request.schema:
            raise PromptCacheError("Name the schema to pin.")
        if request.pinned:
            store.finish_writing()  # segments of the latest answer are written after it
            store.settings.pin(request.schema)
        else:
            store.settings.unpin(request.schema)
        return {"pins": store.settings.pins(), "pinned_until": store.settings.pinned_until()}

    @endpoint
    def cache_prune(self, request: StoreSize) -> Gone:
        """Evicts down to a size."""
        return self._gone(self._parts.engine.store.prune(max_bytes=int(request.bytes)))

    @endpoint
    def cache_surplus(self, request: StoreSize) -> Surplus:
        """Returns what a budget of this size would evict; removes nothing."""
        store = self._parts.engine.store
        removed = store.surplus(int(request.bytes))
        return {"surplus": removed.to_json(), "pinned": store.settings.pinned_bytes}

    @endpoint
    def cache_budget(self, request: StoreSize) -> Gone:
        """Sets the store's budget permanently."""
        return self._gone(self._parts.engine.store.set_budget(int(request.bytes)))

    def _gone(self, removed: Removed) -> Gone:
        """Removes segments evicted from disk from memory too, so that the next use stores them again."""
        in_memory = self._parts.engine.memory_tier.keys()
        self._parts.engine.memory_tier.drop(in_memory - self._parts.engine.store.contains(in_memory))
        return {"removed": removed.to_json()}

    @endpoint
    def cache_verify(
        self, request: VerifyStore
    ) -> JobState[Annotated[Json, JsonOf(named=f"{STORE}:Verified")]]:
        """Starts to compare every file with the index, or joins a running verification."""
        store, repair = self._parts.engine.store, request.repair

        def verify(job: Job) -> Verified:
            return store.verify(repair=repair, progress=job.progress)

        with self._lock:
            if self._verifying is None or self._verifying.over:
                self._verifying = self._jobs.start(Job(request.key, verify, "verify"))
                self._repairing = repair
            elif repair and not self._repairing:
                raise PromptCacheError(
                    "A verification without repair is running. Wait for its end, or stop it; then repair."
                )
            else:
                self._jobs.join(request.key, self._verifying)
            return {**self._verifying.state(), "key": request.key}


def _sums(sums: Sums) -> SegmentSums:
    return {
        "segments": sums.segments,
        "bytes": sums.bytes,
        "tokens": sums.tokens,
        "seconds": sums.seconds,
        "pinned": sums.pinned,
    }


def _missing(row: dict[str, Any]) -> Missing:
    known = next((reason for reason in Reason if reason.value == row["reason"]), None)
    return {
        "at": row["at"],
        "key": row["key"],
        "schema": row["schema"],
        "path": row["path"],
        "bytes": row["bytes"],
        "ms": row["ms"],
        "reason": row["reason"],
        "meaning": known.meaning if known is not None else "Unknown reason",
        "gone_at": row["gone_at"],
    }
