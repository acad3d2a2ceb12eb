"""Nothing is computed where a model does not read: prompts, and segments with what they are encoded after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.base.events import Answer, Finished
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of, prompt_of, schema_of

WINDOW = 2048  # of every tiny model
QUESTION = "<prompt>{} well?</prompt>"
SLOT = (
    f'<schema name="s">Read. {"w" * 1000}<module name="n">short</module>'
    f'<module name="m">{"x" * 900} <param name="p" len="200"/></module></schema>'
)
SHORT = RunSettings(max_new_tokens=3)


@pytest.fixture(params=each(["llama-gqa", "gpt2", "falcon"], "gpt2"))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = Engine(model_of(request.param), Store.open(tmp_path))
    assert opened.model.context_length == WINDOW
    yield opened
    opened.close()


@pytest.fixture
def llama(tmp_path: Path) -> Any:
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


def answer(engine: Engine, schema: str, prompt: str, settings: RunSettings, mode: Any = "cached") -> Answer:
    events = engine.schema(schema_of(schema)).prompt(prompt_of(prompt)).stream(settings, mode=mode)
    return next(e.answer for e in events if isinstance(e, Finished))


def refused(
    engine: Engine, schema: str, prompt: str, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The one fault that every entry finds before it computes anything."""
    tree, bound = schema_of(schema), prompt_of(prompt)
    entries = [
        lambda: list(engine.schema(schema).prompt(prompt).stream(settings)),
        lambda: list(engine.schema(tree).prompt(bound).stream(settings, mode="cached")),
        lambda: list(
            engine.schema(tree).prompt(bound).stream(settings, mode="both", order=("uncached", "cached"))
        ),
        lambda: engine.schema(tree).prompt(bound).plan(settings),
        lambda: engine.schema(tree).prompt(bound).fidelity(settings),
    ]
    checked = engine.check(tree, bound, placement=settings.placement, scope=settings.scope)
    (found,) = (one for one in checked if one.severity == "error")
    with monkeypatch.context() as patched:
        patched.setattr(engine.model.network, "forward", None)
        patched.setattr(engine.model.network, "first_keys", None)
        for entry in entries:
            with pytest.raises(PromptError) as error:
                entry()
            assert [d.message for d in error.value.diagnostics] == [found.message]
    assert engine.store.stats().segments == 0
    assert found.code == "E502"
    assert found.hint
    return found.message


