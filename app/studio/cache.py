"""What the Cache page asks of the server: the store as it is, and the same functions as `pml cache`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from app.studio.jobs import Job
from app.studio.requests import Json, endpoint, number_of, text_of
from engine import Engine
from engine.cache.store import Removed, Verified
from engine.errors import PromptCacheError
from engine.tiers import Tier

SHOWN = 2000  # segments that the page lists
EVICTIONS_SHOWN = 50


class CachePage:
    """The server side of the Cache page.

    Args:
        engine: the engine whose store is shown.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._job: Job | None = None
        self._lock = threading.Lock()

    def endpoints(self) -> list[Callable[[Any], Response]]:
        """The questions the page may ask, as functions for the page's JavaScript."""
        methods = (
            *(self.cache_state, self.cache_delete, self.cache_pin, self.cache_prune),
            *(self.cache_budget, self.cache_verify, self.cache_verified, self.cache_stop),
        )
        return [endpoint(method) for method in methods]

    def cache_state(self, _request: Json) -> Json:
        """Segments with the tier that each is in, totals, pins, and what was evicted."""
        store, memory_tier = self._engine.store, self._engine.memory_tier
        rows = store.segments()
        for row in rows:
            row["tier"] = Tier.MEMORY if row["key"] in memory_tier else Tier.DISK
        return {
            "segments": rows[:SHOWN],
            "left_out": max(0, len(rows) - SHOWN),
            "stats": store.stats().to_json(),
            "memory": {"bytes": memory_tier.bytes, "budget": memory_tier.budget},
            "pins": store.pins(),
            "evictions": store.evictions(EVICTIONS_SHOWN),
            "folder": str(store.folder),
        }

    def cache_delete(self, request: Json) -> Json:
        """Deletes segments, pinned ones too; a prompt that needs them computes them again."""
        keys = request.get("keys")
        wanted = [str(key) for key in keys] if isinstance(keys, list) else []
        removed = self._engine.store.remove(wanted)
        self._engine.memory_tier.drop(wanted)
        return {"removed": removed.to_json()}

    def cache_pin(self, request: Json) -> Json:
        """Pin the segments of a schema, or take the pin away."""
        schema, store = text_of(request, "schema"), self._engine.store
        if not schema:
            raise PromptCacheError("Name the schema whose segments should stay.")
        if request.get("pinned"):
            store.pin(schema)
        else:
            store.unpin(schema)
        return {"pins": store.pins()}

    def cache_prune(self, request: Json) -> Json:
        """Evicts down to a size in bytes."""
        most = number_of(request, "max_bytes", -1)
        if most < 0:
            raise PromptCacheError("A size to prune to is 0 or more, for example 2 GB.")
        return self._removed(self._engine.store.prune(max_bytes=int(most)))

    def cache_budget(self, request: Json) -> Json:
        """Set the most that the store may take, for good."""
        most = number_of(request, "budget", -1)
        if most < 0:
            raise PromptCacheError("A budget is 0 bytes or more, for example 20 GB.")
        return self._removed(self._engine.store.set_budget(int(most)))

    def _removed(self, removed: Removed) -> Json:
        """What was evicted from the disk goes from memory too, so that it is stored again when it is used."""
        held = self._engine.memory_tier.keys()
        self._engine.memory_tier.drop(held - self._engine.store.contains(held))
        return {"removed": removed.to_json()}

    def cache_verify(self, request: Json) -> Json:
        """Begins to read every file and compare it with the index; one at a time."""
        store, repair = self._engine.store, bool(request.get("repair"))

        def verify(job: Job) -> Verified:
            return store.verify(repair=repair, progress=job.progress)

        with self._lock:
            if self._job is None or self._job.over:
                self._job = Job(verify, "verify")
        return self.cache_verified({})

    def cache_verified(self, _request: Json) -> Json:
        """How far the verification is, or what it found."""
        if self._job is None:
            raise PromptCacheError("Nothing is being verified. Press Verify.")
        return self._job.state()

    def cache_stop(self, _request: Json) -> Json:
        """Stops the verification at the next file."""
        if self._job is not None:
            self._job.stop()
        return {}
