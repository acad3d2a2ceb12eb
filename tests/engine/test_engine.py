"""The main path, from the text of a prompt to an answer, on a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import ModelError
from engine.base.events import Compared, Delta, Finished, FirstToken
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.loading import load
from engine.pml import PromptError, parse_prompt, parse_schema
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of, plan_of
from tests.engine.tiny import save_tiny, tiny_model, tiny_network

SCHEMA = """<schema name="trip">
  <system>You are a planner.</system>
  <user>
    <module name="plan">Away for <param name="duration" len="8"/> in all.
      <union>
        <module name="tokyo">Tokyo has temples.</module><module name="rome">Rome has ruins.</module>
      </union>
    </module>
    <module name="budget">Keep it cheap.</module>
  </user>
  <assistant>Gladly.</assistant>
</schema>"""
PROMPT = """<prompt schema="trip"><plan duration="3 days"><tokyo/></plan><user>What to eat?</user></prompt>"""
SETTINGS = RunSettings(max_new_tokens=6)


def trees(schema: str = SCHEMA, prompt: str = PROMPT):
    parsed, bound = parse_schema(schema), parse_prompt(prompt)
    assert parsed.ok, parsed.diagnostics
    assert bound.ok, bound.diagnostics
    return parsed.tree, bound.tree


@pytest.fixture
def engine(tmp_path: Path):
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


def answers(engine: Engine, settings: RunSettings = SETTINGS, mode: Any = "both"):
    schema, prompt = trees()
    events = list(engine.schema(schema).prompt(prompt).stream(settings, mode=mode))
    return {e.side: e.answer for e in events if isinstance(e, Finished)}, events


def test_both_sides_read_the_same_tokens_and_are_compared(engine: Engine) -> None:
    found, events = answers(engine)
    cached, uncached = found["cached"], found["uncached"]
    assert cached.tokens["prompt"] == uncached.tokens["prompt"]
    assert cached.tokens["from_cache"] + cached.tokens["computed"] == cached.tokens["prompt"]
    assert uncached.tokens["from_cache"] == 0
    assert cached.tokens["from_cache"] > cached.tokens["computed"]
    assert isinstance(events[-1], Compared)
    assert 0 <= events[-1].comparison.kl_first_token < 1
    assert list(cached.timeline_ms) == ["parse", "plan", "load", "encode", "prefill", "sample"]
    assert list(uncached.timeline_ms) == ["parse", "plan", "prefill", "sample"]
    assert sum(cached.timeline_ms.values()) == pytest.approx(cached.ttft_ms)


def test_text_arrives_piece_by_piece(engine: Engine) -> None:
    found, events = answers(engine, mode="cached")
    assert "".join(e.text for e in events if isinstance(e, Delta)) == found["cached"].text
    kinds = [type(e) for e in events]
    assert kinds.index(FirstToken) < kinds.index(Delta) < kinds.index(Finished)


def test_another_checkpoint_is_never_served_old_keys(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for seed in (0, 1):
        save_tiny(folder, seed=seed)
        engine = Engine.open(str(folder), cache_dir=tmp_path / "cache")
        found, _ = answers(engine, mode="cached")
        assert {use.outcome for use in found["cached"].segments} == {"miss"}
        engine.close()


def greedy(network, tokens: list[int], count: int) -> list[int]:
    """The plain model's answer: one full pass per token, without any cache."""
    network.set_attn_implementation("eager")
    answer: list[int] = []
    with torch.no_grad():
        while len(answer) < count and answer[-1:] != [1]:
            logits = network(torch.tensor([tokens + answer]), use_cache=False).logits[0, -1]
            answer.append(int(logits.argmax()))
    return answer


@pytest.mark.parametrize("seed", each(range(4), 0))
def test_both_sides_decode_as_the_plain_model_does(tmp_path: Path, seed: int) -> None:
    """All text is anonymous here, so the cached side sees exactly what the model itself would."""
    engine = Engine(tiny_model(seed=seed), Store.open(tmp_path))
    schema, prompt = trees(
        '<schema name="s"><user>Some fixed text.</user><assistant>Yes.</assistant></schema>',
        "<prompt><user>And this is new.</user></prompt>",
    )
    plan = plan_of(engine, schema, prompt)
    want = greedy(tiny_network("llama-gqa", seed), plan.token_ids, 24)
    for event in engine.schema(schema).prompt(prompt).stream(RunSettings(max_new_tokens=24), mode="both"):
        if isinstance(event, Finished):
            assert list(event.answer.token_ids) == want, event.side


def test_answer_takes_text(engine: Engine) -> None:
    events = list(engine.schema(SCHEMA).prompt(PROMPT).stream(SETTINGS))
    assert isinstance(events[-1], Finished)
    with pytest.raises(PromptError, match="E1"):
        list(engine.schema("<schema name='x'><module").prompt(PROMPT).stream())


