"""The segment store: a SQLite index and one safetensors file per segment; bounded, verified, shared.

`Store` is all that the rest of the engine uses. Below it: `index` and `migrations` (the database), `books`
(what it says), `files` (writing, reading, digests), `codec` (compressed keys and values), `eviction` (what
goes when it is full), `audit` (recovery and verification), `moving`, `transfer`, `manifest` and `contents`
(one file for another machine), `locks` (between processes).
"""

from engine.store.audit import Fault, Verified
from engine.store.books import Origin, Served, StoreStats
from engine.store.claim import INDEX
from engine.store.codec import SCHEMES, Scheme
from engine.store.eviction import Policy, Removed
from engine.store.files import VERIFY, Verify
from engine.store.reading import pack_ids
from engine.store.reasons import Sought
from engine.store.store import Store, default_folder
from engine.store.transfer import Moved

__all__ = [
    "INDEX",
    "SCHEMES",
    "VERIFY",
    "Fault",
    "Moved",
    "Origin",
    "Policy",
    "Removed",
    "Scheme",
    "Served",
    "Sought",
    "Store",
    "StoreStats",
    "Verified",
    "Verify",
    "default_folder",
    "pack_ids",
]
