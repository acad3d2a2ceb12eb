"""Schemas and prompts that are held: prepared once, answered as often as wanted."""

from __future__ import annotations

import contextlib
import datetime
import gc
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine import (
    Engine,
    Finished,
    FirstToken,
    Model,
    PromptCacheError,
    PromptError,
    RunSettings,
    SettingsError,
)
from engine.base.errors import CancelledError
from engine.base.events import Listener
from engine.model.network import Network
from engine.prompt import recipe, tokenized
from engine.prompt.template.chat_template import ChatFormat
from engine.store import Store
from tests.engine.cases import model_of
from tests.engine.tiny import DATED, tiny_model

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = (
    '<schema name="s"><user>Go. <module name="a">one</module><module name="b">two</module></user></schema>'
)
PROMPT = '<prompt schema="s"><a/><b/><user>So?</user></prompt>'


@pytest.fixture
def engine(tmp_path: Path):
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "store")) as opened:
        yield opened


def test_wide_schemas_do_not_all_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many objects would make the garbage collector pause for all others."""

    def wide(number: int) -> str:
        modules = "".join(f'<module name="m{at}">{number} </module>' for at in range(102))
        return f'<schema name="wide">{modules}</schema>'

    monkeypatch.setattr("engine.engine._RUNS", 300)
    with Engine(tiny_model(), Store.open(tmp_path)) as engine:
        small = engine.schema(SCHEMA)
        held = [weakref.ref(engine.schema(wide(0)))]
        for number in range(1, 4):
            held.append(weakref.ref(engine.schema(wide(number))))
            assert engine.schema(SCHEMA) is small, "what is used stays"
        gc.collect()
        assert [one() is not None for one in held] == [False, False, True, True]
        latest = held[-1]()
        assert latest is engine.schema(wide(3))


def test_the_whole_way_from_files(tmp_path: Path) -> None:
    (tmp_path / "s.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "p.pml").write_text(PROMPT, encoding="utf-8")
    with Engine.open("demo", cache_dir=tmp_path / "store") as engine:
        prompt = engine.schema(tmp_path / "s.pml").prompt(tmp_path / "p.pml")
        cached = prompt.answer(max_new_tokens=4)
        uncached = prompt.answer(max_new_tokens=4, mode="uncached")
    assert cached.tokens["from_cache"] > 0 == uncached.tokens["from_cache"]
    assert cached.tokens["prompt"] == uncached.tokens["prompt"]
    assert len(cached.token_ids) == cached.tokens["generated"] <= 4
    assert cached.text


def test_an_answer_is_what_its_events_say(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    *_, last = prompt.stream(max_new_tokens=4)
    assert isinstance(last, Finished)
    assert last.answer.token_ids == prompt.answer(RunSettings(max_new_tokens=4)).token_ids


def test_a_schema_is_laid_out_once_and_a_prompt_planned_once(engine: Engine) -> None:
    with (
        mock.patch.object(tokenized, "lay_out", wraps=tokenized.lay_out) as laid_out,
        mock.patch.object(tokenized, "make_plan", wraps=tokenized.make_plan) as planned,
    ):
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        for mode in ("cached", "uncached", "both"):
            list(prompt.stream(mode=mode, max_new_tokens=2))
        prompt.plan()
        prompt.check()
        assert engine.schema(SCHEMA) is prompt.schema
    assert laid_out.call_count == planned.call_count == 1


def test_the_segments_of_a_schema_are_named_once_for_all_its_prompts(engine: Engine) -> None:
    schema = engine.schema(SCHEMA)
    with mock.patch.object(recipe, "segment_key", wraps=recipe.segment_key) as named:
        schema.encode()
        once = named.call_count
        schema.prompt(PROMPT).plan()
        schema.prompt('<prompt schema="s"><b/></prompt>').plan()
        schema.layout()
    assert once == named.call_count == len([run for run in schema.tokenized.layout.runs if run.cacheable])
    assert schema.tokenized.recipes("isolated") is not schema.tokenized.recipes("anchored")


def test_a_file_that_cannot_be_read_is_said_in_words(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "latin.pml").write_bytes(b"<prompt>caf\xe9</prompt>")
    with pytest.raises(PromptCacheError, match=r"none\.pml does not exist"):
        engine.schema(tmp_path / "none.pml")
    with pytest.raises(PromptCacheError, match=r"latin\.pml is not UTF-8: byte 0xE9 in line 1"):
        engine.schema(SCHEMA).prompt(tmp_path / "latin.pml")


def test_reading_and_planning_count_in_every_answer_of_either_side(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    planned = prompt.tokenized.planned()
    for mode in ("cached", "uncached", "cached"):
        answer = prompt.answer(mode=mode, max_new_tokens=1)
        assert answer.timeline_ms["parse"] == prompt.parse_ms > 0
        naming = planned.recipes_ms if mode == "cached" else 0
        assert answer.timeline_ms["plan"] == pytest.approx(planned.plan_ms + naming)
        assert answer.ttft_ms == pytest.approx(sum(answer.timeline_ms.values()))


def test_a_schema_that_reads_files_is_prepared_again(engine: Engine, tmp_path: Path) -> None:
    source = '<schema name="s"><module name="a" src="a.txt"/></schema>'
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    first = engine.schema(source, base=tmp_path).layout().modules[0].tokens
    (tmp_path / "a.txt").write_text("one two", encoding="utf-8")
    assert engine.schema(source, base=tmp_path).layout().modules[0].tokens > first


def test_faults_come_all_at_once_as_one_error(engine: Engine) -> None:
    with pytest.raises(PromptError) as schema:
        engine.schema(
            '<schema name="s"><module name="a">x</module><module name="a">y</module><modul/></schema>'
        )
    assert len(schema.value.diagnostics) > 1
    with pytest.raises(PromptError) as prompt:
        engine.schema(SCHEMA).prompt("<prompt><nowhere/><nothing/></prompt>")
    assert len(prompt.value.diagnostics) == 2


def test_a_setting_out_of_range_is_refused_before_anything_is_computed(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    with mock.patch.object(engine.model.network, "forward", side_effect=AssertionError):
        for wrong in ({"temperature": -1}, {"max_new_tokens": 10**400}, {"repetition_penalty": 1e-300}):
            with pytest.raises(SettingsError, match=next(iter(wrong))):
                prompt.answer(**wrong)
        with pytest.raises(SettingsError, match=r"no setting 'max_tokens'; there are .*max_new_tokens"):
            prompt.answer(max_tokens=3)


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_programs_of_the_pages_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    with contextlib.chdir(ROOT):
        for program in programs:
            exec(compile(program, page, "exec"), {})
            assert capsys.readouterr().out.strip()
    assert programs


def test_a_mode_that_is_none_is_refused(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    with pytest.raises(SettingsError, match="it must name both sides"):
        prompt.stream(mode="both", order=("cached", "cached"))
    for ask in (prompt.answer, prompt.stream):
        with pytest.raises(SettingsError, match="mode is 'uncahced'; it must be one of cached, uncached"):
            ask(mode="uncahced")  # type: ignore[arg-type]


def test_a_temperature_near_zero_is_the_likeliest_token(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    cold = prompt.answer(max_new_tokens=4, temperature=1e-300)
    assert cold.token_ids == prompt.answer(max_new_tokens=4).token_ids


def test_a_prompt_that_is_held_follows_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    model.tokenizer.chat_template = DATED
    dated = Model("tiny", model.network.module, model.tokenizer, "dated")
    with Engine(dated, Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        for day in (30, 31):
            monkeypatch.setattr(ChatFormat, "today", lambda _, day=day: datetime.date(2026, 1, day))
            for scope in ("anchored", None):
                read = engine.model.tokenizer.decode(prompt.tokenized.planned(scope).plan.token_ids)
                assert f"Today: {day} Jan 2026" in read


def test_both_sides_read_the_same_prompt_over_midnight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    model.tokenizer.chat_template = DATED
    dated = Model("tiny", model.network.module, model.tokenizer, "dated")
    with Engine(dated, Store.open(tmp_path)) as engine:
        monkeypatch.setattr(ChatFormat, "today", lambda _: datetime.date(2026, 1, 30))
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        logits = []
        for event in prompt.stream(mode="both", scope="scaffold", max_new_tokens=1):
            if isinstance(event, Finished):
                logits.append(event.answer.first_logits)
            monkeypatch.setattr(ChatFormat, "today", lambda _: datetime.date(2026, 1, 31))
    assert (logits[0] - logits[1]).abs().max() < 1e-4


def test_an_abandoned_answer_may_be_collected_anywhere(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end takes no lock: the thread in which it is collected may hold any."""
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    before = engine.store.stats()
    events = prompt.stream(max_new_tokens=4)
    while not isinstance(next(events), FirstToken):
        pass
    circle: list[object] = [events]
    circle.append(circle)
    plain = tokenized.lay_out
    collected: list[int] = []

    def collecting(*given: Any, **named: Any) -> Any:
        collected.append(gc.collect())
        return plain(*given, **named)

    monkeypatch.setattr(tokenized, "lay_out", collecting)
    tomorrow = datetime.date.today() + datetime.timedelta(days=1)
    monkeypatch.setattr(ChatFormat, "today", lambda _: tomorrow)
    del events, circle
    planning = threading.Thread(target=prompt.plan, daemon=True)
    planning.start()
    planning.join(60)
    assert not planning.is_alive()
    assert collected[0] > 0
    prompt.answer(max_new_tokens=1)  # with its own, what the abandoned one read is counted
    after = engine.store.stats()
    assert (after.hits + after.misses) - (before.hits + before.misses) == 2 * 3


