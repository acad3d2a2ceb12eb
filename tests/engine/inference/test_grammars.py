"""Answers keep to their grammar: one by one and together, guessed or not, cached or not, drawn or not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.base.errors import ModelError, SettingsError
from engine.base.events import Compared, Comparison
from engine.engine import Engine
from engine.grammars.grammar import of_choices, of_schema
from engine.model.model import Model
from engine.prepared import PreparedPrompt
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of
from tests.engine.tiny import FAMILIES

SCHEMA = Path("sample_schemas/travel.pml")
PROMPT = Path("sample_schemas/travel.prompt.1.pml")
TRIP = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Tokyo", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "tags": {"type": "array", "items": {"enum": ["food", "art"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "days", "tags"],
    "additionalProperties": False,
}
GRAMMARS = (
    of_schema(TRIP),
    "text",
    of_choices(["yes, of course", "no"]),
    "regex:[A-Z][a-z]{3,8} [0-9]{2}",
    'lark:start: "<a>" /[a-z ]{1,9}/ "</a>"',
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine.open("demo", cache_dir=tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> PreparedPrompt:
    return engine.schema(SCHEMA).prompt(PROMPT)


def keeps(grammar: str, text: str) -> bool:
    kind, _, rest = grammar.partition(":")
    match kind:
        case "schema":
            jsonschema.validate(json.loads(text), json.loads(rest))
            return True
        case "choices":
            return text in json.loads(rest)
        case "regex":
            return re.fullmatch(rest, text) is not None
        case "lark":
            return re.fullmatch("<a>[a-z ]{1,9}</a>", text) is not None
    return True


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("drawn", [{}, {"temperature": 1.0, "seed": 3}])
def test_every_way_to_answer_keeps_to_the_grammar(
    prompt: PreparedPrompt, engine: Engine, grammar: str, drawn: dict[str, Any]
) -> None:
    run: dict[str, Any] = {"max_new_tokens": 60, "grammar": grammar, **drawn}
    plain = prompt.answer(speculate="off", **run)
    assert keeps(grammar, plain.text)
    assert grammar == "text" or plain.stopped == "eos"
    guessed = prompt.answer(speculate="on", **run)
    submitted = engine.submit(prompt, **run).result()
    for answer in (guessed, submitted):
        assert (answer.text, answer.token_ids) == (plain.text, plain.token_ids)
    assert keeps(grammar, prompt.answer(mode="uncached", **run).text)
    streamed = "".join(getattr(event, "text", "") for event in prompt.stream(**run))
    assert streamed == plain.text


def test_rows_with_different_grammars_answer_as_alone(engine: Engine, prompt: PreparedPrompt) -> None:
    alone = [prompt.answer(max_new_tokens=40, grammar=grammar).text for grammar in GRAMMARS]
    tickets = [engine.submit(prompt, max_new_tokens=40, grammar=grammar) for grammar in GRAMMARS]
    assert [ticket.result().text for ticket in tickets] == alone


@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "gpt2"))
@pytest.mark.parametrize("grammar", [GRAMMARS[0], GRAMMARS[3]])
def test_guessing_changes_no_constrained_answer(family: str, grammar: str, tmp_path: Path) -> None:
    with Engine(model_of(family), Store.open(tmp_path)) as engine:
        schema = engine.schema('<schema name="s"><user>Say {"city": "Rome"}.</user></schema>')
        prompt = schema.prompt('<prompt schema="s"><user>{"city": "Rome", "days": 3}</user></prompt>')
        plain, guessed = (
            prompt.answer(max_new_tokens=90, grammar=grammar, speculate=how) for how in ("off", "on")
        )
    assert keeps(grammar, plain.text)
    assert guessed.token_ids == plain.token_ids


def test_tokens_without_a_choice_share_passes(prompt: PreparedPrompt) -> None:
    answer = prompt.answer(max_new_tokens=60, grammar=GRAMMARS[0], speculate="off")
    assert answer.tokens["forced"] > len(answer.token_ids) // 2
    assert answer.passes < len(answer.token_ids) // 2
    assert answer.tokens["drafted"] == answer.tokens["accepted"] == 0
    assert "forced" not in prompt.answer(max_new_tokens=2).tokens


def test_forced_tokens_that_no_pass_can_share_come_one_by_one(
    prompt: PreparedPrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = prompt.answer(max_new_tokens=60, grammar=GRAMMARS[0])
    monkeypatch.setattr("engine.model.batch_invariance.RowRounding.small", False)
    single = prompt.answer(max_new_tokens=60, grammar=GRAMMARS[0])
    assert single.token_ids == together.token_ids
    assert single.passes == len(single.token_ids) - 1


def test_an_answer_that_is_cut_says_so(prompt: PreparedPrompt) -> None:
    for most in (1, 2, 7):
        answer = prompt.answer(max_new_tokens=most, grammar=GRAMMARS[0])
        assert (len(answer.token_ids), answer.stopped) == (most, "length")
    whole = prompt.answer(max_new_tokens=60, grammar=GRAMMARS[0])
    exact = prompt.answer(max_new_tokens=len(whole.token_ids), grammar=GRAMMARS[0])
    assert (exact.text, exact.stopped) == (whole.text, "eos")


def test_log_probabilities_are_those_of_the_model(engine: Engine, prompt: PreparedPrompt) -> None:
    answer = engine.submit(prompt, grammar=GRAMMARS[0], max_new_tokens=60, logprobs=1).result()
    assert [one.token for one in answer.logprobs] == list(answer.token_ids)
    assert any(one.top[0][0] != one.token for one in answer.logprobs)  # what it would have said


def test_settings_that_forbid_all_allowed_tokens_give_way(
    engine: Engine, prompt: PreparedPrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = list(range(engine.model.config.vocab_size))
    monkeypatch.setattr(engine.model.generation, "rules", {"suppress_tokens": every})
    for temperature in (0.0, 1.0):
        answer = prompt.answer(max_new_tokens=60, grammar=GRAMMARS[0], temperature=temperature)
        assert keeps(GRAMMARS[0], answer.text)


def test_errors_come_before_anything_is_computed(
    engine: Engine, prompt: PreparedPrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="`uniqueItems` is not supported"):
        prompt.answer(grammar=of_schema({"uniqueItems": True}))

    def refuse(*_: object) -> None:
        raise ModelError("no tokenizer")

    monkeypatch.setattr(Model, "matcher", refuse)
    with pytest.raises(ModelError, match="no tokenizer"):
        engine.submit(prompt, grammar="json")


def test_continued_tokens_keep_to_a_grammar(engine: Engine) -> None:
    tokens = engine.model.tokenize("The answer is")
    continued = engine.continue_tokens(tokens, max_new_tokens=20, grammar=of_choices(["one", "two"]))
    assert continued.text in ("one", "two")


LEAVES = st.sampled_from(
    [
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", 1, None]},
        {"type": "integer", "minimum": -5, "maximum": 500},
        {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25},
        {"type": "string", "maxLength": 4},
        {"type": "string", "pattern": "^[a-c]{1,3}$"},
        {"type": "string", "format": "date"},
    ]
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "not", 'quoted "b"', "ü"])
    made = st.dictionaries(names, inner, min_size=1, max_size=3)
    return made.flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties))).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": False,
            }
        )
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | inner.map(lambda items: {"type": "array", "items": items, "minItems": 1, "maxItems": 2})
        | st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"anyOf": branches})
    ),
    max_leaves=4,
)


@settings(max_examples=20)
@given(schema=SCHEMAS, temperature=st.sampled_from([0.0, 1.5]))
def test_every_finished_answer_is_valid(
    prompt: PreparedPrompt, schema: dict[str, Any], temperature: float
) -> None:
    answer = prompt.answer(max_new_tokens=60, grammar=of_schema(schema), temperature=temperature)
    assume(answer.stopped == "eos")
    jsonschema.validate(json.loads(answer.text), schema)


def test_the_sides_are_compared_by_tokens_that_the_grammar_permits(prompt: PreparedPrompt) -> None:
    def compared(**settings: Any) -> Comparison:
        *_, event = prompt.stream(mode="both", max_new_tokens=8, reuse="off", check=False, **settings)
        assert isinstance(event, Compared)
        return event.comparison

    only = compared(grammar=of_choices(["yes"]))
    assert (only.first_token_agrees, only.kl_first_token) == (True, 0)
    assert 0 <= compared(grammar=GRAMMARS[0]).kl_first_token != compared().kl_first_token
