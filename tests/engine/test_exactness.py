"""Cached logits equal the dense reference, on every family, over random sequences of prompts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.engine import Engine
from engine.generate import Stopwatch
from engine.layout import SCOPES
from engine.model import Model
from engine.pml import parse_prompt, parse_schema
from engine.segment import Placement, Segment
from engine.store import Store
from tests.engine.reference import dense_logits, masked_pass_logits
from tests.engine.tiny import FAMILIES, tiny_model, tiny_network

SCHEMA = """<schema name="s">
  <system>You plan.</system>
  <user>Intro text
    <module name="a">alpha <param name="n" len="4" default="two"/> omega
      <union>
        <module name="x">xylophone music</module>
        <module name="y">yes</module>
      </union> end of alpha
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


def tree(parsed):
    assert parsed.ok, parsed.diagnostics
    return parsed.tree


def cached_logits(engine: Engine, schema, prompt, scope):
    """Logits of all new tokens, the plan and its layout, by the product's own path."""
    layout, plan = engine._plan(schema, prompt)
    steps = engine.supply.segments(layout, plan.runs, scope, Stopwatch())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            supplied = end.value
            break
    placements = [
        Placement(supplied.segments[p.run.index], p.lo, p.lo + p.tokens, p.start)
        for p in plan.pieces
        if p.cached
    ]
    kv = engine.model.key_values(placements, len(plan.new_tokens))
    logits = engine.model.forward(plan.new_tokens, plan.new_positions, kv, keep=len(plan.new_tokens))
    return logits, layout, plan, supplied


def random_prompt(draw: random.Random) -> str:
    parts = []
    if draw.random() < 0.8:
        n = draw.choice(["", "", ' n="four"', ' n="1"', ' n=""'])
        inner = draw.choice(["", "<x/>", "<y/>", "so <x/> and", "just text"])
        parts.append(f"<a{n}>{inner}</a>")
    if draw.random() < 0.8:
        parts.append(draw.choice(["<b/>", "<c/>", '<c k="abc"/>', '<c k="sixsix"/>']))
    if draw.random() < 0.5:
        parts.append("<z/>")
    if draw.random() < 0.3:
        parts.append("<raw/>")
    draw.shuffle(parts)
    if draw.random() < 0.5:
        parts.insert(draw.randrange(len(parts) + 1), "some new text")
    if draw.random() < 0.7:
        parts.append("<user>What now?</user>")
    return f'<prompt schema="s">{"".join(parts)}</prompt>'


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_cached_logits_equal_the_dense_reference(family: str, scope, tmp_path: Path) -> None:
    engine = Engine(tiny_model(family), Store.open(tmp_path))
    reference = tiny_network(family)
    schema = tree(parse_schema(SCHEMA))
    draw = random.Random(f"{family} {scope}")
    for _ in range(12):
        source = random_prompt(draw)
        got, layout, plan, _ = cached_logits(engine, schema, tree(parse_prompt(source)), scope)
        want = dense_logits(reference, layout, plan, scope)
        difference = (got - want).abs().max().item()
        assert difference <= 1e-4, f"{source}: {difference}"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_cached_logits_equal_one_masked_pass(family: str, scope, tmp_path: Path) -> None:
    engine = Engine(tiny_model(family, chat=False), Store.open(tmp_path))
    reference = tiny_network(family)
    schema = tree(parse_schema(PLAIN))
    # Anchored runs see the anonymous text, so only a first module stands right behind its anchor.
    imports = (
        ("<a/>", "<d/>") if scope == "anchored" else ("<a/><b/>", "<b/><c/>", "<d/><a/>", "<a/><b/><d/>")
    )
    for names in imports:
        source = f"<prompt>{names} and a question?</prompt>"
        got, layout, plan, _ = cached_logits(engine, schema, tree(parse_prompt(source)), scope)
        want = masked_pass_logits(reference, layout, plan, scope)
        difference = (got - want).abs().max().item()
        assert difference <= 1e-4, f"{source}: {difference}"


