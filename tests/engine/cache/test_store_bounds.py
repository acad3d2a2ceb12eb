"""A store within its budget: what goes, what stays, and that it says so."""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
import torch

from engine.base.errors import StoreError
from engine.base.events import Answer
from engine.base.segment import Segment
from engine.base.tiers import Reason
from engine.cache import encoding
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.store import INDEX, Origin, Sought, Store, pack_ids, write_behind
from engine.store.blobs.codec import SCHEMES, Scheme
from engine.store.blobs.local_files import LocalBlobs
from engine.store.disk_space import file_bytes
from engine.store.index.settings import DEFAULT_BUDGET
from engine.store.write_behind import Behind
from tests.engine.cache.test_store import ORIGIN, audit, overwrite, segment
from tests.engine.cases import model_of, schema_of


def filled(folder: Path, count: int = 6, **options) -> tuple[Store, int]:
    """A store with segments k0, k1, … of one size, used one after the other; and that size."""
    store = Store.open(folder)
    for number in range(count):
        store.save(segment(f"k{number}", 20, number), ORIGIN, **options)
        _age(store, f"k{number}", 1000 - number)
    return store, store.stats().bytes // max(1, count)


def _age(store: Store, key: str, seconds: float) -> None:
    with sqlite3.connect(store.folder / INDEX) as connection:
        connection.execute("update segments set last_used = ? where key = ?", [time.time() - seconds, key])


def keys(store: Store) -> set[str]:
    return {row["key"] for row in store.segments()}


