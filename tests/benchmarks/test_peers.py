"""Other programs: their tasks, and that they compute the same as ours. No times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from app.studio.sweeps.turns import timed
from benchmarks import peers
from benchmarks.base.case import Group, Size
from benchmarks.peers import all_peers, beside, llamacpp
from benchmarks.peers.gguf_file import require_plain_llama
from benchmarks.peers.peer import STEPS, Contender, Peer
from benchmarks.peers.torch_peers import Copied, Prefixed
from benchmarks.speed.ttft import Forward
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from tests.engine.tiny import save_tiny


def silent(_: str) -> None:
    pass


def size(model: object, **other: Any) -> Size:
    return Size("s", str(model), "fp32", 60, 3, 5, 2, peers=True, **other)


class Counting(Contender):
    """Computes nothing, and logs its tasks."""

    def __init__(self) -> None:
        super().__init__("counting", size("m"), ("full", "prefix", "state_file", "decode"))
        self.log: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("full", "state_file", "rewind", "prefix", "step"):
            return lambda: self.log.append(name)
        return super().__getattribute__(name)

    def logits(self) -> Any:
        self.log.append("choice")
        return torch.zeros(3)


def test_tasks_time_what_their_names_say() -> None:
    contender = Counting()
    expected = {
        "full": ["full"],
        "prefix": ["rewind", "prefix"],
        "state_file": ["rewind", "state_file"],
        "decode": ["rewind", "prefix", "step", *["step"] * STEPS],
    }
    for way in contender.ways():
        contender.log.clear()
        way.sample()
        assert contender.log == expected[way.name.removeprefix("counting:")]


def test_every_peer_is_installed_or_names_its_installation() -> None:
    found = all_peers()
    assert [peer.name for peer in found] == ["llama.cpp", "transformers", "paper's prototype"]
    for peer in found:
        assert bool(peer.version) != bool(peer.absent)
        if peer.absent:
            assert "pip install" in peer.absent
            with pytest.raises(PromptCacheError, match="pip install"), peer.open(size("m")):
                pass


def test_transformers_computes_what_we_compute(tmp_path: Path) -> None:
    shape = size(save_tiny(tmp_path))
    ours = Forward(load(shape.model, dtype="fp32"), shape, silent)
    with all_peers()[1].open(shape) as peer:
        assert isinstance(peer, Prefixed)
        peer.rewind()
        peer.prefix()
        over_prefix = peer.logits().clone()
        peer.full()
        assert torch.allclose(peer.logits(), ours.uncached()[0], atol=1e-4)
        assert torch.allclose(over_prefix, peer.logits(), atol=1e-4)
        peer.step()
        peer.rewind()
        assert peer.cache.get_seq_length() == 60
        peer.prefix()
        assert torch.allclose(peer.logits(), over_prefix, atol=1e-5)
        assert all(timed(peer.ways(), 1, 0).values())


def test_the_prototype_computes_what_we_compute_over_modules(tmp_path: Path) -> None:
    shape = size(save_tiny(tmp_path))
    ours = Forward(load(shape.model, dtype="fp32"), shape, silent)
    with all_peers()[2].open(shape) as peer:
        assert isinstance(peer, Copied)
        for _ in range(2):  # the buffer is filled again after an answer
            peer.rewind()
            peer.prefix()
            assert torch.allclose(peer.logits(), ours.in_place()[0], atol=1e-4)
            assert not torch.allclose(peer.logits(), ours.uncached()[0], atol=1e-4)
            peer.step()
            assert peer.cache.get_seq_length() == 66


@pytest.mark.skipif(bool(llamacpp.missing()), reason=llamacpp.missing() or "llama.cpp is installed")
def test_llama_cpp_computes_what_we_compute(tmp_path: Path) -> None:
    shape = size(save_tiny(tmp_path))
    ours = Forward(load(shape.model, dtype="fp32"), shape, silent).uncached()[0]
    with llamacpp.opened(shape, cache_format="F32") as peer:
        assert isinstance(peer, Contender)
        for task in ("prefix", "full", "state_file", "prefix"):
            peer.rewind()
            getattr(peer, task)()
            # flash attention adds up in fp16
            assert torch.allclose(torch.tensor(peer.logits()), ours, atol=2e-2), task
        assert list(timed(peer.ways(), 1, 0)) == [f"llama.cpp:{kind}" for kind in llamacpp.KINDS]


def test_llama_cpp_gets_plain_llamas_only(tmp_path: Path) -> None:
    config = load(str(save_tiny(tmp_path, "qwen2"))).config
    with pytest.raises(PromptCacheError, match="plain llama"):
        require_plain_llama(config)


def test_missing_and_failing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Any:
        raise PromptCacheError("this shape it cannot")

    made = [Peer("absent", "", "not installed: pip install it", refused), Peer("broken", "2", "", refused)]
    monkeypatch.setattr(peers, "all_peers", lambda: made)
    group = Group("g")
    with beside(group, size("m"), ("full",), silent) as ways:
        assert ways == []
    assert group.peers["absent"] == {"version": "", "absent": "not installed: pip install it"}
    assert group.peers["broken"]["absent"] == "failed: PromptCacheError: this shape it cannot"
