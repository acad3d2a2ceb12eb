"""One point of a sweep: the ways that take turns, and more figures of each way.

All ways but the floor begin at the text of a prompt:

- `uncached`: every token is computed.
- `cached`: segments are in memory.
- `files`: segments are read from files and checked, like the first load of a process.
- `floor`: a pass over the new tokens alone. No cache can be faster.
- `one_by_one`, `together`: all answers to several prompts over the same modules.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Protocol

from app.studio.sweeps.crowd import Crowd, Size
from app.studio.sweeps.drawn import drawn_tokens, sources, text_of
from app.studio.sweeps.passes import floor_way
from app.studio.sweeps.plan import ANSWER_TOKENS, FEW, Sweep, Value
from app.studio.sweeps.turns import Way
from engine.base.events import Answer, Side
from engine.engine import Engine
from engine.fidelity.comparison import first_token_divergence
from engine.model.model import Model
from engine.store import Store


class Point(Protocol):
    """What is measured at one point."""

    def ways(self) -> list[Way]:
        """The ways that take turns."""
        ...

    def about(self, name: str, samples: list[float]) -> dict[str, Any]:
        """What else is known of a way after its samples, in milliseconds."""
        ...

    def close(self) -> None:
        """Lets go of all."""
        ...


def point(model: Model, sweep: Sweep, value: Value, folder: Path) -> Point:
    """Prepares a point: draws its texts, and computes its segments.

    Args:
        model: the model that is measured.
        sweep: the sweep that it is of.
        value: which of its points.
        folder: an empty folder for stores.

    Raises:
        SettingsError: the model cannot do such a repair.
    """
    return (PromptsPoint if sweep.axis == "prompts" else PromptPoint)(model, sweep, value, folder)


class PromptPoint:
    """One prompt over stored modules."""

    def __init__(self, model: Model, sweep: Sweep, value: Value, folder: Path) -> None:
        self._model, self._sweep, self._folder = model, sweep, folder
        self._cached, modules, self._new = sweep.at(value)
        self._schema_text, self._prompt_text = sources(model, self._cached, modules, self._new, sweep.seed)
        self._changes: dict[str, Any] = {}
        if sweep.axis in ("scope", "repair"):
            self._changes = {sweep.axis: value}
            before = text_of(model, max(1, self._cached // 8), random.Random(sweep.seed + 1))
            self._schema_text = self._schema_text.replace("<module", f"{before} <module", 1)  # is seen by all
        self._answers: defaultdict[str, list[Answer]] = defaultdict(list)
        self._open()
        try:
            self._encode_ms = self._ask("cached").timeline_ms["encode"]
            self._engine.store.finish_writing()
            self._answers.clear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the store."""
        self._engine.close()

    def ways(self) -> list[Way]:
        """Every way; files and the floor only where lengths change."""
        ways = [
            Way("uncached", lambda: self._ask("uncached").ttft_ms),
            Way("cached", lambda: self._ask("cached").ttft_ms),
        ]
        if not self._changes:
            ways.append(Way("files", lambda: self._ask("cached", "files").ttft_ms, self._process_begins))
            drawn = drawn_tokens(int(self._model.config.vocab_size), self._new, self._sweep.seed)
            ways.append(floor_way(self._model, drawn, self._cached))
        return ways

    def about(self, name: str, samples: list[float]) -> dict[str, Any]:
        """The stages of the median sample, tokens, and how far the cached answer is from the other."""
        answers = self._answers[name][1::2]  # every second run counts; the one before warms up
        if not answers:
            return {}
        middle = answers[samples.index(statistics.median_low(samples))]
        found: dict[str, Any] = {"timeline_ms": dict(middle.timeline_ms), "tokens": dict(middle.tokens)}
        if name == "cached":
            found["encode_ms"] = self._encode_ms  # of all its segments, once
            own, theirs = middle.first_logits, self._answers["uncached"][-1].first_logits
            assert own is not None
            assert theirs is not None
            found["kl_first_token"] = first_token_divergence(own, theirs)
        return found

    def _open(self) -> None:
        self._engine = Engine(self._model, Store.open(self._folder))
        self._schema = self._engine.schema(self._schema_text)

    def _process_begins(self) -> None:
        """Memory is empty, and no digest was checked."""
        self._engine.close()
        self._open()

    def _ask(self, side: Side, name: str = "") -> Answer:
        prompt = self._schema.prompt(self._prompt_text)
        answer = prompt.answer(mode=side, max_new_tokens=1, **self._changes)
        self._answers[name or side].append(answer)
        return answer


class PromptsPoint:
    """Many prompts over the same modules, at once and one after the other."""

    def __init__(self, model: Model, sweep: Sweep, value: Value, folder: Path) -> None:
        cached, modules, new = sweep.at(value)
        self._count = int(value)
        self._size = Size(cached, modules, new, ANSWER_TOKENS)
        # A copy: its answers end by their length alone from now on.
        self._crowd = Crowd(copy.copy(model), folder, self._size, self._count, sweep.seed)

    def close(self) -> None:
        """Closes both engines."""
        self._crowd.close()

    def ways(self) -> list[Way]:
        """Both ways."""
        one, together = self._crowd.way("one_by_one", self._single), self._crowd.way("batch", self._count)
        return [Way("one_by_one", one.run, one.prepare), Way("together", together.run, together.prepare)]

    def about(self, name: str, samples: list[float]) -> dict[str, Any]:
        """Tokens a second, and how many prompts they are of."""
        prompts = self._single if name == "one_by_one" else self._count
        rate = 1000 * prompts * self._size.new / statistics.median(samples)
        return {"prompts": prompts, "tokens_per_s": rate}

    @property
    def _single(self) -> int:
        return min(FEW, self._count)
