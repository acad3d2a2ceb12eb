"""The training loop: attention over packed rows, resuming, and what is exported."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaForCausalLM

from training import tiles
from training.corpus import Batch, Stage, batch
from training.train import Course, Options, Run, rate_at, trains_in_bf16

DEMO_MODEL = Path(__file__).parents[2] / "assets" / "demo_model"
SMALL = Stage(256, 2, (1.0, 0.0, 0.0, 0.0), (1, 2), 0.5, 0.5)


def small_batch(seed: int, stage: Stage = SMALL) -> Batch:
    return batch(stage, Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json")), random.Random(seed))


def test_tiles_compute_what_one_masked_pass_does() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = small_batch(1, Stage(1280, 2, (0.2, 0.3, 0.5, 0), (2, 3), 0.5, 0.5))
    shape = (2, 4, 1280, 16)
    query = torch.randn(shape, generator=generator)
    key, value = (torch.randn((2, 2, 1280, 16), generator=generator) for _ in range(2))
    found, _ = tiles.tiled(torch.nn.Module(), query, key, value, drawn.mask, 0.25, examples=drawn.examples)
    wide = [t.repeat_interleave(2, 1) for t in (key, value)]
    want = torch.nn.functional.scaled_dot_product_attention(query, *wide, attn_mask=drawn.mask, scale=0.25)
    assert (found - want.transpose(1, 2)).abs().max() < 1e-5


@pytest.mark.long
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    options = Options(DEMO_MODEL, tmp_path, minutes=5)
    run = Run(options)
    for seed in range(2):
        run.learn(small_batch(seed))
    run.save()
    again = Run(options)
    assert (again.step, again.tokens) == (2, run.tokens)
    assert 0 < again.course.done() < 1
    one, other = run.learn(small_batch(9)), again.learn(small_batch(9))
    assert abs(one[1] - other[1]) < 1e-3
    for mine, theirs in zip(run.model.parameters(), again.model.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-3)


@pytest.mark.long
def test_a_run_learns_from_finished_weights_and_exports_a_model(tmp_path: Path) -> None:
    run = Run(Options(DEMO_MODEL, tmp_path, minutes=5, init=DEMO_MODEL))
    given = LlamaForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    assert torch.equal(run.model.lm_head.weight, given.lm_head.weight)
    drawn = small_batch(1)
    first = [run.learn(drawn)[1] for _ in range(6)]
    assert first[-1] < first[0]
    run.export()
    exported = LlamaForCausalLM.from_pretrained(tmp_path / "export")
    assert exported.dtype == torch.bfloat16
    assert exported.config._attn_implementation != tiles.NAME
    assert AutoTokenizer.from_pretrained(tmp_path / "export").chat_template


def test_masks_may_be_left_out_of_every_stage() -> None:
    course = Course(0.0, 1.0, further=False, blocked=0.0)
    assert {course.stage(random.Random(seed)).blocked for seed in range(20)} == {0.0}


def test_a_trial_with_short_rows_fills_its_time_with_them() -> None:
    lengths = []
    for gone in (0.1, 0.45, 0.6, 0.99, 1.5):
        course = Course(time.time() - gone * 1000, 1000.0, further=False, longest=384)
        lengths.append(course.stage(random.Random(1)).length)
    assert lengths == [192, 192, 384, 384, 384]
    whole = Course(time.time() - 999, 1000.0, further=False)
    assert {whole.stage(random.Random(seed)).length for seed in range(20)} == {768, 1536, 3072}


def test_rates_rise_and_fall() -> None:
    rates = [
        rate_at(step, done) for step, done in ((0, 0.0), (30, 0.01), (100, 0.05), (900, 0.9), (999, 1.2))
    ]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > rates[3] > rates[4] > 0


def test_a_processor_that_is_slower_in_bf16_trains_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"architecture": "x86_64", "avx2": True}
    for told, wanted in ((plain, False), (plain | {"amx_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda told=told: told)
        assert trains_in_bf16("cpu") is wanted
        assert trains_in_bf16("cuda")
