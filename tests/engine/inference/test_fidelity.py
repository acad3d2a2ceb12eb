"""What reuse did to an answer, measured: exact where it is known, and true to its own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.events import Compared, Finished, Working
from engine.engine import Engine
from engine.fidelity import measure
from engine.fidelity.findings import ModuleFidelity
from engine.inference.run_settings import RunSettings
from engine.store import Store
from tests.engine.cases import model_of, prompt_of, schema_of

SCHEMA = """<schema name="s"><system>You plan.</system><user>Read.
<module name="a">alpha and more of it</module>
<module name="b">beta is about alpha</module><module name="c">gamma</module></user>
<assistant>Done.</assistant>{scaffold}</schema>"""
PROMPT = "<prompt><a/><b/><c/><user>Which letters are there?</user></prompt>"
SETTINGS = RunSettings(max_new_tokens=8)


@pytest.fixture
def engine(tmp_path: Path):
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


def measured(engine: Engine, settings: RunSettings = SETTINGS, scaffold: str = "", prompt: str = PROMPT):
    schema = schema_of(SCHEMA.format(scaffold=scaffold))
    return engine.schema(schema).prompt(prompt_of(prompt)).fidelity(settings)


def test_it_agrees_with_what_a_run_compares(engine: Engine) -> None:
    found = measured(engine)
    schema = schema_of(SCHEMA.format(scaffold=""))
    events = list(engine.schema(schema).prompt(prompt_of(PROMPT)).stream(SETTINGS, mode="both"))
    (compared,) = (e.comparison for e in events if isinstance(e, Compared))
    assert found.kl_first_token == pytest.approx(compared.kl_first_token, rel=1e-3, abs=1e-6)
    assert found.first_token_agrees == compared.first_token_agrees
    assert 0 <= found.answer_agreement <= 1


def test_both_sides_read_the_whole_answer_that_one_gave(engine: Engine) -> None:
    """The reading of each side gives fidelity's KL, and the uncached one finds its own answer likeliest."""
    schema, prompt = schema_of(SCHEMA.format(scaffold="")), prompt_of(PROMPT)
    events = list(engine.schema(schema).prompt(prompt).stream(SETTINGS, mode="uncached"))
    plain = next(e.answer for e in events if isinstance(e, Finished))
    full = engine.schema(schema).prompt(prompt).reading(plain.token_ids, SETTINGS, "uncached")
    assert full.log_probabilities.argmax(-1).tolist() == list(plain.token_ids)
    cached = engine.schema(schema).prompt(prompt).reading(plain.token_ids, SETTINGS, "cached")
    apart = cached.divergence(full)
    assert len(apart) == len(plain.token_ids) > 1
    found = measured(engine)
    assert float(apart.mean()) == pytest.approx(found.kl_mean, rel=1e-3, abs=1e-7)
    exact = replace(SETTINGS, scope="scaffold")
    assert (
        engine.schema(schema).prompt(prompt).reading(plain.token_ids, exact, "cached").divergence(full).max()
        < 1e-6
    )
    mended = replace(SETTINGS, repair="link:99")
    assert (
        engine.schema(schema).prompt(prompt).reading(plain.token_ids, mended, "cached").divergence(full).max()
        < 1e-6
    )


def test_every_module_is_measured_and_the_first_one_is_exact(engine: Engine) -> None:
    found = measured(engine)
    by_path = {module.path: module for module in found.modules}
    assert list(by_path) == ["", "a", "b", "c"]
    assert by_path["a"].key_deviation < 1e-5
    assert abs(by_path["a"].harm) < 1e-5
    assert by_path["b"].key_deviation > 1e-3
    assert all(module.dependence > 0 for module in found.modules)


def test_the_harm_of_the_only_deviating_module_is_the_whole_difference(engine: Engine) -> None:
    """With a scaffold of the rest, and with nothing after the module, the rest is exact."""
    schema = schema_of(
        '<schema name="s">All. <module name="a">alpha</module><module name="b">beta</module></schema>'
    )
    found = engine.schema(schema).prompt(prompt_of("<prompt><a/><b/> so what?</prompt>")).fidelity(SETTINGS)
    harm = {module.path: module.harm for module in found.modules}
    assert found.kl_mean > 1e-4
    assert harm["b"] == pytest.approx(found.kl_mean, rel=1e-3)
    assert abs(harm["a"]) < 1e-6


def test_remedies_are_tried_and_do_what_they_say(engine: Engine) -> None:
    found = measured(engine)
    assert found.remedies
    left = [remedy.kl_mean for remedy in found.remedies]
    assert left == sorted(left)
    everything = next(r for r in found.remedies if set(r.scaffold) == {"a", "b", "c"})
    assert everything.computed == 0
    assert [r.scope for r in found.remedies if r.scope] == ["preceding"]
    for remedy in found.remedies:
        if remedy.scope:
            used = measured(engine, replace(SETTINGS, scope=remedy.scope))
        elif remedy.scaffold:
            declared = f'<scaffold modules="{" ".join(remedy.scaffold)}"/>'
            used = measured(engine, scaffold=declared)
        else:
            used = measured(engine, RunSettings(max_new_tokens=8, repair=remedy.repair))
        assert used.kl_mean == pytest.approx(remedy.kl_mean, rel=1e-3, abs=1e-6), remedy.what
        assert used.answer_agreement == remedy.answer_agreement
    assert "suffers most from reuse" in found.advice


