"""The segment store: a SQLite index and one safetensors file per segment; bounded, verified, shared.

The rest of the engine uses `Store`. It composes the index (`index/`), the files (`blobs/`), and modules that
need both: `reading`, `writing`, `removal`, `audit` with `rebuild`, and `export_import`.

Names are loaded when they are first used, so that importing this package does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.audit import Verified
    from engine.store.blobs.claim import INDEX, default_folder
    from engine.store.blobs.codec import SCHEMES, Scheme
    from engine.store.blobs.segment_files import VERIFY, Verify
    from engine.store.index.catalog import Fault
    from engine.store.index.eviction import Policy, Removed
    from engine.store.index.reasons import Sought
    from engine.store.index.stats import Lookup, Origin, StoreStats
    from engine.store.index.ttl import Keep
    from engine.store.reading import pack_ids
    from engine.store.store import Store
    from engine.store.tar_archive import Moved

_HOMES = {
    "audit": ("Verified",),
    "index.catalog": ("Fault",),
    "blobs.claim": ("INDEX", "default_folder"),
    "blobs.codec": ("SCHEMES", "Scheme"),
    "index.eviction": ("Policy", "Removed"),
    "blobs.segment_files": ("VERIFY", "Verify"),
    "index.ttl": ("Keep",),
    "index.stats": ("Lookup", "Origin", "StoreStats"),
    "reading": ("pack_ids",),
    "index.reasons": ("Sought",),
    "store": ("Store",),
    "tar_archive": ("Moved",),
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "INDEX",
    "SCHEMES",
    "VERIFY",
    "Fault",
    "Keep",
    "Lookup",
    "Moved",
    "Origin",
    "Policy",
    "Removed",
    "Scheme",
    "Sought",
    "Store",
    "StoreStats",
    "Verified",
    "Verify",
    "default_folder",
    "pack_ids",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
