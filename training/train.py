"""Trains the demo model for a given time, on CPU cores or on a GPU.

    python -m training.train --run training/runs/demo --minutes 120
    python -m training.train --run training/runs/more --minutes 60 --init assets/demo_model

A run that was interrupted goes on from its checkpoint for what is left of its minutes; `--init` starts a new
run from finished weights, with the long prompts of the curriculum at once. Exports to `<run>/export`.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from engine.attention.bf16_upcast import fp32_is_faster
from engine.files import atomic
from training import tiles
from training.corpus import MAX_POSITIONS, Batch, Stage, batch

log = logging.getLogger("training")

SHORT = Stage(192, 32, (1.0, 0.0, 0.0, 0.0), (2, 5), 0.2, 0.0)
LONGER = Stage(384, 16, (0.3, 0.7, 0.0, 0.0), (3, 6), 0.4, 0.1)
PAGE = Stage(768, 8, (0.15, 0.3, 0.55, 0.0), (3, 6), 0.5, 0.3)
PAGES = Stage(1536, 4, (0.05, 0.15, 0.4, 0.4), (3, 6), 0.5, 0.3)
LONGEST = Stage(3072, 2, (0.05, 0.05, 0.2, 0.7), (3, 6), 0.5, 0.3)
# (share of the time at which it ends, stages to draw from); long contexts first: nothing learned in an hour
CURRICULUM: tuple[tuple[float, tuple[Stage, ...]], ...] = (
    (0.13, (SHORT,)),
    (0.25, (LONGER,)),
    (0.33, (PAGE,)),
    (0.43, (PAGES,)),
    (0.55, (LONGEST,)),
    (0.70, (PAGE, PAGE, PAGES, PAGES, PAGES, LONGEST)),
    (9.99, (PAGE, PAGES, PAGES, LONGEST)),
)
FURTHER: tuple[tuple[float, tuple[Stage, ...]], ...] = (
    (0.25, (LONGER, LONGER, PAGE)),
    (0.75, (PAGE, PAGE, PAGES, PAGES, LONGEST)),
    (9.99, (PAGE, PAGES, PAGES, LONGEST)),
)
PEAK_MATRICES, PEAK_REST, FLOOR, WARM_UP = 3e-3, 2e-3, 0.03, 60
CONTEXT_SHARE = 0.2
SEED = 1


def new_model(vocabulary: int) -> LlamaForCausalLM:
    """The demo model's shape, freshly initialised."""
    torch.manual_seed(SEED)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=256,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=704,
            max_position_embeddings=MAX_POSITIONS,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            bos_token_id=1,
            eos_token_id=4,
            pad_token_id=2,
        )
    )


@dataclass(frozen=True)
class Course:
    """What a run goes through: its stages by share of the time, peak rates, and how masks are drawn.

    `blocked` replaces the share of contexts under the mask of cached modules, where it is given. `longest`
    leaves out the stages with longer rows; the others fill the time in their proportions.
    """

    start: float
    seconds: float
    further: bool
    blocked: float | None = None
    longest: int = MAX_POSITIONS

    def done(self) -> float:
        """Share of the time that has gone."""
        return (time.time() - self.start) / self.seconds

    def stage(self, r: random.Random) -> Stage:
        """A stage for now."""
        course = FURTHER if self.further else CURRICULUM
        kept = [(min(end, 1.0), s) for end, s in course if max(stage.length for stage in s) <= self.longest]
        done = min(self.done(), 1.0) * kept[-1][0]
        stage = r.choice(next(stages for end, stages in kept if done <= end))
        return stage if self.blocked is None else replace(stage, blocked=self.blocked)


class Draws(IterableDataset[Batch]):
    """Batches without end; every worker draws its own."""

    def __init__(self, course: Course, tokenizer: Path, step: int) -> None:
        self.course, self.tokenizer, self.step = course, tokenizer, step

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        r = random.Random(f"{SEED} {self.step} {worker.id if worker else 0}")
        tokenizer = Tokenizer.from_file(str(self.tokenizer / "tokenizer.json"))
        while True:
            yield batch(self.course.stage(r), tokenizer, r)


