"""Turns that a prompt may leave out, computed: as exact as all else, and encoded ahead of time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.base.choices import SCOPES, Scope
from engine.engine import Engine
from engine.model.model import Model
from engine.store import Store
from tests.drawing import EVERY
from tests.engine.cases import Case, apart, model_of, prompt_of, schema_of
from tests.engine.reference import Reference, sight_of_modules
from tests.engine.tiny import FAMILIES, FIXED, tiny_model, tiny_network

SEVERAL = ("llama-gqa", "mistral-swa", "gemma3", "gpt-oss", "gpt2", "bloom")
SCHEMA = """<schema name="s">
  <union>
    <module name="brief"><system>Be brief.</system></module>
    <module name="kind"><system>Be kind and polite.</system></module>
  </union>
  <module name="shot-1"><user>One and one?</user><assistant>Two.</assistant></module>
  <module name="shot-2">
    <user>Two and <param name="n" len="4" default="two"/>?</user>
    <assistant>Four. <module name="why">For two is half of it.</module></assistant>
  </module>
  <module name="raw" cache="false"><user>Never</user><assistant>stored.</assistant></module>
  <user><module name="topic">About sums.</module></user>
  <scaffold modules="shot-1 shot-2"/>
</schema>"""
PLAIN = """<schema name="p">
  <module name="a"><user>first words</user></module>
  <module name="b"><user>second words</user><assistant>here</assistant></module>
</schema>"""


def random_prompt(draw: random.Random, *, ordered: bool) -> str:
    """A prompt over SCHEMA; `ordered` keeps what schema placement asks for."""
    shots = ["<shot-1/>", draw.choice(["<shot-2/>", '<shot-2 n="1"><why/></shot-2>']), "<raw/>"]
    shots = [one for one in shots if draw.random() < 0.6]
    if not ordered:
        draw.shuffle(shots)
    parts = [draw.choice(["", "<brief/>", "<kind/>"]), *shots, draw.choice(["", "<topic/>"])]
    parts.append(draw.choice(["And three?", "<user>And three?</user>"]))
    return f"<prompt>{''.join(parts)}</prompt>"


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_logits_equal_the_dense_reference(family: str, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = Reference(tiny_network(family), relocatable=family not in FIXED)
    schema = schema_of(SCHEMA)
    draw = random.Random(f"turns {family}")
    placements = ("schema",) if family in FIXED else ("compact", "compact", "schema")
    for number in range(24 if EVERY else 4):
        scope, placement = [*SCOPES][number % len(SCOPES)], placements[number % len(placements)]
        source = random_prompt(draw, ordered=placement == "schema")
        case = Case(engine, schema, prompt_of(source), scope, placement)
        difference = apart(case.logits(), reference.logits(case.plan, case.uses))
        assert difference <= 1e-4, f"{placement} {source}: {difference}"
    engine.close()


@pytest.mark.parametrize("family", SEVERAL)
def test_cached_logits_equal_one_masked_pass(family: str, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = Reference(tiny_network(family), relocatable=family not in FIXED)
    for names in ("<a/>", "<a/><b/>", "<b/>", "<b/><a/>"):
        if family in FIXED and names != "<a/><b/>":
            continue
        case = Case(
            engine, schema_of(PLAIN), prompt_of(f"<prompt>{names}<user>So?</user></prompt>"), "isolated"
        )
        plan = case.plan
        assert plan.cached_tokens
        allowed = sight_of_modules(case.layout, plan, "isolated")
        want = reference.masked_pass(plan.token_ids, plan.positions, allowed)
        rows_of_new = [i for i, place in enumerate(plan.positions) if place in set(plan.new_positions)]
        assert apart(case.logits(), want[rows_of_new]) <= 1e-4, names
    engine.close()


DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|system|>I am a model.</s>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("template", [None, DEFAULT_SYSTEM])
def test_what_is_encoded_is_what_prompts_with_one_module_of_turns_read(
    template: str | None, tmp_path: Path
) -> None:
    made = tiny_model()
    made.tokenizer.chat_template = template or made.tokenizer.chat_template
    model = Model("tiny", made.network.module, made.tokenizer, "turns")
    with Engine(model, Store.open(tmp_path)) as engine:
        schema = engine.schema(schema_of(SCHEMA.replace('<scaffold modules="shot-1 shot-2"/>', "")))
        schema.encode()
        for names in ("", "<brief/>", "<kind/>", "<shot-1/>", '<shot-2 n="1"><why/></shot-2>'):
            plan = schema.prompt(prompt_of(f"<prompt>{names}<topic/>And three?</prompt>")).plan()
            missing = [part for part in plan.parts if part["bytes"] and part["cached"] == "none"]
            assert not missing, (names, missing)
        again = schema.encode()
        assert (again.encoded, again.reused) == (0, again.total)


BARE = """<schema name="b">Intro<user><module name="m">words here</module></user>Outro of it
  <module name="shot"><user>One?</user><assistant>Two.</assistant></module>
</schema>"""


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("family", ["llama-gqa", "bloom"])
def test_text_round_turns_that_are_left_out_and_moved_text_are_exact(
    family: str, scope: Scope, tmp_path: Path
) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    reference = Reference(tiny_network(family))
    for prompt in ("", "<m/>", "lead<shot/>mid", "<m/>lead<shot/>"):
        case = Case(engine, schema_of(BARE), prompt_of(f"<prompt>{prompt}<user>So?</user></prompt>"), scope)
        assert apart(case.logits(), reference.logits(case.plan, case.uses)) <= 1e-4, prompt
    engine.close()
