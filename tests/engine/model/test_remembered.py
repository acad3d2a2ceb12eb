"""What was measured on a model is remembered, not believed: the same answers, and no trust in a wrong one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from engine.attention.rope import Rotary
from engine.base.errors import ModelError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model import probe_cache
from engine.model.model import Model
from engine.model.probe import Probe
from engine.model.probe_cache import VALID_SECONDS, Memory
from tests.drawing import each
from tests.engine.tiny import FAMILIES, tiny_network


def loaded(memory: Memory, network: Any = None, fingerprint: str = "f") -> Model:
    return Model("tiny", network or tiny_network(), byte_tokenizer(), fingerprint, memory)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "home" / "probes.json")


def measurements(act: Callable[[], object], found: Probe | None = None) -> int:
    """Returns how often a model is measured meanwhile, always with the result `found` if it is given."""
    known: dict[str, Any] = {"side_effect": None, "return_value": found} if found else {}
    with mock.patch.object(probe_cache, "probe", wraps=probe_cache.probe, **known) as probe:
        act()
    return probe.call_count


def logits(model: Model) -> torch.Tensor:
    kv = model.network.kv_cache((), 9)
    return model.network.forward(range(9), range(9), kv, keep=9)


@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "gpt-oss", "gpt2", "bloom"))
def test_a_known_model_is_set_up_as_a_measured_one(family: str, memory: Memory) -> None:
    measured = loaded(memory, tiny_network(family))
    known: list[Model] = []
    assert measurements(lambda: known.append(loaded(memory, tiny_network(family)))) == 0
    (model,) = known
    assert model.probe.to_json() == measured.probe.to_json()
    assert model.form == measured.form
    assert model.context_length == measured.context_length
    assert model.probe.setup.carried == measured.probe.setup.carried
    distinct = [len({id(one) for one in each.rotaries}) for each in (model, measured)]
    assert distinct[0] == distinct[1]
    for one, other in zip(model.rotaries, measured.rotaries, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert torch.equal(one.inverse_frequency, other.inverse_frequency)
            assert one.interleaved == other.interleaved
    assert torch.equal(logits(model), logits(measured))


def test_what_it_depends_on_is_measured_anew(memory: Memory) -> None:
    found = loaded(memory).probe
    assert measurements(lambda: loaded(memory)) == 0
    assert measurements(lambda: loaded(memory, fingerprint="other"), found) == 1
    assert measurements(lambda: loaded(memory, tiny_network().bfloat16())) == 1
    with mock.patch.object(probe_cache, "version", return_value="0.1"):
        assert measurements(lambda: loaded(memory)) == 1
    for name in ("cpu_name", "amx_bf16", "avx512_bf16"):
        told = {**torch.cpu.get_capabilities(), name: "another"}
        with mock.patch.object(torch.cpu, "get_capabilities", return_value=told):
            assert measurements(lambda: loaded(memory), found) == 1, name


def test_after_a_month_it_is_measured_again(memory: Memory) -> None:
    loaded(replace(memory, now=lambda: 1e9))
    assert measurements(lambda: loaded(replace(memory, now=lambda: 1e9 + VALID_SECONDS / 2))) == 0
    assert measurements(lambda: loaded(replace(memory, now=lambda: 1e9 + VALID_SECONDS))) == 1
    assert measurements(lambda: loaded(replace(memory, now=lambda: 0.0))) == 1  # a clock that was set back


def damaged(text: str) -> list[str]:
    row = json.loads(text)
    (key,) = row["probes"]
    changed = {**row["probes"][key]["probe"], "relocatable": False}
    return [
        "",
        "{",
        "[]",
        "[" * 100_000,
        text[: len(text) // 2],
        json.dumps({**row, "format": 2}),
        json.dumps({**row, "probes": [1]}),
        json.dumps({**row, "probes": {key: 7}}),
        json.dumps({**row, "probes": {key: {**row["probes"][key], "probe": changed}}}),
        json.dumps({**row, "probes": {key: {**row["probes"][key], "measured": "now"}}}),
    ]


def test_a_damaged_memory_is_an_empty_one_and_is_replaced(memory: Memory) -> None:
    found = loaded(memory).probe
    valid = memory.path.read_text()
    for text in damaged(valid):
        memory.path.write_text(text)
        assert measurements(lambda: loaded(memory), found) == 1
        assert memory.path.read_text() != text
    assert measurements(lambda: loaded(memory)) == 0
    assert memory.path.stat().st_mode & 0o777 == 0o600
    assert memory.path.parent.stat().st_mode & 0o777 == 0o700


def turned(found: Probe) -> Probe:
    """A measurement with rotary embeddings that turn the wrong way."""
    rotaries = tuple(one and Rotary(-one.inverse_frequency, one.interleaved) for one in found.setup.rotaries)
    return replace(found, setup=replace(found.setup, rotaries=rotaries))


@pytest.mark.parametrize(
    "wrong",
    [
        turned,
        lambda found: replace(found, setup=replace(found.setup, path="dense")),
        lambda found: replace(found, setup=replace(found.setup, rotaries=(None,) * 3)),
    ],
)
def test_a_memory_that_does_not_reproduce_the_model_is_dropped_before_anything_is_computed_with_it(
    memory: Memory, wrong: Callable[[Probe], Probe], caplog: pytest.LogCaptureFixture
) -> None:
    right = loaded(memory).probe
    with mock.patch.object(probe_cache, "probe", side_effect=lambda *_: wrong(right)):
        memory.path.unlink()
        loaded(memory)
    found: list[Model] = []
    with caplog.at_level(logging.WARNING):
        count = measurements(lambda: found.append(loaded(memory)))
    told = "does not reproduce it; measuring again" in caplog.text
    assert (count, told) == (1, True) or found[0].probe.path == "dense"  # which reproduces it as well
    assert torch.allclose(logits(found[0]), logits(loaded(memory)), atol=1e-4)
    assert measurements(lambda: loaded(memory)) == 0


def test_a_model_that_is_refused_is_remembered_by_nobody(memory: Memory) -> None:
    with (
        mock.patch.object(probe_cache, "probe", side_effect=ModelError("neither")),
        pytest.raises(ModelError, match="neither"),
    ):
        loaded(memory)
    assert not memory.path.exists()


def test_so_many_models_are_remembered_and_no_more(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_cache, "KEPT", 3)
    with mock.patch.object(probe_cache, "probe", return_value=loaded(memory).probe):
        for number in range(5):
            loaded(memory, fingerprint=str(number))
    assert len(json.loads(memory.path.read_text())["probes"]) == 3


def test_a_folder_that_cannot_be_written_costs_a_measurement(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memory = Memory(tmp_path / "file" / "probes.json")
    assert measurements(lambda: loaded(memory)) == 1
