"""A GPU computes what the processor does: every family, many prompts at once, answers and the store."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
import torch

from engine.base.choices import SCOPES
from engine.base.events import SIDES, Answer
from engine.base.segment import Placement
from engine.cache import upload
from engine.cache.upload import Uploader
from engine.checkpoint.synthetic import byte_tokenizer
from engine.decisions.questions import choice, predicate
from engine.engine import Engine
from engine.kv_cache import recorded_prefill
from engine.model.model import Model
from engine.store import Store
from tests.engine.batch.test_rows_of_many import Prompt, passed, pieces
from tests.engine.cases import Case, apart, held_in_memory, model_of, prompt_of, schema_of
from tests.engine.model.test_recorded_pass import decoded, first_logits
from tests.engine.reference import Reference
from tests.engine.test_exactness import SCHEMA, random_prompt
from tests.engine.tiny import CHATML, DENSE, FAMILIES, FIXED, SEGMENTS, tiny_network

GPU = "cuda"
LONG = 24  # tokens of an answer, most of them by replayed passes
LIMIT = 1e-3  # between logits in fp32: a GPU adds in another order
BOTH = '<prompt><a n="1"><x/></a><b/><z/><user>Well?</user></prompt>'

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@cache
def on_gpu(family: str, dtype: torch.dtype = torch.float32) -> Model:
    """A tiny model on the GPU, where its probe runs too."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHATML
    network = tiny_network(family).to(GPU, dtype)
    return Model(f"tiny-{family}", network, tokenizer, f"tiny-{family}-{dtype}")


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_logits_equal_the_dense_reference_on_the_processor(family: str, tmp_path: Path) -> None:
    engine = Engine(on_gpu(family), Store.open(tmp_path))
    assert engine.model.path == ("dense" if family in DENSE else "segments")
    reference = Reference(tiny_network(family), relocatable=family not in FIXED)
    schema, draw = schema_of(SCHEMA), random.Random(family)
    for scope in SCOPES:
        for placement in ("schema",) if family in FIXED else ("compact", "schema", "compact"):
            source = random_prompt(draw, ordered=placement == "schema")
            case = Case(engine, schema, prompt_of(source), scope, placement)
            found = case.logits()
            assert found.device.type == GPU
            wanted = reference.logits(case.plan, case.uses)
            assert apart(found.cpu(), wanted) <= LIMIT, (scope, placement, source)
    assert all(one.keys.device.type == GPU for one in held_in_memory(engine).values())
    engine.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_repair_of_everything_is_the_full_pass(family: str, tmp_path: Path) -> None:
    engine = Engine(on_gpu(family), Store.open(tmp_path))
    case = Case(engine, schema_of(SCHEMA), prompt_of(BOTH))
    whole = case.full()
    for repair in ("link:1000", "blend:1", *(() if family in DENSE else ("query:1", "impact:1"))):
        computed = case.logits(repair)
        assert apart(computed, whole[-len(computed) :]) <= LIMIT, repair
    engine.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", SEGMENTS)
def test_prompts_in_one_pass_have_the_logits_they_have_alone(family: str, dtype: torch.dtype) -> None:
    """bf16 and fp16 read the shared modules in one call; fp32, and soft caps, part by part."""
    model = on_gpu(family, dtype)
    one, two = pieces(model)
    placed = [
        [Placement(one, 0, 80, 0), Placement(two, 0, 70, 80)],
        [Placement(two, 0, 70, 0), Placement(one, 0, 80, 73)],
        [Placement(one, 10, 80, 6, (12, 79)), Placement(two, 5, 70, 76)],
        [Placement(one, 0, 80, 0)],
        [],
    ]
    prompts = [
        Prompt(model, own, max((one.start + one.tokens for one in own), default=0), 3 + at, at)
        for at, own in enumerate(placed)
    ]
    spread = model.network.forward(list(range(5, 90)), range(85), model.network.kv_cache((), 85), 85).std()
    most = LIMIT if dtype == torch.float32 else 0.15 * spread.item()
    batch = model.network.batch_cache()
    assert passed(model, batch, [(one, one.prefill()) for one in prompts]) <= most
    for _ in range(6):
        assert passed(model, batch, [(one, one.step()) for one in prompts]) <= most


@pytest.mark.parametrize("family", SEGMENTS)
def test_a_replayed_pass_has_the_logits_of_a_computed_one(family: str) -> None:
    network = on_gpu(family).network
    recorder, network.recorder = network.recorder, None
    wanted = decoded(on_gpu(family))
    network.recorder = recorder
    assert recorder is not None
    assert apart(decoded(on_gpu(family)), wanted) <= LIMIT
    print(family, recorder.replays, recorder.fault)
    assert recorder.replays or "mixtral gpt-oss afmoe jetmoe".count(family), recorder.fault