def test_what_a_budget_would_evict_is_told_and_stays(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    with store.using(["k1"]):
        told = store.surplus(3 * size)
        assert (told.segments, told.bytes) == (3, 3 * size)
        assert len(keys(store)) == 6
        assert store.surplus(6 * size).segments == 0
        assert store.surplus(0).segments == 5
        assert store.settings.budget == DEFAULT_BUDGET
        assert store.set_budget(3 * size) == told


def test_the_budget_holds_and_survives_a_restart(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    removed = store.set_budget(3 * size)
    assert (removed.segments, removed.bytes) == (3, 3 * size)
    assert keys(store) == {"k3", "k4", "k5"}
    store.close()
    again = Store.open(tmp_path)
    assert again.settings.budget == 3 * size
    again.save(segment("new", 20, 9), ORIGIN)
    assert keys(again) == {"k4", "k5", "new"}
    stats = again.stats()
    assert stats.bytes == sum(path.stat().st_size for path in again.files.iterdir()) <= stats.budget
    assert stats.evicted == 4
    assert [row["key"] for row in again.evictions()] == ["k3", "k2", "k1", "k0"]
    assert {row["reason"] for row in again.evictions()} == {"evicted: budget"}
    assert again.reason(sought("k0")) == "evicted: budget"
    audit(again)


def test_pinned_schemas_stay_and_a_full_store_refuses(tmp_path: Path) -> None:
    store, size = filled(tmp_path, 3)
    store.settings.pin("travel")
    store.save(segment("other", 20, 9), Origin("other", "m", "anchored", "tiny", "f"))
    assert {row["key"] for row in store.segments() if row["pinned"]} == {"k0", "k1", "k2"}
    store.set_budget(3 * size)
    assert keys(store) == {"k0", "k1", "k2"}
    with pytest.raises(StoreError, match="no room left besides segments that are pinned"):
        store.save(segment("k7", 20, 8), Origin("other", "m", "anchored", "tiny", "f"))
    assert keys(store) == {"k0", "k1", "k2"}
    audit(store)
    assert store.prune(older_than=0).segments == 0
    assert store.settings.unpin("travel")
    assert not store.settings.unpin("travel")
    store.save(segment("k7", 20, 8), ORIGIN)
    assert keys(store) == {"k1", "k2", "k7"}


def test_age_limits(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    assert store.prune(older_than=996.5).segments == 4
    assert keys(store) == {"k4", "k5"}
    assert store.reason(sought("k0")) == "evicted: age"
    audit(store)


def test_what_is_in_use_is_not_evicted(tmp_path: Path) -> None:
    store, size = filled(tmp_path)
    with store.using(["k0", "k1"]):
        store.set_budget(2 * size)
        assert keys(store) == {"k0", "k1"}
        assert store.prune(older_than=0).segments == 0
    store.prune(older_than=0)
    assert keys(store) == set()


def test_a_segment_that_is_mapped_stays_readable_when_another_process_evicts_it(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 1)
    held = store.load("k0", range(20))
    other = Store.open(tmp_path)
    other.clear()
    assert held is not None
    assert torch.equal(held.keys, segment("k0", 20, 0).keys)
    assert store.load("k0", range(20)) is None
    assert store.stats().corrupt == 0


@pytest.mark.parametrize(("size", "policy"), [(-1, None), (5, "luck")])
def test_a_budget_that_is_none_is_refused(tmp_path: Path, size: int, policy) -> None:
    with pytest.raises(StoreError):
        Store.open(tmp_path).set_budget(size, policy)


def sought(key: str = "x", ids: Sequence[int] = range(20), **other: str) -> Sought:
    """A segment like those of `filled`."""
    like = {"schema": "travel", "path": "trip/tokyo", "scope": "anchored", "fingerprint": "f"}
    kind = {"dtype": "float32", "scheme": "plain"}
    return Sought(key=key, token_ids=pack_ids(ids), **{**like, **kind, **other})


@pytest.mark.parametrize(
    ("looked_for", "why"),
    [
        (sought(schema="unknown"), "new"),
        (sought(path="trip/rome"), "new"),
        (sought(), "sight changed"),
        (sought(ids=range(21)), "text changed"),
        (sought(ids=range(21), scope="isolated"), "text changed"),
        (sought(scope="isolated"), "other scope"),
        (sought(ids=range(12), scope="scaffold"), "other scope"),
        (sought(ids=range(3, 9), scope="scaffold"), "other scope"),
        (sought(ids=range(21), scope="scaffold"), "other scope"),
        (sought(ids=[3, 9], scope="scaffold"), "text changed"),
        (sought(ids=[256], scope="scaffold"), "text changed"),
        (sought(scheme="int8"), "other compression"),
        (sought(scheme="int8", scope="isolated"), "other compression"),
        (sought(dtype="bfloat16"), "other number format"),
        (sought(fingerprint="g"), "other model"),
        (sought(fingerprint="g", ids=range(21), dtype="bfloat16"), "other model"),
    ],
)
def test_a_miss_says_in_what_it_differs(tmp_path: Path, looked_for: Sought, why: str) -> None:
    store, _ = filled(tmp_path, 2)
    assert store.reason(looked_for) == why


def test_a_miss_says_how_a_segment_went(tmp_path: Path) -> None:
    store, size = filled(tmp_path, 4)
    store.prune(max_bytes=3 * size)
    store.remove(["k1"])
    (row,) = store.index.query("select file from segments where key = 'k2'")
    overwrite(store.files / row["file"], b"")
    assert store.load("k2", range(20)) is None
    assert store.reason(sought("k3")) == "unreadable", "it is listed, and yet it was not found"
    store.clear()
    found = [store.reason(sought(f"k{number}")) for number in range(4)]
    assert found == ["evicted: budget", "deleted", "damaged", "cleared"]


def test_a_miss_after_the_budget_refused_a_segment_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.set_budget(100)
    for _ in range(3):
        with pytest.raises(StoreError, match="no room left"):
            store.save(segment("k0", 20), ORIGIN)
    assert store.reason(sought("k0")) == "not stored: budget"
    assert len(store.evictions()) == 1


def test_pins_that_do_not_fit_the_budget_are_said(tmp_path: Path) -> None:
    store, size = filled(tmp_path, 3)
    store.settings.pin("travel")
    assert store.settings.warnings == ()
    store.set_budget(2 * size)
    assert store.stats().segments == 3
    (said,) = store.settings.warnings
    assert f"Pinned segments take {3 * size:,} bytes, and the budget is {2 * size:,}" in said
    assert store.stats().pinned == 3 * size


def test_pinning_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 1)
    with pytest.raises(StoreError, match="schema 'travle' has no stored segments"):
        store.settings.pin("travle")
    assert store.settings.pins() == []


def test_a_pin_keeps_what_another_schema_has_stored(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    answered(engine, SCHEMA)
    other = SCHEMA.replace('name="s"', 'name="t"')
    assert {use.outcome for use in answered(engine, other).segments} == {"hit"}
    engine.store.finish_writing()  # who uses them is written behind the answer, as they are
    engine.store.settings.pin("t")
    engine.store.settings.unpin("s")
    engine.store.prune(max_bytes=0)
    assert engine.store.stats().segments == 3
    engine.schema(schema_of(other.replace('name="t"', 'name="u"'))).encode()
    engine.store.settings.pin("u")
    engine.close()


def test_clearing_leaves_pinned_segments_unless_asked(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 2)
    store.save(segment("other", 20, 9), Origin("other", "m", "anchored", "tiny", "f"))
    store.settings.pin("travel")
    assert store.clear() == 1
    assert keys(store) == {"k0", "k1"}
    assert store.clear("travel") == 0
    assert store.clear(pinned=True) == 2
    assert store.settings.pins() == ["travel"]


def test_under_a_budget_of_nothing_nothing_is_stored_and_nothing_is_wrong(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    want = answered(engine, SCHEMA)
    engine.store.set_budget(0)
    assert engine.store.stats().segments == 0
    engine.memory_tier.clear()
    found = answered(engine, SCHEMA)
    assert (found.token_ids, found.warnings) == (want.token_ids, ())
    assert engine.store.settings.budget == engine.store.stats().segments == 0
    assert "nothing new is stored" in engine.store.settings.warnings[0]
    engine.close()


def test_an_age_limit_holds_at_writes_and_at_openings(tmp_path: Path) -> None:
    store, _ = filled(tmp_path, 3)
    assert store.settings.max_age is None
    assert store.set_max_age(999.5).segments == 1
    assert keys(store) == {"k1", "k2"}
    _age(store, "k1", 2000)
    store.save(segment("new", 20, 9), ORIGIN)
    assert keys(store) == {"k2", "new"}
    _age(store, "k2", 2000)
    store.close()
    again = Store.open(tmp_path)
    assert keys(again) == {"new"}
    assert again.settings.max_age == again.stats().max_age == 999.5
    assert {again.reason(sought(key)) for key in ("k0", "k1", "k2")} == {"evicted: age"}
    again.set_max_age(None)
    _age(again, "new", 2000)
    again.close()
    assert keys(Store.open(tmp_path)) == {"new"}
    audit(again)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_age_that_is_none_is_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(StoreError, match="an age of"):
        Store.open(tmp_path).set_max_age(seconds)


def test_under_the_scope_scaffold_an_argument_is_no_other_text(tmp_path: Path) -> None:
    source = '<schema name="s">Hi. <module name="a">One <param name="x" len="3"/> of many.</module></schema>'
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as engine:
        schema = engine.schema(source)
        reasons = [
            {
                str(use.reason)
                for use in schema.prompt(f'<prompt><a x="{x}"/>So?</prompt>')
                .answer(max_new_tokens=1, scope=scope)
                .segments
                if use.path == "a"
            }
            for scope, x in (("anchored", "b"), ("scaffold", "b"), ("scaffold", "c d"))
        ]
    assert reasons[:2] == [{"new"}, {"other scope"}]
    assert reasons[2] <= {"", "sight changed"}


SCHEMA = """<schema name="s">Read. <module name="a">alpha {}</module><union><module name="b">beta</module>
<module name="c">gamma</module></union></schema>"""


def answered(engine: Engine, schema: str, settings: RunSettings | None = None) -> Answer:
    prompt = engine.schema(schema_of(schema)).prompt("<prompt><a/><b/> so?</prompt>")
    return prompt.answer(settings or RunSettings(max_new_tokens=2))


def test_runs_say_why_something_was_computed_and_keep_books(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    assert {use.reason for use in answered(engine, SCHEMA).segments} == {"new"}
    changed = answered(engine, SCHEMA.format("more"))
    assert {use.path: use.reason for use in changed.segments} == {
        "": "",
        "a": "text changed",
        "b": "",
    }
    served = {(row["tier"], row["outcome"], row["reason"]): row for row in engine.store.stats().served}
    assert served["none", "miss", "new"]["count"] == 3
    assert served["memory", "hit", ""]["count"] == 2
    assert all(row["bytes"] > 0 and row["ms"] > 0 for row in served.values())
    engine.close()


def test_a_budget_too_small_costs_a_warning_and_no_answer(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    want = answered(engine, SCHEMA)
    engine.store.set_budget(100)
    engine.memory_tier.clear()
    found = answered(engine, SCHEMA, RunSettings(max_new_tokens=2, sync=True))
    assert found.token_ids == want.token_ids
    (warning,) = found.warnings
    assert "budget of 100 bytes has no room left" in warning
    assert engine.store.stats().segments == 0
    engine.close()


def test_other_members_of_a_union_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    engine.schema(schema_of(SCHEMA)).encode()
    engine.memory_tier.clear()
    asked: list[str] = []
    monkeypatch.setattr(engine.store, "expect_soon", lambda keys: asked.extend(keys))
    answered(engine, SCHEMA)
    paths = {row["key"]: row["path"] for row in engine.store.segments()}
    assert [paths[key] for key in asked][-1] == "c"
    assert {paths[key] for key in asked} == {"", "a", "b", "c"}
    engine.close()


LONG = """<schema name="s">Read. <module name="a">alpha{0}</module><module name="b">beta<module name="c">gamma
</module></module><union><module name="d">delta</module><module name="e">epsilon</module></union></schema>"""


def test_each_segment_of_an_empty_store_is_new_however_many_a_module_has(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    schema = '<schema name="s">One <module name="a">x<module name="b">y</module>z</module> two</schema>'
    answer = engine.schema(schema).prompt("<prompt><a><b/></a> so?</prompt>").answer(max_new_tokens=1)
    assert [use.reason for use in answer.segments] == ["new"] * len(answer.segments)
    assert len({use.path for use in answer.segments}) < len(answer.segments), "two of one module"
    engine.close()


def test_runs_say_what_has_changed(tmp_path: Path) -> None:
    model, store = model_of("llama-gqa", chat=False), Store.open(tmp_path)
    engine = Engine(model, store)
    answered(engine, SCHEMA)
    sight = answered(engine, SCHEMA.replace("Read.", "Read this."))
    assert {use.path: use.reason for use in sight.segments} == {
        "": "text changed",
        "a": "sight changed",
        "b": "sight changed",
    }
    isolated = answered(engine, SCHEMA, RunSettings(max_new_tokens=1, scope="isolated"))
    assert {use.path: use.reason for use in isolated.segments} == {
        "": "",
        "a": "other scope",
        "b": "other scope",
    }
    store.settings.set_scheme("int8")
    packed = Engine(model, store)
    assert {use.reason for use in answered(packed, SCHEMA).segments} == {"other compression"}
    packed.close()


def test_encoding_over_the_budget_says_what_is_kept_and_what_it_takes(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    schema = schema_of(LONG.format(""))
    whole = engine.schema(schema).encode()
    assert (whole.kept, whole.total, whole.encoded) == (6, 6, 6)
    size = engine.store.stats().bytes
    assert size <= whole.budget
    engine.store.set_budget(size // 2)
    engine.store.clear()
    engine.memory_tier.clear()
    part = engine.schema(schema).encode()
    assert part.encoded == part.total == 6
    assert 0 < part.kept < 6
    assert part.kept == engine.store.stats().segments
    assert "no room left" in part.warnings[0]
    assert "answer" not in part.warnings[0]
    engine.store.set_budget(part.budget)
    engine.memory_tier.clear()
    assert engine.schema(schema).encode().kept == 6
    engine.close()


def test_encoding_holds_in_memory_only_what_others_still_see(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(encoding, "PASS_TEXTS", 1)
    monkeypatch.setattr(write_behind, "MOST", 2)
    engine = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path), memory=0)
    held: list[int] = []
    made_keys: list[weakref.ref[torch.Tensor]] = []
    made = encoding.encode_in_parts

    def watched(*given, **named) -> Generator[int, None, list[Segment]]:
        (segment,) = yield from made(*given, **named)
        made_keys.append(weakref.ref(segment.keys))
        held.append(sum(keys() is not None for keys in made_keys))
        return [segment]

    monkeypatch.setattr(encoding, "encode_in_parts", watched)
    many = "".join(f'<module name="m{number}">text {number}</module>' for number in range(20))
    report = engine.schema(schema_of(f'<schema name="s">Read. {many}</schema>')).encode()
    assert report.kept == 21
    assert max(held) <= 6, held
    engine.close()


@pytest.mark.parametrize("value", ["much", "-5", "nan", "inf", ""])
def test_a_setting_that_is_no_number_counts_as_none(tmp_path: Path, value: str) -> None:
    store = Store.open(tmp_path)
    store.index.set("budget", value)
    store.index.set("max_age", value)
    assert (store.settings.budget, store.settings.max_age) == (DEFAULT_BUDGET, None)
    assert store.stats().budget == DEFAULT_BUDGET


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
