"""Time to first token: from the text of a prompt, and from token ids with the segments in memory.

From text, with parsing, planning, reading and repair included:

- `uncached`: every token is computed.
- `cached`: segments are in memory.
- `files_later`: segments are read from files that this process has checked before.
- `files_first`: segments are read from files and checked.
- `files_cold`: the same without the page cache, if the system can drop it.
- `cached link:8` and so on: segments are in memory and repaired.

From token ids:

- `uncached`, `cached`: as above.
- `copy`: the paper's method, which first copies all modules into one buffer.
- `floor`: the new tokens alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from app.cli.base.options import ModelOptions
from app.studio.sweeps.drawn import drawn_tokens, sources, spans
from app.studio.sweeps.passes import floor_way, logits_after
from app.studio.sweeps.turns import Way
from benchmarks.base.case import Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.peers import beside
from engine.attention.rope import move_keys
from engine.base.errors import SettingsError
from engine.base.events import Answer
from engine.base.segment import Placement, Segment
from engine.cache.encoder import encode
from engine.engine import Engine
from engine.model.model import Model
from engine.prompt.recipe import Recipe, segment_key
from engine.store import Store

REPAIRS = ("link:8", "blend:0.15", "query:0.15", "impact:0.15")
PEERS = ("full", "prefix", "state_file")
_DROPPED = 0.05  # the most pages that may stay


class Answers:
    """One prompt over stored modules, from its text."""

    def __init__(self, model: Model, folder: Path, size: Size, say: Say) -> None:
        self.model, self.folder = model, folder
        self.texts = sources(model, size.cached, size.modules, size.new, size.seed)
        self.engine = Engine(model, Store.open(folder))
        self.schema = self.engine.schema(self.texts[0])
        say(f"encoding {size.modules} modules")
        self.schema.encode()
        self.process_begins()  # from now on segments come from files in every round
        self.tokens = self.ask().tokens

    def close(self) -> None:
        self.engine.close()

    def ways(self, names: Sequence[str] = ()) -> list[Way]:
        """The ways of these names, or all. Repairs that the model cannot do are left out."""

        def cached() -> float:
            return self.ask().ttft_ms

        ways = [
            Way("uncached", lambda: self.ask("uncached").ttft_ms),
            Way("cached", cached),
            Way("files_later", cached, lambda: self.engine.memory_tier.clear()),
            Way("files_first", cached, self.process_begins),
        ]
        if (not names or "files_cold" in names) and self.machine_begins():
            ways.append(Way("files_cold", cached, self.machine_begins))
        for repair in () if names else REPAIRS:
            with contextlib.suppress(SettingsError):
                self.ask("cached", repair)
                ways.append(Way(f"cached {repair}", self._repaired(repair)))
        return [way for way in ways if not names or way.name in names]

    def ask(self, side: Any = "cached", repair: str = "none") -> Answer:
        """The answer of one token."""
        return self.schema.prompt(self.texts[1]).answer(mode=side, max_new_tokens=1, repair=repair)

    def process_begins(self) -> None:
        """Empties the memory and forgets which files were checked."""
        self.engine.close()
        self.engine = Engine(self.model, Store.open(self.folder))
        self.schema = self.engine.schema(self.texts[0])

    def machine_begins(self) -> bool:
        """Does the same and drops the files from the page cache; False if the system keeps them."""
        self.process_begins()
        return dropped([path for path in (self.folder / "files").iterdir() if path.stat().st_size])

    def _repaired(self, repair: str) -> Callable[[], float]:
        return lambda: self.ask("cached", repair).ttft_ms


def dropped(files: Sequence[Path]) -> bool:
    """Asks the system to drop files from its page cache; False if it cannot or does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(os, "posix_fadvise") or not hasattr(libc, "mincore"):
        return False
    os.sync()
    pages = present = 0
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
                count = -(-len(mapped) // mmap.PAGESIZE)
                found = (ctypes.c_ubyte * count)()
                first = ctypes.c_char.from_buffer(mapped)
                size = ctypes.c_size_t(len(mapped))
                done = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), size, found)
                del first  # else the mapping cannot be closed
                if done:
                    return False
                pages += count
                present += sum(one & 1 for one in found)
    return present <= _DROPPED * pages