def test_what_a_reader_takes_its_time_for_is_in_no_clock(engine: Engine) -> None:
    now = [0.0]
    with mock.patch("time.perf_counter", side_effect=lambda: now[0]):
        for event in engine.schema(SCHEMA).prompt(PROMPT).stream(max_new_tokens=3):
            now[0] += 1000
            if isinstance(event, Finished):
                assert event.answer.ttft_ms == sum(event.answer.timeline_ms.values()) == 0
                assert event.answer.tpot_ms == 0


def test_what_a_prompt_lacks_is_encoded_ahead_of_its_answer(tmp_path: Path) -> None:
    def opened() -> Engine:
        return Engine(tiny_model(), Store.open(tmp_path / "store"))

    with opened() as engine:
        told: list[str] = []
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        made = prompt.encode(RunSettings(), lambda _done, _total, what: told.append(what))
        assert told[0].startswith("encoding ")
        assert made.modules == ("", "a", "b")
        assert (made.segments, made.others, made.others_ms) == (3, 0, 0.0)
        assert made.ms > 0
        assert made.tokens >= prompt.plan().cached_tokens
        answer = prompt.answer(max_new_tokens=2)
        assert {use.outcome for use in answer.segments} == {"hit"}
        assert "encode" not in answer.timeline_ms
        again = prompt.encode()
        assert (again.segments, again.tokens, again.ms, again.others) == (0, 0, 0.0, 3)
        assert again.others_ms is not None
        assert 0 < again.others_ms <= made.ms
        other = engine.schema(SCHEMA).prompt(PROMPT).encode(scope="isolated")
        assert other.modules == ("a", "b"), "what stands first sees nothing either way"
        stats = engine.store.stats()
        assert (stats.segments, stats.misses, stats.hits) == (5, 5, 3)
    with opened() as engine:
        late = engine.schema(SCHEMA).prompt(PROMPT).encode()
        assert late.segments == 0
        assert late.others_ms == pytest.approx(again.others_ms), "as it was written down"


