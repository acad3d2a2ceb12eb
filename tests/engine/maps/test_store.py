"""Folders of maps: what is written is found again, or is an error that says why."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.base.errors import MapsError, SettingsError
from engine.base.events import Working
from engine.engine import Engine
from engine.inference.step_lock import returned
from engine.maps.build import building
from engine.maps.features import Features
from engine.maps.projector import Training, map_distance, pairs_of, pooled, trained
from engine.maps.reuse import MapReuse
from engine.maps.store import MANIFEST, MapStore, key_of
from engine.store import Store
from tests.engine.cases import model_of
from tests.engine.maps.corpora import QUICK, build, model, passes_of, texts

pytest.importorskip("usearch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "maps", texts())
    return tmp_path / "maps"


def test_a_stored_text_gives_the_states_of_the_plain_pass(folder: Path) -> None:
    reuse = MapReuse.open(folder, model(), 1.0)
    for tokens in texts()[:6]:
        states = reuse.states(tokens)
        assert states is not None
        assert (states - passes_of().record(tokens).states).abs().max() < 5e-3
        assert reuse.nearest(tokens) == (key_of(tokens), 1.0)
    assert (reuse.used.texts, reuse.used.hits) == (6, 6)
    assert reuse.states(texts(seed=1)[0]) is None
    assert reuse.maps([]) is None
    assert reuse.states([9] * 30) is None  # no text of this length


def test_the_threshold_decides(folder: Path) -> None:
    tokens = texts(seed=1)[0]
    found = MapReuse.open(folder, model()).nearest(tokens)
    assert found is not None
    assert 0 < found[1] < 1
    assert MapReuse.open(folder, model(), found[1]).maps(tokens) is not None
    assert MapReuse.open(folder, model(), found[1] + 1e-5).maps(tokens) is None
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(MapsError, match="it must be a number from 0 to 1"):
            MapReuse.open(folder, model(), wrong)


@pytest.mark.parametrize("place", [-1, 4, 100])
def test_a_damaged_entry_is_not_used(folder: Path, place: int, caplog: pytest.LogCaptureFixture) -> None:
    tokens = texts()[3]
    file = folder / f"{key_of(tokens)}.safetensors"
    data = bytearray(file.read_bytes())
    data[place] ^= 0x55
    file.chmod(0o600)
    file.write_bytes(data)
    reuse = MapReuse.open(folder, model(), 1.0)
    with caplog.at_level(logging.WARNING):
        assert reuse.states(tokens) is None
    assert key_of(tokens) not in reuse.store.entries
    _, built = build(folder, texts())
    assert (built.new, built.known) == (1, 23)
    assert MapReuse.open(folder, model(), 1.0).states(tokens) is not None


def test_folders_of_another_model_or_form_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MapsError, match=r"was built for 'tiny-llama-gqa' \(fp32\), and the model is 'tiny-l"):
        MapReuse.open(folder, model_of("llama"))
    with pytest.raises(MapsError, match="is no folder of attention maps"):
        MapStore.open(tmp_path / "none")
    with pytest.raises(MapsError, match="without the inputs of layers"):
        build(folder, texts(), by_layer=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(MapsError, match="has other files"):
        build(tmp_path / "other", texts())
    made = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(made | {"format": 99}))
    with pytest.raises(MapsError, match="has the format 99; this version reads 1"):
        MapStore.open(folder)
    (folder / MANIFEST).write_text('{"format": 2}')
    with pytest.raises(MapsError, match="has the format 2; this version reads 1"):
        MapStore.open(folder)
    for damaged, why in (("{", ""), ("[]", "it names no format"), ('{"format": 1}', "it has other fields")):
        (folder / MANIFEST).write_text(damaged)
        with pytest.raises(MapsError, match=rf"cannot be read \(.*{why}\)\. Delete the folder"):
            MapStore.open(folder)


def test_a_damaged_projector_is_refused(folder: Path) -> None:
    file = folder / "projector.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 0x55
    file.write_bytes(data)
    with pytest.raises(MapsError, match="is damaged"):
        MapReuse.open(folder, model())
    file.unlink()
    with pytest.raises(MapsError, match="has no trained projector"):
        MapReuse.open(folder, model())
    assert build(folder, texts())[1].losses


def test_a_stopped_build_goes_on(tmp_path: Path) -> None:
    store = MapStore.create(tmp_path / "maps", model(), passes_of().heads)
    work = building(passes_of(), store, texts(), plan=QUICK)
    for _ in range(11):
        next(work)
    work.close()
    assert len(MapStore.open(tmp_path / "maps").entries) == 10
    again = building(passes_of(), MapStore.open(tmp_path / "maps", model()), texts(), plan=QUICK)
    assert next(again) == Working("uncached", "texts", 10, 24)  # the finished ones take no time
    again.close()
    _, built = build(tmp_path / "maps", texts())
    assert (built.new, built.known, built.left_out) == (14, 10, 0)
    with store.building(), pytest.raises(MapsError, match="Another program builds"):
        build(tmp_path / "maps", texts())


def test_a_corpus_larger_than_the_budget_is_cut(tmp_path: Path) -> None:
    store, _ = build(tmp_path / "first", texts(4))
    each = max(entry.bytes for entry in store.entries.values())
    with pytest.raises(MapsError, match=r"no maps fit the budget of 10 bytes"):
        build(tmp_path / "none", texts(), 10)
    store, built = build(tmp_path / "maps", texts(), 6 * each)
    assert store.bytes <= 6 * each
    assert built.new + built.left_out == 24
    assert [key_of(tokens) in store.entries for tokens in texts()[:6]] == [True] * 6
    assert build(tmp_path / "maps", texts(), 6 * each)[1].new == 0


def test_the_least_recently_used_entry_goes_first_and_none_in_use(tmp_path: Path) -> None:
    same = [[number, 6, 7, 8] for number in range(10, 14)]
    store, _ = build(tmp_path / "maps", same[:3])
    each = max(entry.bytes for entry in store.entries.values())
    keys = [key_of(tokens) for tokens in same]
    with store.in_use(keys[0]):
        pass
    made = passes_of().record(same[3])
    inputs = torch.stack([pooled(passes_of().embedded(same[3]))])
    with store.in_use(keys[1]), store.in_use(keys[2]), store.in_use(keys[0]):
        assert not store.add(keys[3], made.maps, inputs, 3 * each, ())
    assert not store.add(keys[3], made.maps, inputs, 3 * each, keys)
    assert store.add(keys[3], made.maps, inputs, 3 * each, ())
    assert {*store.entries} == {keys[0], keys[2], keys[3]}
    assert {*MapStore.open(tmp_path / "maps").entries} == {*store.entries}


def test_training_lowers_the_loss_and_repeats_itself(folder: Path) -> None:
    store = MapStore.open(folder)
    keys = sorted(store.entries)
    loaded = [store.load(key) for key in keys]
    inputs = torch.stack([one["inputs"].float() for one in loaded if one is not None], 1)
    first = returned(trained(store, keys, inputs, Training(pairs=256, epochs=8)), None)
    again = returned(trained(store, keys, inputs, Training(pairs=256, epochs=8)), None)
    assert first[1] == again[1]
    assert first[1][-1] < first[1][0] / 2
    assert Features.open(store).losses


def test_pairs_have_equal_lengths() -> None:
    rows = [4, 5, 4, 6, 5, 9]
    assert all(rows[one] == rows[other] and one != other for one, other in pairs_of(rows, 50, 0))
    assert any(rows[one] != rows[other] for one, other in pairs_of(rows, 50, 0, mixed=True))
    assert any(rows[one] != rows[other] for one, other in pairs_of([3, 4, 5], 50, 0))
    assert pairs_of([4], 50, 0) == []


def test_distance_of_maps() -> None:
    one = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).expand(2, 3, 2, 2)
    other = one.clone()
    other[1, 0, 1] = torch.tensor([0.0, 1.0])
    # of six rows of the second layer, one is away by √½
    assert map_distance(one, other).tolist() == pytest.approx([0, 0.5**0.5 / 6 / 2])
    longer = torch.zeros(2, 3, 3, 3)
    longer[..., :2, :2] = one
    assert map_distance(one, longer).tolist() == [0, 0]


def test_layers_search_for_themselves(folder: Path, tmp_path: Path) -> None:
    build(tmp_path / "layers", texts(), by_layer=True)
    tokens = texts()[5]
    states, hits = MapReuse.open(tmp_path / "layers", model(), 0.0).states_by_layer(tokens)
    assert hits == 3
    none, missed = MapReuse.open(tmp_path / "layers", model(), 1.0).states_by_layer(texts(seed=3)[0])
    assert missed == 0
    assert (none - passes_of().record(texts(seed=3)[0]).states).abs().max() < 1e-4
    with pytest.raises(MapsError, match="without the inputs of layers"):
        MapReuse.open(folder, model()).states_by_layer(tokens)
    assert states.shape == (5, 64)


def test_an_embedder_tells_which_texts_read_maps(folder: Path, tmp_path: Path) -> None:
    with Engine(model(), Store.open(tmp_path / "store")) as engine:
        plain = engine.embedder("mean")
        embedder = replace(plain, maps=MapReuse.open(folder, model(), 1.0))
        given = [texts()[2], texts(seed=1)[0], texts()[7]]
        found = embedder.embed(given)
        assert found.mapped == (True, False, True)
        assert np.abs(found.vectors - plain.embed(given).vectors).max() < 5e-3
        assert embedder.embed([]).mapped == ()
        with pytest.raises(SettingsError, match="text 1 is empty"):
            embedder.embed([[]])