class Forward:
    """Random tokens in modules of equal length, from token ids to the logits."""

    def __init__(self, model: Model, size: Size, say: Say) -> None:
        self.model, self.cached = model, size.cached
        self.tokens = drawn_tokens(int(model.config.vocab_size), size.cached + size.new, size.seed)
        self.spans = spans(size.cached, size.modules)
        say(f"encoding {size.modules} modules")
        self.placements = encoded(model, self.tokens, self.spans)
        # The paper stores keys at their place in the prompt.
        self.turned = [
            (move_keys(one.segment.keys, model.rotaries, lo), one.segment.values)
            for one, (lo, _) in zip(self.placements, self.spans, strict=True)
        ]
        like = self.placements[0].segment.keys
        shape = [*like.shape[:2], self.cached, like.shape[3]]
        self.buffer = Segment("buffer", (0,) * self.cached, like.new_zeros(shape), like.new_zeros(shape))

    def uncached(self) -> torch.Tensor:
        """Logits of the last token."""
        return logits_after(self.model, self.tokens, 0)

    def in_place(self) -> torch.Tensor:
        """Computes the new tokens over the segments in place."""
        return self._behind(self.placements)

    def copy(self) -> torch.Tensor:
        """Computes the new tokens over one buffer, which is filled each time."""
        for (keys, values), (lo, hi) in zip(self.turned, self.spans, strict=True):
            self.buffer.keys[:, :, lo:hi].copy_(keys)
            self.buffer.values[:, :, lo:hi].copy_(values)
        return self._behind([Placement(self.buffer, 0, self.cached, 0)])

    def ways(self, names: Sequence[str] = ()) -> list[Way]:
        """The ways of these names, or all."""
        made = {"uncached": self.uncached, "cached": self.in_place, "copy": self.copy}
        ways = [Way(name, self._timer(run)) for name, run in made.items() if not names or name in names]
        floor = [floor_way(self.model, self.tokens[self.cached :], self.cached)]
        return [*ways, *(floor if not names or "floor" in names else [])]

    def _behind(self, placements: Sequence[Placement]) -> torch.Tensor:
        return logits_after(self.model, self.tokens[self.cached :], self.cached, placements)

    def _timer(self, run: Callable[[], torch.Tensor]) -> Callable[[], float]:
        def time_it() -> float:
            started = time.perf_counter()
            run()
            if self.model.network.device.type == "cuda":
                torch.cuda.synchronize()
            return (time.perf_counter() - started) * 1000

        return time_it


def encoded(model: Model, tokens: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[Placement]:
    """Encodes each range of tokens as a module, and places it where it stands."""
    placements = []
    for lo, hi in ranges:
        key = segment_key(model.fingerprint, model.dtype, tokens[lo:hi], ())
        (segment,) = encode(model, [Recipe(key, tuple(tokens[lo:hi]), "")], {})
        placements.append(Placement(segment, 0, hi - lo, lo))
    return placements


@case
def text(
    group: Group,
    say: Say,
    size: Size,
    names: Sequence[str] = (),
    *,
    peers: bool = False,
    without: Sequence[str] = (),
) -> Sides:
    """From the text of a prompt."""
    model = size.open(group, say)
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        contextlib.closing(Answers(model, Path(folder), size, say)) as answers,
    ):
        counts = {name: answers.tokens[name] for name in ("prompt", "from_cache")}
        group.values |= {f"tokens, {name}": count for name, count in counts.items()}
        ways = answers.ways(names)
        if not peers:
            yield ways
            return
        new = drawn_tokens(int(model.config.vocab_size), size.new, size.seed)
        with beside(group, size, PEERS, say) as others:
            yield [
                *ways,
                floor_way(model, new, size.cached),
                *(way for way in others if way.name not in without),
            ]


@case
def tokens(group: Group, say: Say, size: Size, names: Sequence[str] = ()) -> Sides:
    """From token ids, with the segments in memory."""
    model = size.open(group, say)
    forward = Forward(model, size, say)
    if not names or "copy" in names:
        cached, copied = forward.in_place(), forward.copy()
        group.values["difference of logits, cached to copy"] = float((cached - copied).abs().max())
    yield forward.ways(names)


@command(cached=1024, modules=8, new=32, repeats=5, seed=0)
def ttft(options: ModelOptions, cached: int, modules: int, new: int, repeats: int, seed: int) -> Report:
    """Time to first token: uncached, from segments in memory and in files, repaired, and the floor.

    The first table begins at the text of a prompt, the second at token ids: `copy` copies the modules into
    one buffer first, `floor` has only the new tokens. The ways take turns, each after a run of its own to
    warm up. --model random:tinyllama-1.1b measures a model of that shape without a download.
    """
    size = size_of(options, cached, modules, new, seed)
    return report_of([text("", size), tokens("token ids", size)], pace_of(repeats, seed), narrate)
