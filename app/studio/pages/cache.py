"""The Cache page: the store as it is, and the same functions as `pml cache`."""

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
ROWS = 100  # segments on a page of the list
MODULES_SHOWN = 300  # in the map of bytes
LATEST = 50  # of what went, of what was missing, and of what would go next
Policy = Literal["lru", "cost"]
Order = Literal["schema", "path", "scope", "model", "tokens", "bytes", "tier", "hits", "last_used"]


@request
class WantedSegments:
    """Segments that have all of the words.

    Attributes:
        schema: of these schemas only, as a row names them; None for any.
        path: of these modules only, likewise.
    """

    words: tuple[Words, ...] = ()
    schema: Words | None = None
    path: Words | None = None


@request
class SegmentPage(WantedSegments):
    """A page of the list.

    Attributes:
        start: how many segments come before it.
    """

    order: Order = "last_used"
    down: Flag = True
    start: Count = 0


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
    """A segment of the store. Times in seconds since 1970; `seconds` is how long computing it took."""

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
    """What segments come to; `seconds` is how long computing them took."""

    segments: int
    bytes: int
    tokens: int
    seconds: float
    pinned: int


class SegmentList(TypedDict):
    """A page of the list, and what all of the list come to."""

    rows: list[SegmentRow]
    all: SegmentSums
    most: int


class SegmentKeys(TypedDict):
    """Keys of segments."""

    keys: list[str]


class Weighed(TypedDict):
    """What segments come to; keys of those that a pin keeps, and the schemas that are pinned."""

    all: SegmentSums
    pinned: list[str]
    schemas: list[str]


class ModuleBytes(TypedDict):
    """A module in the map of bytes; without a path all that are too small to be drawn."""

    schema: str
    path: str | None
    segments: int
    bytes: int


class Missing(TypedDict):
    """A segment that was asked for and not there, why, and when it had gone where that is known."""

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
    """A segment that would go."""

    key: str
    schema: str | None
    path: str | None
    tokens: int
    bytes: int
    seconds: float
    last_used: float


class WouldGo(TypedDict):
    """What would go for some bytes more: all of it, and the first of it in the order of its going.

    `spare` bytes of the budget are free now; `missing` are lacking even when all of it is gone.
    """

    total: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]
    first: Annotated[list[Json], JsonOf(list[NextOut])]
    budget: int
    spare: int
    missing: int
    policy: Policy


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
    """What was removed."""

    removed: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]


class Surplus(TypedDict):
    """What a budget would evict now, and the bytes of what pins keep."""

    surplus: Annotated[Json, JsonOf(named=f"{STORE}:Removed")]
    pinned: int


class Pins(TypedDict):
    """The schemas whose segments stay, and when that ends, in seconds since 1970, where it does."""

    pins: list[str]
    pinned_until: dict[str, float]


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
        """Totals, bytes by module, pins, what went, what was missing, and what does not fit."""
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
        """A page of the segments, each with the tier that it is in."""
        store, held = self._parts.engine.store, self._parts.engine.memory_tier.keys()
        store.finish_writing()
        found = store.listing.page(
            self._wanted(request),
            request.order,
            down=request.down,
            start=request.start,
            limit=ROWS,
            held=held,
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
            for row in found.rows
        ]
        return {"rows": rows, "all": _sums(found.all), "most": ROWS}

    @endpoint
    def cache_keys(self, request: WantedSegments) -> SegmentKeys:
        """The keys of all segments that have the words, on whatever page they are."""
        wanted, held = self._wanted(request), self._parts.engine.memory_tier.keys()
        return {"keys": self._parts.engine.store.listing.keys(wanted, held)}

    @endpoint
    def cache_weigh(self, request: DeleteSegments) -> Weighed:
        """What deleting segments takes away, and which of them somebody has pinned."""
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
        """What the budget would evict for so many bytes more, in its order; nothing is removed."""
        found = self._parts.engine.store.next_out(int(request.bytes), LATEST)
        return {
            "total": found.total.to_json(),
            "first": list(found.first),
            "budget": found.budget,
            "spare": found.spare,
            "missing": found.missing,
            "policy": found.policy,
        }

    @staticmethod
    def _wanted(request: WantedSegments) -> Wanted:
        from engine.store.index.listing import Wanted

        return Wanted(request.words, request.schema, request.path)

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
        return {"pins": store.settings.pins(), "pinned_until": store.settings.pinned_until()}

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
        "meaning": known.meaning if known is not None else "The store does not know why",
        "gone_at": row["gone_at"],
    }