def test_a_slot_that_makes_a_module_too_long_is_refused_everywhere(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = QUESTION.format('<m p="a"/>')
    words = refused(engine, SLOT, prompt, SHORT, monkeypatch)
    assert "'m'" in words
    assert str(WINDOW - 1) in words
    (of_schema,) = engine.check(schema_of(SLOT))
    assert (of_schema.code, "'m'" in of_schema.message) == ("E502", True)
    with pytest.raises(PromptError, match="E502"):
        engine.schema(schema_of(SLOT)).encode()
    place = prompt_of(prompt).span.start + prompt.index("m p=")
    found = engine.check(schema_of(SLOT), prompt_of(prompt))
    assert [one.span.start for one in found if one.severity == "error"] == [place]


def test_what_needs_no_such_segment_is_answered(engine: Engine) -> None:
    prompt = QUESTION.format('<m p="a"/>')
    plain = answer(engine, SLOT, prompt, SHORT, "uncached")
    exact = answer(engine, SLOT, prompt, RunSettings(max_new_tokens=3, scope="scaffold"))
    assert plain.token_ids == exact.token_ids
    uncached = SLOT.replace('name="m"', 'name="m" cache="false"')
    assert engine.check(schema_of(uncached)) == ()
    assert answer(engine, uncached, prompt, SHORT).token_ids == plain.token_ids
    assert answer(engine, SLOT, QUESTION.format("<n/>"), SHORT).tokens["from_cache"] > 1000


def test_an_uncached_module_that_no_prompt_can_hold_is_said(llama: Engine) -> None:
    schema = f'<schema name="s"><module name="m" cache="false">{"x" * WINDOW}</module></schema>'
    (found,) = llama.check(schema_of(schema))
    assert found.code == "E502"


def test_a_scope_is_checked_as_it_is_encoded(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = QUESTION.format('<m p="a"/>')
    isolated = RunSettings(max_new_tokens=3, scope="isolated")
    checked = llama.check(schema_of(SLOT), prompt_of(prompt), scope="isolated")
    assert {one.severity for one in checked} <= {"warning"}
    assert answer(llama, SLOT, prompt, isolated).tokens["from_cache"] > 900
    assert llama.schema(schema_of(SLOT)).encode(scope="isolated").encoded > 0
    llama.store.clear()
    llama.memory_tier.clear()
    longer = SLOT.replace('len="200"', 'len="1200"')
    assert "'m'" in refused(llama, longer, prompt, isolated, monkeypatch)
    with pytest.raises(PromptError, match="E502"):
        llama.schema(schema_of(longer)).encode(scope="isolated")


@pytest.mark.parametrize("scope", ["isolated", "anchored"])
def test_a_scaffold_is_checked_as_one(llama: Engine, scope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = (
        f'<schema name="s"><module name="a">{"x" * 900}<param name="p" len="300"/></module>'
        f'<module name="b">{"y" * 900}</module><scaffold modules="a b"/></schema>'
    )
    settings = RunSettings(max_new_tokens=3, scope=scope)
    words = refused(llama, schema, QUESTION.format('<a p="1"/><b/>'), settings, monkeypatch)
    assert "'b'" in words
    assert [d.code for d in llama.check(schema_of(schema))] == ["W606"]
    assert llama.schema(schema_of(schema)).encode(scope=scope).encoded == 3  # with the first token
    assert answer(llama, schema, QUESTION.format("<b/>"), settings).tokens["from_cache"] == 901


def test_schema_placement_counts_its_gaps(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = (
        f'<schema name="s"><module name="m">{"x" * 100}<union><module name="long">{"y" * 1500}</module>'
        f'<module name="short">y</module></union>{"z" * 300}<param name="p" len="300"/></module></schema>'
    )
    prompt = QUESTION.format('<m p="1"><short/></m>')
    assert answer(llama, schema, prompt, SHORT).tokens["from_cache"] > 300
    llama.store.clear()
    llama.memory_tier.clear()
    spread = RunSettings(max_new_tokens=3, placement="schema")
    assert "'m'" in refused(llama, schema, prompt, spread, monkeypatch)


def test_a_measurement_tries_no_scaffold_that_does_not_fit(llama: Engine) -> None:
    schema = (
        f'<schema name="s">Now: <module name="a">{"xyz" * 300}<param name="p" len="600"/></module>'
        f'<module name="b">{"yxx" * 200}</module></schema>'
    )
    prompt = prompt_of(QUESTION.format('<a p="1"/><b/>'))
    found = llama.schema(schema_of(schema)).prompt(prompt).fidelity(SHORT)
    assert found.remedies
    assert not any(remedy.scaffold for remedy in found.remedies)


def test_an_answer_that_the_window_cuts_says_so(engine: Engine) -> None:
    room = 4
    empty = (
        engine.schema(schema_of('<schema name="s"><user>x</user></schema>'))
        .prompt(prompt_of(QUESTION.format("")))
        .plan()
        .total_tokens
    )
    text = "x" * (1 + WINDOW - empty - room)
    schema = f'<schema name="s"><user>{text}</user></schema>'
    for mode in ("cached", "uncached"):
        cut = answer(engine, schema, QUESTION.format(""), RunSettings(max_new_tokens=9), mode)
        if cut.stopped == "length":
            assert cut.tokens["generated"] == room
            assert any(f"room for {room} of the 9 tokens" in words for words in cut.warnings)
        short = answer(engine, schema, QUESTION.format(""), RunSettings(max_new_tokens=2), mode)
        assert short.warnings == ()
