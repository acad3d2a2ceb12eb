"""What a measurement says: a flipped token is a finding wherever it is, and runs part exactly there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.tasks import read_tasks, suite
from engine.base.events import Finished
from engine.engine import Engine
from engine.fidelity.findings import Fidelity, Flip, ModuleFidelity, Remedy, nats
from engine.fidelity.verdict import advice
from engine.inference.run_settings import RunSettings
from engine.model.loading import load
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of, prompt_of, schema_of

MODULES = (
    ModuleFidelity("", 9, 0.1, 0.0, 0.0, 0.0, 0),
    ModuleFidelity("a", 9, 0.1, 0.0, 0.0, 0.2, 0),
    ModuleFidelity("b", 9, 0.1, 0.1, 0.1, 0.1, 1),
)
GOOD = Fidelity(1e-5, True, 1.0, 1e-5, 1e-4, 3, 128, True, (), MODULES)
FLIP = Flip(99, " Rome", " Oslo", "go to", 0.004)
LATE = replace(GOOD, flips=(FLIP,), kl_worst=0.004, kl_mean=4e-5, answer_agreement=127 / 128)
LINK = Remedy("repair link:8", "link:8", (), "", 0, 1e-3, 1e-5, 1.0, 16)
BLEND = Remedy("repair blend:0.15", "blend:0.15", (), "", 1, 1e-4, 1e-6, 0.99, 5)
NEAR = Remedy("scope preceding", "", (), "preceding", 0, 1e-5, 1e-6, 1.0, 0)
PAIR = Remedy("scaffold a b", "", ("a", "b"), "", 0, 1e-6, 1e-7, 1.0, 0)


def answers(engine: Engine, schema: Any, prompt: Any, settings: RunSettings) -> dict[str, tuple[int, ...]]:
    events = engine.schema(schema).prompt(prompt).stream(settings, mode="both")
    return {e.side: e.answer.token_ids for e in events if isinstance(e, Finished)}


def parting(found: dict[str, tuple[int, ...]]) -> int | None:
    """Where two answers part; None where they are equal."""
    pairs = zip(found["cached"], found["uncached"], strict=False)
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    assert first is not None or found["cached"] == found["uncached"]
    return first


@pytest.mark.long
def test_a_trip_whose_late_token_flips_is_not_called_as_good(tmp_path: Path) -> None:
    """It differs nowhere in the first hundred tokens, and by little on average."""
    engine = Engine(load("demo"), Store.open(tmp_path))
    task = read_tasks(suite("demo")["travel"])[4]
    found = engine.schema(task.schema).prompt(task.prompt).fidelity()
    runs = answers(engine, task.schema, task.prompt, RunSettings())
    first = found.flips[0]
    assert first.position == parting(runs) > 100
    assert found.tokens_read == len(runs["uncached"]) == RunSettings().max_new_tokens
    assert not found.read_to_end
    decode = engine.model.tokenizer.decode
    assert first.uncached in decode(runs["uncached"][first.position :])
    assert decode(runs["cached"][first.position :]).startswith(first.cached)
    assert first.before
    assert decode(runs["uncached"][: first.position]).endswith(first.before)
    assert (found.worst_position, found.kl_worst) == (first.position, pytest.approx(first.kl))
    assert "nothing to fix" not in found.advice
    assert f"token {first.position + 1}" in found.advice
    left = [(remedy.flips, remedy.kl_worst) for remedy in found.remedies]
    assert left == sorted(left)
    begun = engine.schema(task.schema).prompt(task.prompt).fidelity(RunSettings(max_new_tokens=32))
    assert begun.faithful, "its beginning is as good"
    engine.close()


SCHEMA = """<schema name="s"><system>You plan.</system><user>Read.
<module name="a">alpha and more of it</module><module name="b">beta is about alpha</module>
<module name="c">gamma</module></user><assistant>Done.</assistant></schema>"""


@pytest.mark.parametrize("family", each(["llama-gqa", "gemma2", "falcon"], "gemma2"))
@pytest.mark.parametrize(
    "scope", each(["isolated", "anchored", "preceding", "scaffold"], "isolated", "preceding")
)
def test_the_first_flip_is_where_two_runs_part(family: str, scope: Any, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    settings = RunSettings(max_new_tokens=24, scope=scope)
    for question in ("Which letters?", "x"):
        schema, prompt = schema_of(SCHEMA), prompt_of(f"<prompt><a/><b/><c/><user>{question}</user></prompt>")
        runs = answers(engine, schema, prompt, settings)
        found = engine.schema(schema).prompt(prompt).fidelity(settings)
        assert parting(runs) == (found.flips[0].position if found.flips else None)
        assert found.tokens_read == len(runs["uncached"])
        assert found.read_to_end == (runs["uncached"][-1] in engine.model.end_tokens)
        assert found.answer_agreement == pytest.approx(1 - len(found.flips) / found.tokens_read)
        assert found.kl_worst >= found.kl_mean >= 0
        assert found.first_token_agrees == (0 not in [flip.position for flip in found.flips])
    engine.close()


def test_what_a_module_mends_is_what_flips_without_it(tmp_path: Path) -> None:
    """The only module that deviates makes every flip."""
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    source = '<schema name="s">All. <module name="a">alpha</module><module name="b">beta</module></schema>'
    flipped = 0
    for question in ("so what?", "why", "zebra!"):
        prompt = prompt_of(f"<prompt><a/><b/> {question}</prompt>")
        settings = RunSettings(max_new_tokens=32, scope="isolated")
        found = engine.schema(schema_of(source)).prompt(prompt).fidelity(settings)
        mends = {module.path: module.mends for module in found.modules}
        assert mends[""] == 0
        if found.flips:
            flipped += 1
            assert max(mends.values()) > 0
            assert "flip" in found.advice
    assert flipped
    engine.close()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (GOOD, ["as good as the uncached one", "nothing to fix", "< 0.001 at worst"]),
        (
            replace(LATE, remedies=(BLEND,)),
            [
                "1 of 128 tokens differs. It flips at token 100",
                "prefers ' Oslo' to ' Rome'",
                "Module 'b' suffers",
            ],
        ),
        (
            replace(LATE, remedies=(BLEND,)),
            ["Nothing that was tried removes every flip", "Encoding these modules together removes the"],
        ),
        (replace(LATE, remedies=(LINK, BLEND)), ["Repair link:8 leaves no flip", "0.004 to 0.001"]),
        (
            replace(LATE, remedies=(NEAR, PAIR)),
            ["The scope preceding leaves no flip", "computes nothing more"],
        ),
        (replace(LATE, remedies=(PAIR, LINK)), ["Encoded together, 'a' and 'b' leave no flip"]),
        (replace(LATE, flips=(FLIP, FLIP)), ["2 of 128 tokens differ. The first flips at token 100"]),
        (
            replace(GOOD, kl_worst=0.3),
            ["Same words; a risk if you sample. ", "0.3 at worst, at token 4"],
        ),
        (
            replace(GOOD, kl_mean=0.009, kl_worst=0.01),
            ["Same words; a small risk if you sample. ", "0.009 nats per token"],
        ),
        (replace(GOOD, kl_worst=0.3, remedies=(BLEND,)), ["halves the worst KL"]),
        (replace(LATE, modules=()), ["reads no module"]),
    ],
)
def test_the_verdict_in_words(found: Fidelity, words: list[str]) -> None:
    said = advice(found, scope="anchored")
    for part in words:
        assert part in said, said
    assert ("nothing to fix" in said) == found.faithful == (found is GOOD)


@pytest.mark.parametrize(
    ("parts", "worst"),
    [
        ({"a": (0.005, 0), "b": (0.036, -1)}, "b"),
        ({"a": (0.005, -1), "b": (0.036, -2), "c": (0.0, 0)}, "b"),
        ({"a": (-0.01, 0), "b": (0.001, -3)}, "b"),
        ({"": (0.036, -1), "a": (0.005, 0)}, ""),
        ({"a": (0.036, -1), "b": (0.005, 1)}, "b"),
        ({"a": (0.2, 1), "b": (0.1, 2)}, "b"),
        ({"a": (0.2, 1), "b": (0.1, 1)}, "a"),
    ],
)
def test_the_module_that_suffers_most_makes_the_most_flips_then_the_most_harm(
    parts: dict[str, tuple[float, int]], worst: str
) -> None:
    for order in (parts, dict(reversed(parts.items()))):
        modules = tuple(ModuleFidelity(path, 9, 0.1, 0.1, 0.1, *part) for path, part in order.items())
        found = replace(LATE, modules=modules)
        assert found.to_json()["worst"] == worst
        name = f"Module {worst!r}" if worst else "The fixed text"
        assert f"{name} suffers most from reuse" in advice(found, scope="anchored")
    assert replace(LATE, modules=()).worst is None


def test_only_fixes_that_leave_less_than_now_are_improvements() -> None:
    worse, hardly = replace(BLEND, kl_worst=0.2), replace(BLEND, kl_worst=0.99 * LATE.kl_worst)
    mixed = replace(LINK, kl_worst=0.2)  # no flip, but a larger KL
    found = replace(LATE, remedies=(LINK, BLEND, hardly, worse, mixed))
    assert found.improvements == (LINK, BLEND)
    calm = replace(GOOD, kl_worst=0.0052, kl_mean=0.002, remedies=(LINK, BLEND))
    assert calm.improvements == (LINK,), "a flip more is worse, however small the KL"


def test_an_answer_that_was_not_read_to_its_end_is_good_as_far_as_it_was_read() -> None:
    said = advice(replace(GOOD, read_to_end=False), scope="anchored")
    assert "as good as the uncached one in its first 128 tokens, as far as it was read" in said


def test_under_the_scope_scaffold_a_flip_is_rounding() -> None:
    assert "leaves only rounding" in advice(LATE, scope="scaffold")


def test_what_is_almost_nothing_is_not_called_nothing() -> None:
    shown = [nats(value) for value in (0.0, 7e-8, -7e-8, 9.9e-4, 1e-3, 0.0123, 0.3)]
    assert shown == ["0", "< 0.001", "< 0.001", "< 0.001", "0.001", "0.012", "0.3"]
    assert "the KL is < 0.001 at worst" in advice(replace(GOOD, kl_worst=7e-8), scope="anchored")