def rate_at(step: int, done: float) -> float:
    """Share of the peak learning rate: warm-up by steps, then a cosine by time."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return min(1.0, (step + 1) / WARM_UP) * (FLOOR + (1 - FLOOR) * cosine)


def trains_in_bf16(device: str) -> bool:
    """Whether a device computes the layers in bf16; a CPU does where that is not slower than fp32."""
    return device != "cpu" or not fp32_is_faster(torch.cpu.get_capabilities())


def losses(
    model: LlamaForCausalLM, body: Callable[..., Any], drawn: Batch, generator: torch.Generator
) -> tuple[torch.Tensor, float, float]:
    """Weighted loss, and the answers' loss and token accuracy. The head runs only where a token counts."""
    weights = drawn.weights[:, 1:].reshape(-1)
    kept = (weights == 1.0) | (
        (weights > 0) & (torch.rand(weights.shape, generator=generator).to(weights.device) < CONTEXT_SHARE)
    )
    device = drawn.ids.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=trains_in_bf16(device)):
        hidden = body(
            input_ids=drawn.ids,
            attention_mask=drawn.mask,
            position_ids=drawn.positions,
            use_cache=False,
            examples=drawn.examples,
        )[0]
        logits = model.lm_head(hidden[:, :-1].reshape(-1, hidden.shape[-1])[kept])  # [kept, vocabulary]
    target, weight = drawn.ids[:, 1:].reshape(-1)[kept], weights[kept]
    each = functional.cross_entropy(logits.float(), target, reduction="none")
    answer = weight == 1.0
    accuracy = (logits.argmax(-1)[answer] == target[answer]).float().mean()
    return (each * weight).sum() / weight.sum(), float(each[answer].mean().detach()), float(accuracy)


