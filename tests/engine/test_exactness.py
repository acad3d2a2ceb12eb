"""Cached logits equal the dense reference, on every family, over random sequences of prompts."""

from __future__ import annotations

import math
import random
from functools import cache
from pathlib import Path

import pytest
import torch

from engine.base.choices import SCOPES
from engine.base.segment import Placement, Segment
from engine.engine import Engine
from engine.inference.repair import inexact, rows
from engine.model.model import Model
from engine.store import Origin, Store
from tests.drawing import EVERY, each
from tests.engine.cases import Case, apart, encoded, model_of, prompt_of, schema_of
from tests.engine.reference import Reference, sight_of_modules
from tests.engine.tiny import DENSE, FAMILIES, FIXED, SEGMENTS, tiny_model, tiny_network

SCHEMA = """<schema name="s">
  <system>You plan.</system>
  <user>Intro text
    <module name="a">alpha <param name="n" len="4" default="two"/> omega
      <union>
        <module name="x">xylophone music</module>
        <module name="y">yes</module>
      </union> end of <param name="n"/> alpha
    </module>
    between
    <union>
      <module name="b">beta bet</module>
      <module name="c">gamma with <param name="k" len="6" scaffold="kkk"/>!</module>
    </union>
    <module name="z">z</module>
    <module name="raw" cache="false">never stored</module>
  </user>
  <assistant>Gladly.</assistant>
  <scaffold modules="a b"/>
  <scaffold modules="a a/x z"/>
</schema>"""

# No parameters, no text behind a module: every run stands directly behind its context.
PLAIN = """<schema name="p">Start of it all.
  <module name="a">first words</module>
  <module name="b">second words here</module>
  <union><module name="c">third</module><module name="d">fourth, longer than third</module></union>
</schema>"""


STRIPPING = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPACED = """<schema name="s" xml:space="preserve"><system><module name="a">  alpha
</module><module name="b">
beta  </module></system><user><module name="c">  gamma </module><module name="d">delta
</module></user></schema>"""

FEW = ("llama-gqa", "gemma2", "gpt2", "bloom")  # scores of each kind, and a place that is fixed


EACH = each(
    [(family, scope) for family in FAMILIES for scope in SCOPES],
    *[(family, scope) for family in FAMILIES for scope in SCOPES if family in FEW or scope == "anchored"],
)


@cache
def reference_of(family: str) -> Reference:
    """The dense reference, which remembers the states of what it has computed, built once for all tests."""
    return Reference(tiny_network(family), relocatable=family not in FIXED)


def random_prompt(draw: random.Random, *, ordered: bool = False) -> str:
    """A prompt over SCHEMA; `ordered` keeps what schema placement asks for."""
    parts = []
    if draw.random() < 0.8:
        n = draw.choice(["", "", ' n="four"', ' n="1"', ' n=""'])
        inner = draw.choice(["", "<x/>", "<y/>", *([] if ordered else ["so <x/> and", "just text"])])
        parts.append(f"<a{n}>{inner}</a>")
    if draw.random() < 0.8:
        parts.append(draw.choice(["<b/>", "<c/>", '<c k="abc"/>', '<c k="sixsix"/>']))
    if draw.random() < 0.5:
        parts.append("<z/>")
    if draw.random() < 0.3:
        parts.append("<raw/>")
    if not ordered:
        draw.shuffle(parts)
        if draw.random() < 0.5:
            parts.insert(draw.randrange(len(parts) + 1), "some new text")
    if draw.random() < 0.7:
        earlier = "<user>Hi</user><assistant>Hello.</assistant>" if draw.random() < 0.4 else ""
        parts.append(f"{earlier}<user>What now?</user>")
    return f'<prompt schema="s">{"".join(parts)}</prompt>'


