"""What is missing goes through in passes: the same segments, nothing twice, no lock kept from others."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.kills import context
from engine.base.choices import SCOPES
from engine.base.events import Finished, Working
from engine.base.segment import Placement, Segment
from engine.base.stopwatch import Stopwatch
from engine.cache import encoding
from engine.cache.encoder import Rows
from engine.cache.fetched import Request
from engine.cache.segment_cache import wanted
from engine.checkpoint.synthetic import byte_tokenizer
from engine.engine import Engine
from engine.kv_cache.packed_kv_cache import PackedText
from engine.model.model import Model
from engine.model.network import Network
from engine.prompt.recipe import Recipe
from engine.store import Store
from tests.drawing import each
from tests.engine.cache.segments import LOADED
from tests.engine.cases import held_in_memory, model_of
from tests.engine.tiny import DENSE, FAMILIES, tiny_model, tiny_network

PROCESSES = context(*LOADED)
SCHEMA = """<schema name="s">Read this and that.
  <module name="a">alpha beta <param name="n" len="3"/> gamma
    <module name="inner">inside of alpha, after it</module> and its end</module>
  <module name="b">bee</module>
  <union><module name="c">sea, which is rather longer than a bee and than the text</module>
  <module name="d">dee</module></union>
  <scaffold modules="a b"/>
</schema>"""
PROMPT = """<prompt schema="s"><a n="1"><inner/></a><c/> new text
<user>Hi.</user><assistant>Yes?</assistant>go</prompt>"""


def made(model: Model, folder: Path, scope: Any, *, prompted: bool) -> dict[str, Segment]:
    """The segments of a schema, or of one prompt over it, by key."""
    with Engine(model, Store.open(folder)) as engine:
        schema = engine.schema(SCHEMA)
        if prompted:
            placement: Any = "compact" if model.relocatable else "schema"
            schema.prompt(PROMPT).answer(scope=scope, max_new_tokens=1, placement=placement)
        else:
            schema.encode(scope=scope)
        return held_in_memory(engine)


def one_by_one(
    model: Model, recipes: Sequence[Recipe], segments: Mapping[str, Segment], _: Rows
) -> Generator[int, None, list[Segment]]:
    """A recipe's segment as the tail of a whole pass of its own over placed segments."""
    yield from ()
    (recipe,) = recipes
    context = [Placement(segments[one.recipe.key], one.lo, one.hi, one.start) for one in recipe.context]
    kv = model.network.kv_cache(context, recipe.tokens)
    model.network.forward(recipe.token_ids, range(recipe.start, recipe.start + recipe.tokens), kv)
    return [Segment(recipe.key, recipe.token_ids, *kv.tail)]


def apart(one: dict[str, Segment], other: dict[str, Segment]) -> float:
    """The greatest difference of keys or values, by their spread."""
    assert set(one) == set(other)
    misses = [0.0]
    for key, segment in one.items():
        for states, right in ((segment.keys, other[key].keys), (segment.values, other[key].values)):
            assert states.shape == right.shape
            misses.append(float((states - right).abs().max() / right.std()))
    return max(misses)


@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "gemma2", "gpt2", "bloom"))
def test_texts_that_go_through_together_come_out_as_each_alone(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family)
    assert model.packs == (family not in DENSE)
    together = {scope: made(model, tmp_path / scope, scope, prompted=True) for scope in SCOPES}
    whole = made(model, tmp_path / "whole", "anchored", prompted=False)
    monkeypatch.setattr(encoding, "PASS_TEXTS", 1)
    monkeypatch.setattr(encoding, "encode_in_parts", one_by_one)
    for scope in SCOPES:
        alone = made(model, tmp_path / f"{scope} alone", scope, prompted=True)
        assert len(alone) >= 4
        assert apart(together[scope], alone) <= 1e-4, scope
    assert apart(whole, made(model, tmp_path / "whole alone", "anchored", prompted=False)) <= 1e-4


def in_parts(model: Model, folder: Path, scope: Any, rows: Rows) -> tuple[dict[str, Segment], list[Working]]:
    """The segments that a prompt reads, encoded in passes of so many tokens, and what was told meanwhile."""
    with Engine(model, Store.open(folder)) as engine:
        placement: Any = "compact" if model.relocatable else "schema"
        uses = engine.schema(SCHEMA).prompt(PROMPT).tokenized.planned(scope, placement).slices
        steps = engine.segment_cache.segments(wanted(uses), Request("s", scope, rows=rows), Stopwatch())
        told: list[Working] = []
        while True:
            try:
                told.append(next(steps))
            except StopIteration as end:
                with end.value:
                    return held_in_memory(engine), told


