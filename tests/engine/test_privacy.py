"""What is written to the disk, and what is not: earlier turns of a conversation only where asked."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from engine.base.errors import StoreError
from engine.base.events import Answer
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.prompt.recipe import TURN
from engine.store import Store, pack_ids
from tests.engine.cache.test_store import ORIGIN, segment
from tests.engine.cases import model_of

SCHEMA = '<schema name="s"><system>Be brief. <module name="a">alpha</module></system></schema>'
SECRET = "My account is 4711 and my name is Ada"
PROMPT = f"<prompt><a/><user>{SECRET}</user><assistant>Hello.</assistant><user>And now?</user></prompt>"


def answered(engine: Engine, *, stored: bool, scope="anchored", schema: str = SCHEMA) -> Answer:
    settings = RunSettings(max_new_tokens=2, store_conversation=stored, scope=scope)
    return engine.schema(schema).prompt(PROMPT).answer(settings)


def written(engine: Engine, folder: Path) -> list[str]:
    """The files of a store that hold the tokens or the text of the secret."""
    ids = pack_ids(engine.model.tokenize(SECRET))
    found = []
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        parts = [base64.b64decode(text) for text in re.findall(rb'"((?:[A-Za-z0-9+/]{4}){8,}=*)"', data)]
        if any(needle in data for needle in (ids, SECRET.encode(), ids.hex().encode())) or any(
            ids in part for part in parts
        ):
            found.append(path.name)
    return found


@pytest.mark.parametrize("scope", ["isolated", "anchored", "preceding", "scaffold"])
def test_a_conversation_is_not_written_to_the_disk_unless_asked(tmp_path: Path, scope) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    first = answered(engine, stored=False, scope=scope)
    assert {use.reason for use in first.segments if use.path == TURN} == {"conversation is not stored"}
    again = answered(engine, stored=False, scope=scope)
    assert {use.tier for use in again.segments} == {"memory"}, "it is reused all the same"
    assert again.token_ids == first.token_ids
    assert TURN not in {row["path"] for row in engine.store.segments()}
    assert engine.store.stats().segments > 0
    engine.close()
    assert written(engine, tmp_path) == []


def test_a_conversation_is_written_where_asked_and_found_again(tmp_path: Path) -> None:
    model = model_of("llama-gqa")
    engine = Engine(model, Store.open(tmp_path))
    want = answered(engine, stored=True)
    assert [row["path"] for row in engine.store.segments()].count(TURN) == 2
    engine.close()
    assert len(written(engine, tmp_path)) == 2, "the index, and the file of the turn"
    again = Engine(model, Store.open(tmp_path))
    found = answered(again, stored=False)
    assert {use.tier for use in found.segments} == {"disk"}
    assert found.token_ids == want.token_ids
    assert again.store.clear(conversation=True) == 2
    assert TURN not in {row["path"] for row in again.store.segments()}
    assert again.store.stats().segments > 0
    again.close()


def test_an_export_leaves_conversation_out_unless_asked(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"))
    answered(engine, stored=True)
    (tmp_path / "out").mkdir()
    moved = engine.store.export(tmp_path / "out" / "s.tar", "s")
    assert moved.left_out == 2
    assert moved.segments == engine.store.stats().segments - 2
    assert written(engine, tmp_path / "out") == []
    whole = engine.store.export(tmp_path / "out" / "all.tar", conversation=True)
    assert (whole.left_out, whole.segments) == (0, moved.segments + 2)
    assert written(engine, tmp_path / "out") == ["all.tar"]
    rest = [row["key"] for row in engine.store.segments() if row["path"] != TURN]
    engine.store.remove(rest)
    with pytest.raises(StoreError, match=r"only 2 segments of conversations.*--conversation"):
        engine.store.export(tmp_path / "out" / "none.tar")
    engine.close()


def test_an_export_of_one_schema_does_not_name_another(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / "store"))
    answered(engine, stored=False)
    answered(engine, stored=False, schema=SCHEMA.replace('name="s"', 'name="unpublished"'))
    assert {row["schema"] for row in engine.store.segments()} == {"s,unpublished"}
    engine.store.export(tmp_path / "s.tar", "s")
    engine.close()
    assert b'"s"' in (tmp_path / "s.tar").read_bytes()
    assert b"unpublished" not in (tmp_path / "s.tar").read_bytes()


def test_a_module_cannot_be_called_like_a_turn() -> None:
    from engine.pml.xml.names import NAME

    assert NAME.fullmatch(TURN) is None


def test_what_is_deleted_leaves_no_tokens_in_the_index(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with store.index.reading() as connection:
        assert connection.execute("pragma secure_delete").fetchone()[0] == 1
    for number in range(20):
        store.save(segment(f"{number:040x}", 300, number), ORIGIN)
    tokens = pack_ids(range(100, 200))

    def holding() -> list[str]:
        return [path.name for path in tmp_path.iterdir() if path.is_file() and tokens in path.read_bytes()]

    assert holding()
    store.clear()
    store.close()
    assert holding() == []