def export(model: LlamaForCausalLM, tokenizer: Path, folder: Path) -> None:
    """Saves weights (bf16), tokenizer and generation settings as a folder that transformers loads."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.bfloat16()
    copy.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=4, pad_token_id=2, do_sample=False)
    copy.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)


def new_optimizers(model: LlamaForCausalLM) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Muon for the matrices within layers, AdamW for the rest.

    In a trial of 100 steps Muon came to an answer loss of 2.52, AdamW alone to 2.91.
    """
    matrices = [p for n, p in model.named_parameters() if p.dim() > 1 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.dim() <= 1 or "embed" in n]
    return (
        torch.optim.Muon(matrices, lr=PEAK_MATRICES, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=PEAK_REST, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    )


def save(path: Path, state: dict[str, object]) -> None:
    """Writes a checkpoint so that an interruption leaves the previous one."""
    with atomic.writing(path.parent, path.name, mode=None) as file:
        torch.save(state, file)


@dataclass(frozen=True)
class Options:
    """What a run is given; see the command's help."""

    tokenizer: Path
    run: Path
    minutes: float
    init: Path | None = None
    pause: Path | None = None
    blocked: float | None = None
    longest: int = MAX_POSITIONS
    rate: float = 1.0
    device: str = "cpu"
    workers: int = 0
    compiled: bool = False


class Run:
    """A training run: model, optimizers, how far it is, and where that is kept."""

    def __init__(self, options: Options) -> None:
        self.options = options
        options.run.mkdir(parents=True, exist_ok=True)
        self.checkpoint = options.run / "checkpoint.pt"
        tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
        self.model = new_model(tokenizer.get_vocab_size())
        self.step, self.tokens, spent = 0, 0, 0.0
        state: dict[str, Any] | None = None
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
            self.model.load_state_dict(state["model"])
            self.step, self.tokens, spent = state["step"], state["tokens"], state["spent"]
            log.info("resumed at step %d", self.step)
        elif options.init:
            given = LlamaForCausalLM.from_pretrained(options.init, dtype=torch.float32)
            self.model.load_state_dict(given.state_dict())
        torch.nn.Module.to(self.model, options.device)
        self.model.set_attn_implementation(tiles.NAME if options.device == "cpu" else "sdpa")
        self.optimizers = new_optimizers(self.model)
        for optimizer, saved in zip(self.optimizers, state["optimizers"] if state else (), strict=False):
            optimizer.load_state_dict(saved)
        self.course = Course(
            time.time() - spent,
            options.minutes * 60,
            options.init is not None,
            options.blocked,
            options.longest,
        )
        self.body = torch.compile(self.model.model, dynamic=False) if options.compiled else self.model.model
        self.generator = torch.Generator().manual_seed(self.step)

    def batches(self) -> Iterator[Batch]:
        """Batches from now on, drawn by the workers."""
        draws = Draws(self.course, self.options.tokenizer, self.step)
        return iter(DataLoader(draws, batch_size=None, num_workers=self.options.workers))

    def learn(self, drawn: Batch) -> tuple[float, float, float]:
        """One step; returns the loss, and the answers' loss and token accuracy."""
        share = rate_at(self.step, self.course.done()) * self.options.rate
        for optimizer, peak in zip(self.optimizers, (PEAK_MATRICES, PEAK_REST), strict=True):
            optimizer.param_groups[0]["lr"] = peak * share
        loss, answer, accuracy = losses(self.model, self.body, drawn.to(self.options.device), self.generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens += int((drawn.positions > 0).sum())
        return float(loss.detach()), answer, accuracy

    def save(self) -> None:
        """Writes the checkpoint: everything that the run needs to go on."""
        save(
            self.checkpoint,
            {
                "model": self.model.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimizers],
                "step": self.step,
                "tokens": self.tokens,
                "spent": time.time() - self.course.start,
            },
        )

    def export(self) -> None:
        """Writes the weights as a folder that the engine loads."""
        export(self.model, self.options.tokenizer, self.options.run / "export")

    def waited(self) -> float:
        """Waits while the pause file exists; returns the seconds."""
        before = time.time()
        while self.options.pause is not None and self.options.pause.exists():
            time.sleep(0.5)
        return time.time() - before


def train(options: Options) -> None:
    """Trains for the minutes that are left."""
    run = Run(options)
    log.info("%.2fM parameters on %s", sum(p.numel() for p in run.model.parameters()) / 1e6, options.device)
    saved = exported = logged = time.time()
    for drawn in run.batches():
        if run.waited() > 1:
            saved = time.time()
        if run.course.done() >= 1:
            break
        figures = run.learn(drawn)
        now = time.time()
        if now - logged > 20:
            log.info(
                "step %d, %.3f of the time, length %d, %.2fM tokens, loss %.3f, answers %.3f, accuracy %.3f",
                run.step,
                run.course.done(),
                drawn.ids.shape[1],
                run.tokens / 1e6,
                *figures,
            )
            logged = now
        if now - saved > 60:
            run.save()
            saved = now
        if now - exported > 300:
            run.export()
            exported = now
    run.save()
    run.export()
    log.info("done: %d steps, %.1fM tokens", run.step, run.tokens / 1e6)


def main() -> None:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizer", type=Path, default=Path("assets/demo_model"), help="folder with tokenizer.json"
    )
    parser.add_argument("--run", type=Path, required=True, help="folder for checkpoint and export")
    parser.add_argument("--minutes", type=float, required=True, help="how long the whole run takes")
    parser.add_argument("--init", type=Path, help="a model folder whose weights a new run starts from")
    parser.add_argument("--pause", type=Path, help="training waits while this file exists")
    parser.add_argument(
        "--blocked", type=float, help="share of contexts under the mask of cached modules, in every stage"
    )
    parser.add_argument(
        "--longest",
        type=int,
        default=MAX_POSITIONS,
        choices=[384, 768, 1536, 3072, MAX_POSITIONS],
        help="leave out stages with longer rows, for trials",
    )
    parser.add_argument(
        "--rate", type=float, default=1.0, help="of the peak learning rates; less from finished weights"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw texts; 8 for a GPU")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="compile the model (needs a C++ compiler)")
    given = parser.parse_args()
    if given.init and given.longest < PAGE.length:
        parser.error(f"--longest {given.longest}: a run from finished weights needs rows of {PAGE.length}.")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    torch.set_num_threads(given.threads)
    train(
        Options(
            given.tokenizer,
            given.run,
            given.minutes,
            given.init,
            given.pause,
            given.blocked,
            given.longest,
            given.rate,
            given.device,
            given.workers,
            given.compile,
        )
    )


if __name__ == "__main__":
    main()