def test_encode_makes_every_segment_once(engine: Engine) -> None:
    schema, _ = trees()
    seen: list[tuple[int, int, str]] = []
    report = engine.schema(schema).encode(progress=lambda *step: seen.append(step))
    assert report.encoded > 4
    assert report.reused == 0
    assert seen[-1][0] == seen[-1][1]
    assert engine.schema(schema).encode().encoded == 0
    assert {m.cached for m in engine.schema(schema).layout().modules} == {"memory"}
    found, _ = answers(engine, mode="cached")
    assert {use.outcome for use in found["cached"].segments} == {"hit"}


def test_editing_one_module_encodes_that_module_alone(engine: Engine) -> None:
    engine.schema(trees()[0]).encode()
    edited = parse_schema(SCHEMA.replace("Rome has ruins.", "Rome has fountains.")).tree
    assert engine.schema(edited).encode().encoded == 1


def test_sampling_is_seeded(engine: Engine) -> None:
    hot = RunSettings(max_new_tokens=8, temperature=1.5, seed=3)
    first, _ = answers(engine, hot, mode="uncached")
    again, _ = answers(engine, hot, mode="uncached")
    other, _ = answers(engine, RunSettings(max_new_tokens=8, temperature=1.5, seed=4), mode="uncached")
    assert first["uncached"].token_ids == again["uncached"].token_ids
    assert first["uncached"].token_ids != other["uncached"].token_ids


def test_plan_and_layout_count_the_same_tokens(engine: Engine) -> None:
    schema, prompt = trees()
    plan = engine.schema(schema).prompt(prompt).plan()
    strip = plan.strip()
    assert sum(part["tokens"] for part in strip) == plan.total_tokens
    position = 0
    for part in strip:
        assert part["start"] == position
        position += part["tokens"]
    layout = engine.schema(schema).layout()
    tokyo = next(m for m in layout.modules if m.path == "plan/tokyo")
    rome = next(m for m in layout.modules if m.path == "plan/rome")
    assert tokyo.start == rome.start
    read = next(p["tokens"] for p in strip if p["path"] == "plan/tokyo")
    assert tokyo.tokens == read + 1  # its seam, which is not read at the end of the turn
    whole = next(m for m in layout.modules if m.path == "plan")
    assert whole.total_tokens == whole.tokens + max(tokyo.tokens, rome.tokens)
    assert whole.params == {"duration": 8}


def test_a_seam_that_is_not_read_makes_no_module_look_missing(engine: Engine) -> None:
    source = """<schema name="s"><module name="outer">Text.
      <module name="inner">More.</module></module>
      <module name="other">Other.</module></schema>"""
    schema = engine.schema(source)
    list(schema.prompt("<prompt><inner/> Why?</prompt>").stream(RunSettings(max_new_tokens=1), mode="cached"))
    found = {module.path: module.cached for module in schema.layout().modules}
    assert found["outer"] == found["outer/inner"] == "memory"


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ('<prompt><plan duration="much too long a while"/></prompt>', "E501"),
        (f"<prompt><budget/><user>{'x' * 3000}</user></prompt>", "E502"),
        ("<prompt><nowhere/></prompt>", "E4"),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused_with_its_code(engine: Engine, prompt: str, code: str) -> None:
    schema, tree = trees(prompt=prompt)
    found = [d.code for d in engine.check(schema, tree) if d.severity == "error"]
    assert found
    assert found[0].startswith(code)
    with pytest.raises(PromptError, match=code):
        list(engine.schema(schema).prompt(tree).stream(SETTINGS, mode="both"))


def test_a_missing_stand_in_is_said(tmp_path: Path) -> None:
    model = tiny_model()
    model.tokenizer.unk_token = None
    engine = Engine(model, Store.open(tmp_path))
    (advice,) = engine.check(trees()[0])
    assert (advice.code, advice.severity) == ("W607", "info")
    assert "'</s>'" in advice.message
    scaffolded = SCHEMA.replace('len="8"', 'len="8" scaffold="3 days"')
    assert engine.check(parse_schema(scaffolded).tree) == ()


def test_special_tokens_in_a_text_are_plain_text() -> None:
    model = tiny_model()
    assert model.tokenizer.eos_token_id not in model.tokenize("a</s>b")
    assert model.tokenizer.eos_token_id in model.chat.token_ids("</s>")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./no/such/folder", "there is no folder"),
        ("~no-such-user/model", "there is no folder"),
        ("random:huge", "random shape"),
        (
            "someone/model-that-is-not-here",
            "is not on this machine, and HF_HUB_OFFLINE disables|hub cannot be reached",
        ),
        ("someone/not-here:small.gguf", r"not-here:small\.gguf' is not on this machine, and"),
        ("~/no-such.gguf", r"there is no file '~/no-such\.gguf'"),
        ("tests/no-such.gguf", "there is no file"),
        ("no-such.gguf", "there is no file"),
        ("not a name", "neither a local file or folder"),
    ],
)
def test_a_model_that_is_none_is_refused_in_words(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(name)


def test_folders_that_hold_no_usable_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load(str(tmp_path))
    folder = save_tiny(tmp_path / "m")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(str(folder))
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="can run code"):
        load(str(folder))