def test_nobody_knows_what_was_encoded_and_not_stored_took(tmp_path: Path) -> None:
    with Engine(tiny_model(), Store.open(tmp_path / "store")) as engine:
        engine.store.set_budget(0)
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        assert prompt.encode().segments == 3
        again = prompt.encode()
        assert (again.segments, again.others, again.others_ms) == (0, 3, None)


def test_encoding_that_nobody_wants_any_more_is_left(engine: Engine) -> None:
    schema = engine.schema(SCHEMA)
    asked = iter([False, True])
    with pytest.raises(CancelledError):
        schema.encode(listener=Listener(stopped=lambda: next(asked)))
    listener = Listener(stopped=lambda: True)
    with pytest.raises(CancelledError):
        list(schema.prompt(PROMPT).encoding(listener=listener))
    assert engine.store.stats().segments == 0
    assert schema.encode().encoded == 3


def test_every_part_of_a_time_has_what_it_took(engine: Engine) -> None:
    now = [0.0]

    def a_second(compute: Callable[..., Any]) -> Any:
        def computing(*given: Any, **options: Any) -> Any:
            now[0] += 1
            return compute(*given, **options)

        return mock.patch.object(Network, compute.__name__, computing)

    clock = mock.patch("time.perf_counter", side_effect=lambda: now[0])
    with clock, a_second(Network.forward), a_second(Network.encode):
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        first, again = prompt.answer(max_new_tokens=3), prompt.answer(max_new_tokens=3)
        whole = prompt.answer(mode="uncached", max_new_tokens=3)
    assert first.timeline_ms["encode"] == 1000  # one pass over all of them
    assert first.ttft_ms == 2000
    assert again.ttft_ms == whole.ttft_ms == 1000
    assert {answer.timeline_ms["prefill"] for answer in (first, again, whole)} == {1000}
    assert {answer.tpot_ms for answer in (first, again, whole)} == {1000}


def test_what_answers_read_is_counted_once(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    read = [len(prompt.answer(max_new_tokens=1).segments) for _ in range(3)]
    stats = engine.store.stats()
    assert (stats.misses, stats.hits) == (read[0], read[1] + read[2])
    counts = dict.fromkeys(("hit", "miss"), 0)
    for row in stats.served:
        counts[row["outcome"]] += row["count"]
    assert counts == {"miss": stats.misses, "hit": stats.hits}
