"""Schemas and prompts that are held: prepared once, answered as often as wanted."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from unittest import mock

import pytest

from engine import Engine, Finished, PromptCacheError, PromptError, RunSettings, SettingsError
from engine.cache.store import Store
from engine.prompt import recipe, tokenized
from tests.engine.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = (
    '<schema name="s"><user>Go. <module name="a">one</module><module name="b">two</module></user></schema>'
)
PROMPT = '<prompt schema="s"><a/><b/><user>So?</user></prompt>'


@pytest.fixture
def engine(tmp_path: Path):
    with Engine(tiny_model(), Store.open(tmp_path / "store")) as opened:
        yield opened


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
    with mock.patch.object(engine.model, "forward", side_effect=AssertionError), pytest.raises(SettingsError):
        prompt.answer(temperature=-1)


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_programs_of_the_pages_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    with contextlib.chdir(ROOT):
        for program in programs:
            exec(compile(program, page, "exec"), {})
            assert capsys.readouterr().out.strip()
    assert programs