@pytest.mark.parametrize(("family", "scope"), EACH)
def test_cached_logits_equal_the_dense_reference(family: str, scope, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = reference_of(family)
    schema = schema_of(SCHEMA)
    draw = random.Random(f"{family} {scope}")
    placements = ("schema",) if family in FIXED else ("compact", "schema", "compact", "compact")
    for number in range(12 if EVERY else 3):
        placement = placements[number % len(placements)]
        source = random_prompt(draw, ordered=placement == "schema")
        case = Case(engine, schema, prompt_of(source), scope, placement)
        difference = apart(case.logits(), reference.logits(case.plan, case.uses))
        assert difference <= 1e-4, f"{placement} {source}: {difference}"
    engine.close()


@pytest.mark.parametrize("scope", ["isolated", "anchored"])
@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_cached_logits_equal_one_masked_pass(family: str, scope, tmp_path: Path) -> None:
    engine = Engine(model_of(family, chat=False), Store.open(tmp_path))
    reference = reference_of(family)
    schema = schema_of(PLAIN)
    # Anchored runs see the anonymous text, so only a first module stands right behind its anchor.
    imports = (
        ("<a/>", "<d/>") if scope == "anchored" else ("<a/><b/>", "<b/><c/>", "<d/><a/>", "<a/><b/><d/>")
    )
    for names in imports:
        if family in FIXED and names == "<d/><a/>":
            continue
        prompt = prompt_of(f"<prompt>{names} and a question?</prompt>")
        case = Case(engine, schema, prompt, scope)
        plan = case.plan
        allowed = sight_of_modules(case.layout, plan, scope)
        want = reference.masked_pass(plan.token_ids, plan.positions, allowed)
        rows_of_new = [i for i, place in enumerate(plan.positions) if place in set(plan.new_positions)]
        difference = apart(case.logits(), want[rows_of_new])
        assert difference <= 1e-4, f"{names}: {difference}"
    engine.close()


ONE = '<schema name="e"><module name="a">alpha</module></schema>'
TWO = '<schema name="e"><module name="a">a</module><module name="b">b</module></schema>'
EDGES = [  # all cache and one token computed again; one-token modules; nothing cached; nothing but text
    (ONE, "<prompt><a/></prompt>"),
    (TWO, "<prompt><a/><b/></prompt>"),
    (ONE.replace('"a"', '"a" cache="false"'), "<prompt><a/> so?</prompt>"),
    (ONE, "<prompt>so?</prompt>"),
]


@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_prompts_at_the_edges(family: str, tmp_path: Path) -> None:
    engine = Engine(model_of(family, chat=False), Store.open(tmp_path))
    reference = reference_of(family)
    for schema, prompt in EDGES:
        case = Case(engine, schema_of(schema), prompt_of(prompt))
        assert apart(case.logits(), reference.logits(case.plan, case.uses)) <= 1e-4, prompt
    assert not any(
        Case(engine, schema_of(schema), prompt_of(prompt)).placements for schema, prompt in EDGES[2:]
    )
    engine.close()


FULL = """<schema name="full">
  <system>You plan.</system>
  <user>Intro <module name="a">alpha <union><module name="x">xylophone</module><module name="y">y</module>
  </union> and on</module> between <module name="b">beta</module></user>
  <assistant>Gladly.</assistant>
  <scaffold modules="a a/x b"/><scaffold modules="a a/y b"/>
</schema>"""


@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_modules_in_one_scaffold_give_the_plain_models_logits(family: str, tmp_path: Path) -> None:
    """Declared, or over the whole prompt; there also with arguments and new text between modules."""
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = reference_of(family)
    declared, schema = schema_of(FULL), schema_of(SCHEMA)
    prompts = [
        (declared, "anchored", "<prompt><a><x/></a><b/><user>Well?</user></prompt>"),
        (declared, "isolated", "<prompt><a><x/></a><b/><user>Well?</user></prompt>"),
        (schema, "scaffold", '<prompt><a n="1"><x/></a><c k="abc"/><z/><user>Well?</user></prompt>'),
    ]
    if family not in FIXED:
        prompts += [
            (declared, "anchored", "<prompt><b/><a><y/></a><user>Well?</user></prompt>"),
            (schema, "scaffold", '<prompt><z/> so <a n="1">or <y/></a><raw/><user>Well?</user></prompt>'),
        ]
    for tree_of, scope, source in prompts:
        case = Case(engine, tree_of, prompt_of(source), scope)
        plan = case.plan
        assert plan.cached_tokens > len(plan.new_tokens)
        everything = torch.ones(plan.total_tokens, plan.total_tokens, dtype=torch.bool).tril()
        want = reference.masked_pass(plan.token_ids, plan.positions, everything)
        difference = apart(case.logits()[-1], want[-1])
        assert difference <= 1e-4, f"{source}: {difference}"
    engine.close()


@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_repair_of_everything_is_the_full_pass(family: str, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    schema = schema_of(SCHEMA)
    source = '<prompt><a n="1"><x/></a><c k="abc"/><z/><user>Hi</user><user>Well?</user></prompt>'
    for scope in ("isolated", "anchored"):
        case = Case(engine, schema, prompt_of(source), scope)
        new = [i for i, place in enumerate(case.plan.positions) if place in set(case.plan.new_positions)]
        whole = case.full()
        assert apart(case.logits(), whole[new]) > 5e-4
        for repair in ("link:1000", "blend:1", *(["query:1", "impact:1"] if family not in DENSE else [])):
            computed = case.logits(repair)
            assert apart(computed, whole[-len(computed) :]) <= 1e-4, repair
    engine.close()


@pytest.mark.parametrize("family", ["llama-gqa", "gemma3", "gpt-oss", "gpt2", "falcon", "bloom"])
@pytest.mark.parametrize("repair", ["link:2", "blend:0.3", "query:0.3", "impact:0.3"])
def test_repair_is_row_exact(family: str, repair: str, tmp_path: Path) -> None:
    """Equal to a pass in which stale keys and values are those of the segments and all masks are explicit."""
    if family in DENSE and repair.startswith(("query", "impact")):
        pytest.skip("models with attention code of their own do not show what they attend to")
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = reference_of(family)
    schema = schema_of(SCHEMA)
    case = Case(engine, schema, prompt_of('<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>'))
    again = case.again(repair)
    assert 0 < len(again) < case.plan.cached_tokens
    assert apart(case.logits(repair), reference.repaired(case.plan, case.uses, again)) <= 1e-4
    engine.close()


def test_repair_computes_what_it_says_and_nothing_that_is_exact(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    schema = schema_of(SCHEMA)
    prompt = prompt_of('<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>')
    case = Case(engine, schema, prompt)
    for repair, most in (("blend:0.2", 0.2), ("query:0.2", 0.2), ("impact:0.2", 0.2), ("link:3", 1.0)):
        again = case.again(repair)
        assert 0 < len(again) <= most * case.plan.cached_tokens + 1
        first = case.placements[0]
        beginning = range(first.start, first.start + first.tokens)
        assert not again.intersection(beginning), "nothing stands before it, so it is exact"
        tokens, positions = rows(case.plan, again)
        assert len(tokens) == len(case.plan.new_tokens) + len(again)
        assert positions == sorted(positions)
    whole = Case(engine, schema, prompt, "scaffold")
    for repair in ("blend:1", "query:1", "impact:1", "link:99"):
        assert not whole.again(repair)
    engine.close()


def test_impact_asks_deep_layers_and_prefers_first_tokens(tmp_path: Path) -> None:
    """What is chosen is what an own look at the attention of the last layers chooses."""
    model = tiny_model()
    engine = Engine(model, Store.open(tmp_path))
    case = Case(
        engine, schema_of(SCHEMA), prompt_of('<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>')
    )
    plan, network = case.plan, model.network
    first = network.layers - math.ceil(network.layers / 3)
    assert 0 < first < network.layers
    every, deep = (
        network.attention_to_cache(plan.new_tokens, plan.new_positions, case.placements, layer)
        for layer in (0, first)
    )
    assert (deep <= every + 1e-6).all()
    score = {}
    for one in case.placements:
        for i in range(one.tokens):
            score[one.start + i] = float(deep[len(score)]) / math.sqrt(1 + one.lo + i)
    able = {
        use.start + i for use in inexact(plan, case.uses) if use is not None for i in range(use.hi - use.lo)
    }
    again = case.again("impact:0.2")
    assert again == set(sorted(able, key=lambda place: -score[place])[: len(again)])
    assert again != case.again("query:0.2")
    engine.close()


@pytest.mark.parametrize("scope", SCOPES)
def test_turns_that_the_template_strips_are_exact_too(scope, tmp_path: Path) -> None:
    """Slices of segments stand for what is left of a text whose ends are stripped."""
    model = tiny_model()
    model.tokenizer.chat_template = STRIPPING
    engine = Engine(Model("tiny", model.network.module, model.tokenizer, "stripping"), Store.open(tmp_path))
    reference = Reference(tiny_network())
    schema = schema_of(SPACED)
    for names in ("<a/><c/>", "<b/><c/>", "<a/><b/><d/>", "<b/><c/><d/>"):
        prompt = prompt_of(f"<prompt>{names}<user> Where? </user></prompt>")
        case = Case(engine, schema, prompt, scope)
        assert any(piece.cached and piece.lo > 0 for piece in case.plan.pieces)
        assert apart(case.logits(), reference.logits(case.plan, case.uses)) <= 1e-4, names


def test_a_random_sequence_on_a_warm_store_never_serves_another_modules_keys(tmp_path: Path) -> None:
    """Two engines, one of them new for every prompt, agree but for how passes over other texts round."""
    warm = Engine(tiny_model(), Store.open(tmp_path / "warm"))
    model, schema = tiny_model(), schema_of(SCHEMA)
    draw = random.Random(3)
    for number in range(60 if EVERY else 10):
        prompt = prompt_of(random_prompt(draw))
        scope, repair = (
            draw.choice([*SCOPES]),
            draw.choice(["none", "link:2", "blend:0.2", "query:0.2", "impact:0.2"]),
        )
        fresh = Engine(model, Store.open(tmp_path / str(number)))
        got, wanted = (Case(engine, schema, prompt, scope).logits(repair) for engine in (warm, fresh))
        assert (got - wanted).abs().max() <= 1e-5 * wanted.std()
        fresh.close()


@pytest.mark.parametrize(
    "family", each([name for name in FAMILIES if name not in FIXED], "llama-gqa", "smollm3", "bloom")
)
def test_a_segment_gives_the_same_at_0_at_1000_and_from_disk(family: str, tmp_path: Path) -> None:
    model = model_of(family)
    tokens, new = list(range(10, 40)), [50, 51, 52]

    def logits(segment: Segment, start: int):
        kv = model.network.kv_cache([Placement(segment, 0, segment.tokens, start)], len(new))
        return model.network.forward(
            new, range(start + segment.tokens, start + segment.tokens + len(new)), kv, keep=3
        )

    segment = encoded(model, "k", tokens)
    at_0, at_1000 = logits(segment, 0), logits(segment, 1000)
    assert (at_0 - at_1000).abs().max() <= 2e-4 * at_0.std().item() + 1e-4
    store = Store.open(tmp_path)
    store.save(segment, Origin("s", "m", "isolated", "tiny", "f"))
    store.close()
    again = Store.open(tmp_path).load("k", tokens)
    assert again is not None
    assert torch.equal(logits(again, 0), at_0)


@pytest.mark.parametrize("family", ["llama-gqa", "gemma2", "gemma3", "gpt-oss", "mistral-swa"])
def test_long_prefills_in_blocks_equal_one_block(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(family)
    from engine.attention import kernels

    segments = [encoded(model, str(i), list(range(3 + i, 40 + i))) for i in range(3)]
    placements = [Placement(s, 0, s.tokens, 50 * i, (4, 5, 20)) for i, s in enumerate(segments)]
    new, positions = list(range(60, 100)), [*range(38, 48), *range(90, 99), *range(200, 221)]
    whole = model.network.forward(new, positions, model.network.kv_cache(placements, 40), keep=40)
    monkeypatch.setattr(kernels, "SCORE_BYTES", 20_000)
    blocks = model.network.forward(new, positions, model.network.kv_cache(placements, 40), keep=40)
    assert (whole - blocks).abs().max() <= 1e-4


@pytest.mark.parametrize("family", each(SEGMENTS, "llama-gqa", "gpt-oss"))
def test_folding_before_decoding_changes_nothing(family: str) -> None:
    model = model_of(family)
    segments = [encoded(model, str(i), list(range(3 + i, 30 + i))) for i in range(4)]
    placements = [Placement(s, 2, s.tokens, 40 * i + 2, (7, 9) if i else ()) for i, s in enumerate(segments)]
    plain, folded = model.network.kv_cache(placements, 8), model.network.kv_cache(placements, 8)
    for kv in (plain, folded):
        model.network.forward([70, 71], [300, 301], kv)
    folded.fold()
    assert not folded.placements
    for step in range(4):
        want = model.network.forward([80 + step], [302 + step], plain)
        got = model.network.forward([80 + step], [302 + step], folded)
        assert (want - got).abs().max() <= 1e-4


@pytest.mark.parametrize("family", each(FAMILIES, "llama-gqa", "gpt2", "bloom"))
def test_bf16_stays_within_its_rounding(family: str, tmp_path: Path) -> None:
    """Rounding costs the cached side at most thrice what it costs one pass of the same model."""
    exact = Engine(model_of(family), Store.open(tmp_path / "fp32"))
    network = tiny_network(family).bfloat16()
    coarse = Engine(Model("bf16", network, exact.model.tokenizer, "bf16"), Store.open(tmp_path / "bf16"))
    schema = schema_of(SCHEMA)
    prompt = prompt_of('<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>')
    one, other = Case(exact, schema, prompt), Case(coarse, schema, prompt)
    spread = one.full().std().item()
    plain = apart(other.full().float(), one.full()) / spread
    cached = apart(other.logits().float(), one.logits()) / spread
    assert cached <= max(3 * plain, 0.1), (cached, plain)
    exact.close()
    coarse.close()
