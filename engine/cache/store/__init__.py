"""The segment store: a SQLite index and one safetensors file per segment; bounded, verified, shared.

`Store` is all that the rest of the engine uses. Below it: `index` and `migrations` (the database), `books`
(what it says), `files` (writing, reading, digests), `codec` (compressed keys and values), `eviction` (what
goes when it is full), `audit` (recovery and verification), `moving`, `transfer`, `manifest` and `contents`
(one file for another machine), `locks` (between processes).
"""

from engine.cache.store.audit import Fault, Verified
from engine.cache.store.claim import INDEX
from engine.cache.store.codec import SCHEMES, Scheme
from engine.cache.store.eviction import Policy, Removed
from engine.cache.store.files import VERIFY, Verify
from engine.cache.store.ledger import Lookup, Origin, StoreStats
from engine.cache.store.reading import pack_ids
from engine.cache.store.reasons import Sought
from engine.cache.store.store import Store, default_folder
from engine.cache.store.transfer import Moved

__all__ = [
    "INDEX",
    "SCHEMES",
    "VERIFY",
    "Fault",
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