@pytest.mark.parametrize("family", SEGMENTS)
def test_a_replayed_first_pass_has_the_logits_of_a_computed_one(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = on_gpu(family)
    wanted = first_logits(model)
    prefills = model.network.prefills
    assert prefills is not None
    monkeypatch.setattr(recorded_prefill, "FEWEST", 1)
    for _ in range(2):
        for found, computed in zip(first_logits(model), wanted, strict=True):
            assert apart(found, computed) <= LIMIT
    assert prefills.replays or "mixtral gpt-oss afmoe jetmoe".count(family), prefills.fault


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_upload_is_the_same_bytes(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "CHUNK", 4096)
    sent = Uploader(torch.device(GPU))
    for shape in ((3, 5, 7, 11), (2, 64, 64), (1,), (0, 4)):
        states = torch.randn(shape).to(dtype)
        for one in (states, states.transpose(0, -1)):
            got = sent(one)
            assert got.device.type == GPU
            assert torch.equal(got.cpu(), one)
    assert sent(got) is got


@pytest.mark.parametrize("scheme", ["plain", "int8", "int4"])
def test_a_segment_from_disk_is_the_one_in_memory(scheme: str, tmp_path: Path) -> None:
    """A miss and a hit have the same logits to the bit, in every format of the store."""
    store = Store.open(tmp_path)
    store.settings.set_scheme(scheme)
    found = []
    for opened in (store, Store.open(tmp_path)):
        engine = Engine(on_gpu("llama-gqa", torch.bfloat16), opened)
        case = Case(engine, schema_of(SCHEMA), prompt_of(BOTH))
        found.append((case.logits(), {one.tier for one in case.supplied.uses}))
        engine.close()
    (missed, first), (hit, then) = found
    assert (len(first), len(then)) == (1, 1)
    assert first != then
    assert torch.equal(missed, hit)


def test_answers_agree_alone_together_and_with_the_processor(tmp_path: Path) -> None:
    source = schema_of(SCHEMA)
    asked = [f'<prompt schema="s"><a n="1"/><b/><z/><user>What now, {n}?</user></prompt>' for n in range(6)]
    texts = []
    for device in ("cpu", GPU):
        model = Model("tiny", tiny_network().to(device), on_gpu("llama-gqa").tokenizer, f"tiny-{device}")
        with Engine(model, Store.open(tmp_path / device)) as engine:
            schema = engine.schema(source)
            prompts = [schema.prompt(one) for one in asked]
            texts.append([one.answer(max_new_tokens=LONG).text for one in prompts])
            texts.append([one.answer(max_new_tokens=LONG, speculate="on").text for one in prompts])
            together = engine.answer_all(prompts, max_new_tokens=LONG)
            texts.append([answer.text for _, answer in together if isinstance(answer, Answer)])
            for side in SIDES:
                answers = [one.answer(max_new_tokens=LONG, mode=side, scope="scaffold") for one in prompts]
                texts.append([one.text for one in answers])
            recorder = model.network.recorder
            assert (recorder is not None and recorder.replays > 100) == (device == GPU)
    cpu, gpu = texts[:5], texts[5:]
    assert cpu == gpu
    assert gpu[0] == gpu[1] == gpu[2]
    assert gpu[3] == gpu[4]


@pytest.mark.parametrize("family", FAMILIES)
def test_decisions_equal_those_of_the_processor(family: str, tmp_path: Path) -> None:
    questions = [predicate("Is it one?"), choice("Which is it?", ["one", "other", "none of these"])]
    found = []
    for model in (model_of(family, chat=True), on_gpu(family)):
        with Engine(model, Store.open(tmp_path / model.network.device.type)) as engine:
            prompt = engine.schema(schema_of(SCHEMA)).prompt(BOTH)
            decided = [prompt.decide(questions, mode=side) for side in SIDES]
            found.append([one.probabilities for side in decided for one in side.answers])
    for cpu, gpu in zip(*found, strict=True):
        assert gpu == pytest.approx(cpu, abs=LIMIT)


def test_the_bundled_model_answers_the_same_on_a_gpu(tmp_path: Path) -> None:
    samples = Path(__file__).parents[2] / "sample_schemas"
    texts = []
    for device in ("cpu", GPU):
        with Engine.open("demo", device=device, cache_dir=tmp_path / device, dtype="fp32") as engine:
            prompt = engine.schema(samples / "travel.pml").prompt(samples / "travel.prompt.1.pml")
            texts.append([prompt.answer().text, prompt.answer().text, prompt.answer(mode="uncached").text])
    assert texts[0] == texts[1]
    assert texts[1][0] == texts[1][1]
