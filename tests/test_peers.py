"""Peers: what their ways time, and that they compute what we compute. No times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.forward import Forward
from benchmarks.peers import Peer, Shape, all_peers, llamacpp, prototype, transformers_sdpa
from benchmarks.peers.gguf_file import require_plain_llama
from benchmarks.peers.peer import STEPS, Contender
from benchmarks.turns import Way, timed
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from tests.engine.tiny import save_tiny


class Counting(Contender):
    """Computes nothing, and writes down what it was asked."""

    def __init__(self, shape: Shape) -> None:
        super().__init__("counting", shape, ("full", "prefix", "state_file", "decode", "answer"))
        self.log: list[str] = []

    def full(self) -> None:
        self.log.append("full")

    def state_file(self) -> None:
        self.log.append("state_file")

    def rewind(self) -> None:
        self.log.append("rewind")

    def prefix(self) -> None:
        self.log.append("prefix")

    def step(self) -> None:
        self.log.append("step")

    def logits(self) -> Any:
        self.log.append("choice")
        return torch.zeros(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


def shape(model: Path | str = "", **other: Any) -> Shape:
    given = {"cached": 60, "modules": 3, "new": 5, "seed": 2, "threads": 1, "answer": 20} | other
    return Shape(str(model), "fp32", **given)


def test_ways_take_turns_and_time_what_they_say() -> None:
    contender = Counting(shape())

    @contextmanager
    def opened(_: Shape) -> Iterator[Counting]:
        yield contender

    peer = Peer("counting", "1", "", opened)
    with peer.open(shape()) as found:
        ways = {way.name: way for way in found.ways()}
        assert list(ways) == [f"counting:{kind}" for kind in contender.kinds]
        samples = timed(list(ways.values()), 2, 0, lambda _: None)
        assert {len(values) for values in samples.values()} == {2}
        expected = {
            "full": ["full"],
            "prefix": ["rewind", "prefix"],
            "state_file": ["rewind", "state_file"],
            "decode": ["rewind", "prefix", "step", *["step"] * STEPS],
            "answer": ["rewind", "prefix", *["step"] * 19, "choice"],
        }
        for kind, log in expected.items():
            contender.log.clear()
            ways[f"counting:{kind}"].prepare()
            ways[f"counting:{kind}"].run()
            assert contender.log == log
        contender.log.clear()
        assert found.answer(1).run() >= 0
        assert contender.log == ["prefix", "choice"]
        with pytest.raises(PromptCacheError, match="1 to 20"):
            found.answer(21)


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(PromptCacheError, match="at least modules"):
        shape(cached=2, modules=3)


def test_every_peer_is_here_or_says_how_it_gets_here() -> None:
    peers = all_peers()
    assert [peer.name for peer in peers] == ["llama.cpp", "transformers", "paper's prototype"]
    for peer in peers:
        assert bool(peer.version) != bool(peer.absent)
        if peer.absent:
            assert "pip install" in peer.absent
            with pytest.raises(PromptCacheError, match="pip install"), peer.open(shape()):
                pass


def test_transformers_computes_what_we_compute(folder: Path) -> None:
    ours = Forward(load(str(folder)), 60, 3, 5, 2, lambda _: None)
    with prefixed(folder) as peer:
        assert peer.tokens == ours.tokens
        peer.rewind()
        peer.prefix()
        over_prefix = peer.logits().clone()
        peer.full()
        assert torch.allclose(peer.logits(), ours.uncached()[0], atol=1e-4)
        assert torch.allclose(over_prefix, peer.logits(), atol=1e-4)
        chosen = peer.likeliest()
        peer.step()
        assert torch.allclose(peer.logits(), own_logits(peer, [*peer.tokens, chosen]), atol=1e-4)
        peer.rewind()
        assert peer.cache.get_seq_length() == 60
        peer.prefix()
        assert torch.allclose(peer.logits(), over_prefix, atol=1e-5)
        assert [way.name for way in peer.ways()] == [f"transformers:{kind}" for kind in peer.kinds]
        assert all(values for values in timed(peer.ways(), 1, 0, lambda _: None).values())


def test_the_prototype_computes_what_we_compute_over_modules(folder: Path) -> None:
    ours = Forward(load(str(folder)), 60, 3, 5, 2, lambda _: None)
    with prototype.opened(shape(folder)) as peer:
        assert isinstance(peer, prototype.Copied)
        for _ in range(2):  # the buffer is filled anew, whatever an answer left
            peer.rewind()
            peer.prefix()
            assert torch.allclose(peer.logits(), ours.in_place()[0], atol=1e-4)
            assert not torch.allclose(peer.logits(), ours.uncached()[0], atol=1e-4)
            peer.step()
            assert peer.cache.get_seq_length() == 66
        assert [way.name for way in peer.ways()] == ["paper's prototype:prefix", "paper's prototype:answer"]


@pytest.mark.skipif(bool(llamacpp.peer().absent), reason=llamacpp.peer().absent or "llama.cpp is here")
@pytest.mark.parametrize("family", ["llama", "llama-gqa"])
def test_llama_cpp_computes_what_we_compute(tmp_path: Path, family: str) -> None:
    folder = save_tiny(tmp_path, family)
    ours = Forward(load(str(folder)), 60, 3, 5, 2, lambda _: None).uncached()[0]
    with llamacpp.opened(shape(folder), cache_format="F32") as peer:
        assert isinstance(peer, llamacpp.FasterOfTwo)
        # flash attention adds up in fp16, whatever the cache is in
        for side, within in zip(peer.sides.values(), (1e-4, 2e-2), strict=True):
            for way in ("prefix", "full", "state_file", "prefix"):
                side.rewind()
                getattr(side, way)()
                assert torch.allclose(torch.tensor(side.logits()), ours, atol=within), way
            chosen = side.likeliest()
            side.step()
            with prefixed(folder) as other:
                expected = own_logits(other, [*other.tokens, chosen])
            assert torch.allclose(torch.tensor(side.logits()), expected, atol=within)
        samples = timed(peer.ways(), 1, 0, lambda _: None)
        assert (
            list(samples)
            == sorted(peer.settings(), key=list(samples).index)
            == [f"llama.cpp:{kind}" for kind in llamacpp.KINDS]
        )


def test_llama_cpp_is_asked_for_plain_llamas_only(tmp_path: Path) -> None:
    for family in ("qwen2", "llama3-scaling"):
        config = load(str(save_tiny(tmp_path / family, family))).config
        with pytest.raises(PromptCacheError, match="plain llama"):
            require_plain_llama(config)


def test_the_faster_of_two_settings_is_timed_and_named() -> None:
    class Lasting(Counting):
        def __init__(self, full: float, prefix: float) -> None:
            super().__init__(shape())
            self.lasts = {"full": full, "prefix": prefix}

        def ways(self) -> list[Way]:
            return [Way(f"llama.cpp:{kind}", self.taking(kind, ms)) for kind, ms in self.lasts.items()]

        def taking(self, kind: str, ms: float) -> Callable[[], float]:
            return lambda: self.log.append(kind) or ms

    without, flash = Lasting(9000, 30), Lasting(8000, 40)
    both = llamacpp.FasterOfTwo(without, flash)
    assert both.settings() == {}
    assert timed(both.ways(), 2, 0, lambda _: None) == {
        "llama.cpp:full": [8000, 8000],
        "llama.cpp:prefix": [30, 30],
    }
    assert both.settings() == {
        "llama.cpp:full": "with flash attention",
        "llama.cpp:prefix": "without flash attention",
    }
    assert without.log.count("full") == 1  # what takes long is tried once
    assert flash.log.count("prefix") == 3


def test_a_prompt_that_does_not_fit_is_refused_before_it_is_timed(folder: Path) -> None:
    with pytest.raises(PromptCacheError, match="do not fit"), prototype.opened(shape(folder, cached=10**6)):
        pass


@contextmanager
def prefixed(folder: Path) -> Iterator[transformers_sdpa.Prefixed]:
    with transformers_sdpa.opened(shape(folder)) as peer:
        assert isinstance(peer, transformers_sdpa.Prefixed)
        yield peer


def own_logits(peer: transformers_sdpa.Prefixed, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return peer.network(torch.tensor([tokens]), use_cache=False).logits[0, -1]