@pytest.mark.parametrize("scope", SCOPES)
def test_turns_that_the_template_strips_are_exact_too(scope, tmp_path: Path) -> None:
    """Slices of segments stand for what is left of a text whose ends are stripped."""
    model = tiny_model()
    model.tokenizer.chat_template = STRIPPING
    engine = Engine(Model("tiny", model.network, model.tokenizer, "stripping"), Store.open(tmp_path))
    reference = tiny_network()
    schema = tree(parse_schema(SPACED))
    for names in ("<a/><c/>", "<b/><c/>", "<a/><b/><d/>", "<b/><c/><d/>"):
        prompt = tree(parse_prompt(f"<prompt>{names}<user> Where? </user></prompt>"))
        got, layout, plan, _ = cached_logits(engine, schema, prompt, scope)
        assert any(piece.cached and piece.lo > 0 for piece in plan.pieces)
        want = dense_logits(reference, layout, plan, scope)
        assert (got - want).abs().max().item() <= 1e-4, names


def test_a_random_sequence_on_a_warm_store_never_serves_another_modules_keys(tmp_path: Path) -> None:
    """Two engines, one of them new for every prompt, always agree to the last token."""
    warm = Engine(tiny_model(), Store.open(tmp_path / "warm"))
    schema = tree(parse_schema(SCHEMA))
    draw = random.Random(3)
    for i in range(40):
        prompt = tree(parse_prompt(random_prompt(draw)))
        got, *_ = cached_logits(warm, schema, prompt, "anchored")
        fresh = Engine(tiny_model(), Store.open(tmp_path / str(i)))
        want, *_ = cached_logits(fresh, schema, prompt, "anchored")
        assert torch.equal(got, want)
        fresh.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_segment_gives_the_same_at_0_at_1000_and_from_disk(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    tokens, new = list(range(10, 40)), [50, 51, 52]

    def logits(segment: Segment, start: int):
        kv = model.key_values([Placement(segment, 0, segment.tokens, start)], len(new))
        return model.forward(
            new, range(start + segment.tokens, start + segment.tokens + len(new)), kv, keep=3
        )

    from engine.encoder import encode
    from engine.store import Origin

    segment = encode(model, "k", tokens, ())
    at_0, at_1000 = logits(segment, 0), logits(segment, 1000)
    assert (at_0 - at_1000).abs().max() <= 2e-4 * at_0.std().item() + 1e-4
    store = Store.open(tmp_path)
    store.save(segment, Origin("s", "m", "isolated", "tiny", "f"))
    store.close()
    again = Store.open(tmp_path).load("k", tokens)
    assert again is not None
    assert torch.equal(logits(again, 0), at_0)


def test_long_prefills_in_blocks_equal_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    from engine import attention
    from engine.encoder import encode

    segments = [encode(model, str(i), list(range(3 + i, 40 + i)), ()) for i in range(3)]
    placements = [Placement(s, 0, s.tokens, 50 * i) for i, s in enumerate(segments)]
    new, positions = list(range(60, 100)), [*range(38, 48), *range(90, 99), *range(200, 221)]
    whole = model.forward(new, positions, model.key_values(placements, 40), keep=40)
    monkeypatch.setattr(attention, "SCORE_BYTES", 20_000)
    blocks = model.forward(new, positions, model.key_values(placements, 40), keep=40)
    assert (whole - blocks).abs().max() <= 1e-4


def test_folding_before_decoding_changes_nothing() -> None:
    model = tiny_model()
    from engine.encoder import encode

    segments = [encode(model, str(i), list(range(3 + i, 30 + i)), ()) for i in range(4)]
    placements = [Placement(s, 2, s.tokens, 40 * i + 2) for i, s in enumerate(segments)]
    plain, folded = model.key_values(placements, 8), model.key_values(placements, 8)
    for kv in (plain, folded):
        model.forward([70, 71], [300, 301], kv)
    folded.fold()
    assert not folded.placements
    for step in range(4):
        want = model.forward([80 + step], [302 + step], plain)
        got = model.forward([80 + step], [302 + step], folded)
        assert (want - got).abs().max() <= 1e-4
