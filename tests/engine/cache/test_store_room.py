"""What there is room for: by the budget, beside what stays, and by the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.base.errors import StoreError
from engine.base.segment import Segment
from engine.base.tiers import Reason
from engine.store import Origin, Store
from engine.store.blobs.codec import SCHEMES, Scheme
from engine.store.blobs.local_files import LocalBlobs
from engine.store.disk_space import file_bytes
from engine.store.write_behind import Behind
from tests.engine.cache.test_store import ORIGIN, segment


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tokens", [1, 7, 64, 1000])
def test_no_file_is_larger_than_was_said(tmp_path: Path, scheme: Scheme, tokens: int) -> None:
    origin = Origin("Müller's “schema”", "a/" * 50, "anchored", "owner/model", "f" * 64)
    shape = (3, 2, tokens, 16)
    one = Segment("0" * 40, tuple(range(tokens)), torch.randn(shape), torch.randn(shape))
    store = Store.open(tmp_path)
    store.save(one, origin, scheme=scheme)
    assert store.stats().bytes <= file_bytes(scheme, shape, "float32")


def test_room_is_what_the_budget_has_beside_what_stays(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save(segment("free", 20), ORIGIN)
    store.save(segment("kept", 20), ORIGIN)
    store.keep(["kept"], 3600.0)
    each = store.stats().bytes // 2
    store.settings.set_budget(2 * each, None)
    assert store.room.lacking(each) is None, "what nothing keeps goes for it"
    assert store.room.lacking(each, ["free"]) is not None
    assert store.room.lacking(each + 1) is not None
    claim = store.room.claim(each // 2)
    assert store.room.lacking(each // 2) is None
    assert store.room.lacking(each) is not None
    with pytest.raises(StoreError, match="no room left"):
        store.room.claim(each)
    for _ in range(2):
        claim.release()
    assert store.room.lacking(each) is None


def test_what_waits_to_be_written_takes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undone = []
    monkeypatch.setattr(Behind, "bytes_of", lambda _, keys=None: sum(undone))
    monkeypatch.setattr(LocalBlobs, "free", property(lambda _: 1 << 20))
    store = Store.open(tmp_path)
    assert store.room.lacking(500_000) is None
    undone.append(600_000)
    assert isinstance(store.room.lacking(500_000), OSError)
    assert store.room.lacking(300_000) is None


def test_what_has_no_room_is_not_written_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path)
    store.save(segment("kept", 20), ORIGIN)
    store.keep(["kept"], 3600.0)
    store.settings.set_budget(store.stats().bytes, None)
    written, told = [], []
    monkeypatch.setattr(LocalBlobs, "write", lambda *_: written.append(1))
    store.save_behind(segment("new", 20), ORIGIN, beside=(), ended=told.append)
    store.finish_writing()
    assert not written
    assert "no room left" in str(told[0])
    assert store.evictions()[0]["reason"] == Reason.REFUSED