@pytest.mark.parametrize("worst", ["b", "c"])
def test_scaffolds_are_tried_with_the_module_that_the_advice_names(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, worst: str
) -> None:
    """The other modules only seem worse where more flips without one counted against it."""

    def constructed(path: str, **given: Any) -> ModuleFidelity:
        harm, mends = (0.036, -1) if path == worst else (0.005, 0)
        return ModuleFidelity(path, **{**given, "harm": harm, "mends": mends})

    monkeypatch.setattr(measure, "ModuleFidelity", constructed)
    found = measured(engine)
    scaffolds = [set(remedy.scaffold) for remedy in found.remedies if remedy.scaffold]
    assert scaffolds
    assert all(worst in scaffold for scaffold in scaffolds), scaffolds
    assert f"Module {worst!r} suffers most" in found.advice


def test_what_a_repair_computes_has_its_choice_in_it(engine: Engine) -> None:
    """As a run counts it: blend passes the prompt through a layer, query and impact read the new text."""

    def work(repair: str) -> int:
        settings = replace(SETTINGS, repair=repair)
        schema = schema_of(SCHEMA.format(scaffold=""))
        events = list(engine.schema(schema).prompt(prompt_of(PROMPT)).stream(settings, mode="cached"))
        counts = next(e.answer.tokens for e in events if isinstance(e, Finished))
        return counts["computed"] + counts["choosing"]

    repairs = {remedy.repair: remedy.computed for remedy in measured(engine).remedies if remedy.repair}
    assert {"link:2", "blend:0.15", "query:0.15", "impact:0.15"} <= set(repairs)
    assert repairs == {repair: work(repair) - work("none") for repair in repairs}


def test_trying_stores_nothing(engine: Engine) -> None:
    engine.schema(schema_of(SCHEMA.format(scaffold=""))).encode()
    before = engine.store.stats().segments
    assert measured(engine).remedies
    assert engine.store.stats().segments == before


def test_where_there_is_nothing_to_mend_it_says_so(engine: Engine) -> None:
    for settings in (
        RunSettings(max_new_tokens=8, scope="scaffold"),
        RunSettings(max_new_tokens=8, repair="link:99"),
    ):
        found = measured(engine, settings)
        assert found.kl_mean < 1e-6
        assert found.remedies == ()
        assert "nothing to fix" in found.advice
    whole = measured(engine, RunSettings(max_new_tokens=8, scope="scaffold"))
    assert max(module.key_deviation for module in whole.modules) < 1e-5


@pytest.mark.parametrize("family", ["gpt2", "falcon", "mpt", "gemma3", "gpt-oss"])
def test_it_measures_every_kind_of_model(family: str, tmp_path: Path) -> None:
    engine = Engine(model_of(family), Store.open(tmp_path))
    found = measured(engine)
    assert len(found.modules) == 4
    assert all(torch.isfinite(torch.tensor(module.harm)) for module in found.modules)
    if family in ("falcon", "mpt"):
        assert not any(remedy.repair.startswith("query") for remedy in found.remedies)
    engine.close()


def test_progress_ends_and_the_engine_is_free_after_a_stop(engine: Engine) -> None:
    schema = schema_of(SCHEMA.format(scaffold=""))
    steps = engine.schema(schema).prompt(prompt_of(PROMPT)).measuring(SETTINGS)
    seen = [next(steps) for _ in range(8)]
    assert all(isinstance(step, Working) and step.done < step.total for step in seen[-2:])
    steps.close()
    assert measured(engine).tokens_read >= 1


def test_a_measurement_that_is_stopped_has_what_was_measured_so_far(engine: Engine) -> None:
    prompt = engine.schema(schema_of(SCHEMA.format(scaffold=""))).prompt(prompt_of(PROMPT))
    seen: list[tuple[int, int]] = []
    whole = prompt.fidelity(SETTINGS, lambda done, total, what: seen.append((done, total)))
    assert whole.complete
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({total for _, total in seen}) == 1
    asked = iter([False, False, True])
    part = prompt.fidelity(SETTINGS, enough=lambda: next(asked))
    assert not part.complete
    assert part.modules == whole.modules[:2]
    assert (part.kl_mean, part.remedies) == (whole.kl_mean, ())
    assert "stopped before it tried every fix" in part.advice
    asked = iter([False] * (len(whole.modules) + 1) + [True])
    part = prompt.fidelity(SETTINGS, enough=lambda: next(asked))
    assert (len(part.remedies), part.modules, part.complete) == (1, whole.modules, False)
