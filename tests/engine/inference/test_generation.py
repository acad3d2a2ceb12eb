"""Choosing tokens, ending answers, conversations, and the same tokens every time."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.base.choices import SCOPES
from engine.base.events import Delta, Finished
from engine.base.token_bias import TokenBiasError
from engine.engine import Engine
from engine.inference.run_settings import Repair, RunSettings
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import Case, apart, model_of, plan_of, prompt_of, schema_of
from tests.engine.tiny import tiny_model, tiny_network

SCHEMA = """<schema name="s"><system>You plan.</system><user>Read. <module name="a">alpha
<param name="n" len="3"/> and on</module><module name="b">beta</module></user>
<assistant>Done.</assistant></schema>"""


def answer(engine: Engine, prompt: str, settings: RunSettings, mode="cached", schema: str = SCHEMA):
    events = list(engine.schema(schema_of(schema)).prompt(prompt_of(prompt)).stream(settings, mode=mode))
    return next(e.answer for e in events if isinstance(e, Finished)), events


@pytest.fixture
def engine(tmp_path: Path):
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        ("none", Repair()),
        ("link:0", Repair("link")),
        ("link:12", Repair("link", tokens=12)),
        ("blend:.5", Repair("blend", share=0.5)),
        ("query:1.0", Repair("query", share=1.0)),
        ("impact:0.15", Repair("impact", share=0.15)),
    ],
)
def test_repairs_are_read(text: str, repair: Repair) -> None:
    assert Repair.parse(text) == repair


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.4},
        {"temperature": 0.8, "top_k": 1},
        {"temperature": 0.8, "min_p": 1.0},
        {"temperature": 1e-4, "top_p": 0.5},
        {"temperature": 0.8, "top_p": 1e-6, "repetition_penalty": 1.4},
    ],
)
def test_the_uncached_side_answers_as_transformers_generates(engine: Engine, options: dict) -> None:
    """Where the draw has one outcome, so that the generators of random numbers need not agree."""
    prompt = '<prompt><a n="x"/><b/><user>Well?</user></prompt>'
    given, _ = answer(engine, prompt, RunSettings(max_new_tokens=16, **options), "uncached")
    tokens = torch.tensor([plan_of(engine, schema_of(SCHEMA), prompt_of(prompt)).token_ids])
    network = tiny_network()
    sampled = {name: value for name, value in options.items() if name != "repetition_penalty"}
    want = network.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=16,
        do_sample=bool(sampled),
        repetition_penalty=options.get("repetition_penalty", 1.0),
        pad_token_id=1,
        **sampled,
    )
    assert list(given.token_ids) == want[0, tokens.shape[1] :].tolist()


def test_top_k_and_top_p_leave_only_the_likeliest() -> None:
    logits = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0])
    for settings, able in (
        (RunSettings(temperature=2.0, top_k=2), {0, 1}),
        (RunSettings(temperature=1.0, top_p=0.85), {0, 1}),
        (RunSettings(temperature=3.0), {0, 1, 2, 3, 4}),
    ):
        sampler = Sampler(settings)
        assert {sampler.choose(logits) for _ in range(300)} == able


def test_a_penalty_counts_the_prompt_and_the_answer() -> None:
    sampler = Sampler(RunSettings(repetition_penalty=2.0), prompt=[0])
    logits = torch.tensor([3.0, 2.0, 1.6])
    assert [sampler.choose(logits) for _ in range(4)] == [1, 2, 0, 0]


def test_penalties_count_the_tokens_of_the_answer() -> None:
    logits = torch.tensor([3.0, 2.5, 1.2])

    def chosen(**settings: float) -> list[int]:
        sampler = Sampler(RunSettings(**settings), prompt=[0, 0, 0, 0])
        return [sampler.choose(logits) for _ in range(6)]

    assert chosen() == [0] * 6, "tokens of the prompt do not count"
    assert chosen(presence_penalty=1.0) == [0, 1, 0, 0, 0, 0], "once, however often it occurs"
    assert chosen(frequency_penalty=1.0) == [0, 1, 0, 1, 2, 0]
    assert chosen(frequency_penalty=-2.0, presence_penalty=-2.0) == [0] * 6


def test_biases_change_scores_before_the_draw() -> None:
    logits = torch.tensor([3.0, 2.0, 1.0])
    assert Sampler(RunSettings(logit_bias="0:-100,2:1.5")).choose(logits) == 2
    drawn = Sampler(RunSettings(logit_bias="1:100.0", temperature=2.0))
    assert [drawn.choose(logits) for _ in range(8)] == [1] * 8
    bias = torch.tensor([0.0, 0.0, -math.inf])
    grammar: Any = SimpleNamespace(bias=lambda: bias, permits=lambda token: token < 2)
    assert Sampler(RunSettings(logit_bias="2:100")).choose(logits, grammar) == 0, "a grammar comes first"


def test_tokens_below_a_share_of_the_likeliest_are_not_drawn() -> None:
    logits = torch.tensor([0.6, 0.3, 0.1]).log()

    def drawn(min_p: float) -> set[int]:
        sampler = Sampler(RunSettings(temperature=1.0, min_p=min_p))
        return {sampler.choose(logits) for _ in range(200)}

    assert [drawn(share) for share in (0.0, 0.2, 0.6)] == [{0, 1, 2}, {0, 1}, {0}]


def test_a_biased_token_is_of_the_vocabulary(engine: Engine) -> None:
    prompt = engine.schema(schema_of(SCHEMA)).prompt(prompt_of("<prompt><b/></prompt>"))
    most = int(engine.model.config.vocab_size)
    assert prompt.answer(logit_bias=f"{most - 1}:100", max_new_tokens=2).token_ids[0] == most - 1
    for wrong in (f"{most}:1", "999999999:1"):
        with pytest.raises(TokenBiasError, match=f"of this model are 0 to {most - 1}"):
            engine.submit(prompt, logit_bias=wrong)
        with pytest.raises(TokenBiasError):
            engine.continue_tokens([5], logit_bias=wrong)


def test_a_run_stops_at_a_stop_text(engine: Engine) -> None:
    prompt = "<prompt><a/><user>Well?</user></prompt>"
    plain, _ = answer(engine, prompt, RunSettings(max_new_tokens=24))
    mark = next(part for part in plain.text[4:] if part.isprintable() and part != "\ufffd")
    stopped, events = answer(engine, prompt, RunSettings(max_new_tokens=24, stop=(mark,)))
    assert stopped.stopped == "stop"
    assert stopped.text == plain.text.partition(mark)[0]
    assert "".join(e.text for e in events if isinstance(e, Delta)) == stopped.text
    assert len(stopped.token_ids) < len(plain.token_ids)


TURNS = "<user>Hi there</user><assistant>Hello.</assistant>"


@pytest.mark.parametrize("scope", SCOPES)
def test_earlier_turns_of_a_conversation_are_reused(engine: Engine, scope) -> None:
    schema = schema_of(SCHEMA)

    def case(turns: str) -> Case:
        return Case(engine, schema, prompt_of(f'<prompt><a n="x"/>{turns}</prompt>'), scope)

    first = case(f"{TURNS}<user>And then?</user>")
    turns = [piece for piece in first.plan.pieces if piece.turn]
    assert len(turns) == 2
    assert sum(piece.tokens for piece in turns) > 40
    assert first.supplied.encoded
    again = case(f"{TURNS}<user>Or what?</user>")
    assert not again.supplied.encoded
    longer = case(f"{TURNS}<user>And then?</user><assistant>No.</assistant><user>So?</user>")
    assert [segment.tokens for segment in longer.supplied.encoded.values()] == [
        piece.tokens for piece in longer.plan.pieces if piece.turn
    ][2:]
    other = case("<user>Hi THERE</user><assistant>Hello.</assistant><user>And then?</user>")
    assert len(other.supplied.encoded) == 2, "a turn is reused in sight of the very same turns only"


def test_reused_turns_are_what_computing_them_gives(engine: Engine) -> None:
    schema, prompt = schema_of(SCHEMA), prompt_of(f'<prompt><a n="x"/>{TURNS}<user>So?</user></prompt>')
    case = Case(engine, schema, prompt)
    reused = case.logits()
    turns = {p.start + i for p in case.plan.pieces if p.turn for i in range(p.tokens)}
    from engine.inference.repair import rows, with_hidden

    tokens, positions = rows(case.plan, frozenset(turns))
    kv = case.model.network.kv_cache(with_hidden(case.placements, frozenset(turns)), len(tokens))
    computed = case.model.network.forward(tokens, positions, kv, keep=len(reused))
    assert apart(computed[-1], reused[-1]) <= 1e-4


@pytest.mark.parametrize(
    ("scope", "repair"),
    each(
        itertools.product(SCOPES, ("none", "link:2", "blend:0.2", "query:0.2", "impact:0.2")),
        *(("anchored", "none"), ("isolated", "blend:0.2"), ("preceding", "impact:0.2")),
    ),
)
def test_a_prompt_gives_the_same_tokens_from_a_miss_memory_and_disk(
    scope, repair: str, tmp_path: Path
) -> None:
    """Alone and after other prompts, to the last bit."""
    settings = RunSettings(
        max_new_tokens=12, temperature=0.7, seed=5, scope=scope, repair=repair, store_conversation=True
    )
    prompt = f'<prompt><a n="x"/><b/>{TURNS}<user>Well?</user></prompt>'
    others = ['<prompt><b/><a n="yy"/> what<user>Else?</user></prompt>', "<prompt><b/></prompt>"]

    def run(name: str, *, before: list[str]) -> list:
        engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / name))
        for source in before:
            answer(engine, source, settings)
        found = [answer(engine, prompt, settings)[0] for _ in range(2)]
        engine.close()
        return found

    miss, hit = run("first", before=[])
    (disk, _), (after, _) = run("first", before=[]), run("second", before=others)
    assert {use.outcome for use in miss.segments} == {"miss"}
    assert {(use.outcome, use.tier) for use in hit.segments} == {("hit", "memory")}
    assert {(use.outcome, use.tier) for use in disk.segments} == {("hit", "disk")}
    for other in (hit, disk, after):
        assert torch.equal(other.first_logits, miss.first_logits)
        assert other.token_ids == miss.token_ids


def test_an_answer_ends_with_the_turn() -> None:
    """The generation config may name several tokens that end one."""
    network = tiny_network()
    network.generation_config.eos_token_id = [1, 77]
    model = Model("m", network, tiny_model().tokenizer, "f")
    assert model.end_tokens == {1, 77}