@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "mistral-swa", "gpt2", "bloom"))
def test_texts_in_parts_come_out_as_whole(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sizes, bounds = model_of(family), list[int](), (5, 11, 1, 7)
    encode = Network.encode

    def counted(network: Network, texts: Sequence[PackedText]) -> None:
        sizes.append(sum(text.segment.tokens for text in texts))
        encode(network, texts)

    monkeypatch.setattr(Network, "encode", counted)
    for scope in SCOPES:
        sizes.clear()
        whole, _ = in_parts(model, tmp_path / scope, scope, lambda: None)
        tokens = sum(sizes)
        sizes.clear()
        parts, told = in_parts(model, tmp_path / f"{scope} in parts", scope, partial(next, cycle(bounds)))
        assert apart(parts, whole) <= 1e-4, scope
        assert sum(sizes) == tokens, "nothing twice"
        if model.packs and model.relocatable:
            assert max(sizes) <= max(bounds)
            assert len(told) == len(sizes) + 1, "a pause before each pass, and one at the end"


def test_who_leaves_between_two_parts_lets_others_encode(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        uses = engine.schema(SCHEMA).prompt(PROMPT).tokenized.planned("anchored", "compact").slices
        steps = engine.segment_cache.segments(
            wanted(uses), Request("s", "anchored", rows=lambda: 3), Stopwatch()
        )
        for _ in range(4):
            next(steps)
        steps.close()
        assert not engine.memory_tier.held
        answer = engine.schema(SCHEMA).prompt(PROMPT).answer(max_new_tokens=1)
        assert {use.outcome for use in answer.segments} == {"miss"}
        assert answer.waited_ms < 30_000, "nobody is waited for who has left"


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_what_is_rounded_for_the_store_is_seen_as_it_is_read_back(
    scheme: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("llama-gqa", chat=False)
    for name in ("together", "alone"):
        Store.open(tmp_path / name).settings.set_scheme(scheme)
    together = made(model, tmp_path / "together", "anchored", prompted=True)
    monkeypatch.setattr(encoding, "PASS_TEXTS", 1)
    alone = made(model, tmp_path / "alone", "anchored", prompted=True)
    assert apart(together, alone) <= 0.2, "rounding may take another step; seeing what is not rounded shows"


class Passes:
    """Counts the passes of a network, and the texts in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.keys: list[str] = []
        self.tokens = 0
        encode = Network.encode

        def counted(network: Network, texts: Sequence[PackedText]) -> None:
            self.sizes.append(len(texts))
            self.keys += [text.segment.key for text in texts]
            self.tokens += sum(text.segment.tokens for text in texts)
            encode(network, texts)

        monkeypatch.setattr(Network, "encode", counted)


def test_a_first_run_of_the_sample_takes_one_pass_and_computes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = Path(__file__).parents[3] / "sample_schemas"
    model = Model("long", tiny_network(length=32768), byte_tokenizer(), "long")
    monkeypatch.setattr(encoding, "CPU_PASS_TOKENS", 32768)
    with Engine(model, Store.open(tmp_path)) as engine:
        text = (samples / "travel.pml").read_text(encoding="utf-8")
        schema = engine.schema(text.replace('len="5"', 'len="9"'))  # a token per byte
        prompt = schema.prompt(samples / "travel.prompt.1.pml")
        passes = Passes(monkeypatch)
        answer = prompt.answer(max_new_tokens=1)
        assert len(passes.sizes) == 1
        assert len(passes.keys) == len(set(passes.keys))
        unread = 9 + 1  # the slot's stand-ins, and the seam of what ends the turn
        assert passes.tokens - unread == answer.tokens["encoded"] == answer.tokens["from_cache"]
        assert answer.tokens["prompt"] == answer.tokens["encoded"] + answer.tokens["computed"]


@pytest.mark.parametrize(("most", "count"), [("PASS_TEXTS", 2), ("CPU_PASS_TOKENS", 30)])
def test_a_pass_is_bounded_and_progress_is_told_before_each(
    most: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, most, count)
    told = list[tuple[int, int, str]]()
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as engine:
        passes = Passes(monkeypatch)  # without those that measure a new model
        schema = engine.schema(SCHEMA)
        report = schema.encode(progress=lambda *step: told.append(step))
        assert report.encoded == report.total == report.kept
        if most == "PASS_TEXTS":
            assert max(passes.sizes) == 2
        assert len(passes.sizes) > 2
        assert len(set(passes.keys)) == report.total
    assert len(told) == len(passes.sizes) + 1
    dones = [done for done, _, _ in told]
    assert dones == sorted(dones)
    assert told[0][:2] == (0, report.tokens)
    assert told[-1][:2] == (report.tokens, report.tokens)
    assert told[0][2].startswith("encoding fixed text")
    assert told[0][2].endswith(f" (0 of {report.total} segments)")


def test_a_long_segment_shows_how_many_of_its_tokens_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CPU_PASS_TOKENS", 10)
    told = list[tuple[int, int, str]]()
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as engine:
        schema = engine.schema('<schema name="s"><module name="a">twenty-four letters here</module></schema>')
        tokens = schema.encode(progress=lambda *step: told.append(step)).tokens
    assert tokens > 20
    assert told == [*((done, tokens, "encoding a") for done in (0, 10, 20)), (tokens, tokens, "encoded")]


def encode_in_its_order(folder: str, backwards: bool, start: Any) -> None:
    """Encodes modules that overlap with another process's, in its own order."""
    with Engine(tiny_model(chat=False), Store.open(Path(folder))) as engine:
        modules = [f"<m{i}/>" for i in range(12)]
        text = "".join(f'<module name="m{i}">module number {i}</module>' for i in range(12))
        schema = engine.schema(f'<schema name="s">All. {text}</schema>')
        start.wait(60)
        for first in range(0, 12, 3):
            names = modules[first : first + 6]
            prompt = schema.prompt(f"<prompt>{''.join(reversed(names) if backwards else names)} go</prompt>")
            prompt.answer(max_new_tokens=1)


@pytest.mark.long
def test_two_processes_with_overlapping_sets_both_end(tmp_path: Path) -> None:
    start = PROCESSES.Event()
    workers = [
        PROCESSES.Process(target=encode_in_its_order, args=(str(tmp_path), backwards, start))
        for backwards in (False, True)
    ]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = Store.open(tmp_path)
    assert store.verify().clean
    assert store.stats().segments == 13
    assert list((tmp_path / "locks").iterdir()) == []
    store.close()


def test_while_another_is_at_one_segment_the_others_are_made_and_no_lock_is_kept(tmp_path: Path) -> None:
    """An anchor that somebody else computes bars what sees it; everything else goes on, and is free again."""
    model = model_of("llama-gqa", chat=False)
    wanted = made(model, tmp_path / "other", "isolated", prompted=False)
    with Engine(model, Store.open(tmp_path / "shared")) as engine:
        barred = next(key for key, one in wanted.items() if bytes(t % 256 for t in one.token_ids))
        ended = threading.Thread(target=lambda: engine.schema(SCHEMA).encode(scope="isolated"))
        with engine.store.disk.compute_lock(barred, 60):
            ended.start()
            while len(engine.store.contains(wanted)) < len(wanted) - 2:
                time.sleep(0.01)
            engine.store.finish_writing()
            free = [key for key in engine.store.contains(wanted) if key != barred]
            for key in free:
                with engine.store.try_compute_lock(key) as taken:
                    assert taken, "it was handed back"
        ended.join()
        assert engine.store.contains(wanted) == set(wanted)


def test_who_waits_for_another_program_keeps_nobody_waiting_and_counts_none_of_it(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as engine:
        schema = engine.schema('<schema name="s"><module name="m">what both want</module></schema>')
        unrelated = engine.schema('<schema name="t"><module name="n">of nobody else</module></schema>')
        (key,) = (one.key for one in schema.tokenized.recipes("anchored").of_schema(1000))
        began = time.perf_counter()
        with ExitStack() as another:
            assert another.enter_context(engine.store.try_compute_lock(key))
            steps = schema.prompt("<prompt><m/> go</prompt>").stream(max_new_tokens=1)
            events = [next(steps), next(steps)]
            assert isinstance(events[1], Working)
            assert events[1].what == "another program encodes m"
            assert unrelated.prompt("<prompt><n/> go</prompt>").answer(max_new_tokens=1).token_ids
            letting_go = threading.Timer(0.5, another.close)
            letting_go.start()
            events += steps
            letting_go.join()
        (answer,) = (event.answer for event in events if isinstance(event, Finished))
        took = time.perf_counter() - began
        assert answer.waited_ms >= 300, "about as long as it was kept from it"
        assert answer.ttft_ms <= (took - 0.3) * 1000 + answer.timeline_ms["parse"]
