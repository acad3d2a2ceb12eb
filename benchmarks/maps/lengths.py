"""Time of a pass by length: plain, and with the text's own stored maps, loading included."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.studio.sweeps.turns import Way, in_turns
from benchmarks.maps.measure import Clock, plain_states
from engine.maps.passes import MapPasses
from engine.maps.projector import pooled
from engine.maps.store import MapStore, key_of
from engine.model.model import Model

LENGTHS = (16, 32, 64, 94, 179, 285, 393, 490, 560)  # from 94 on the paper's, of MMLU with 0 to 5 examples


def by_length(
    model: Model, passes: MapPasses, tokens: Sequence[int], rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Returns for each length the bytes of an entry, and samples of the whole pass and of its attention."""
    found = []
    for rows in (length for length in LENGTHS if length <= min(len(tokens), model.context_length)):
        with tempfile.TemporaryDirectory(prefix="pml-maps-") as folder:
            store = MapStore.create(Path(folder), model, passes.heads)
            text = tokens[:rows]
            made = passes.record(text)
            store.add(key_of(text), made.maps, pooled(made.inputs[0])[None], 1 << 40, ())
            del made
            clock = Clock(passes)
            attention: dict[str, list[float]] = {"plain": [], "mapped": []}

            def timed(name: str, run: Callable[[], Any], clock: Clock = clock, to: Any = attention) -> Way:
                def sample() -> float:
                    started = time.perf_counter()
                    with clock.running():
                        run()
                    to[name].append(clock.ms)
                    return (time.perf_counter() - started) * 1000

                return Way(name, sample)

            def mapped(store: MapStore = store, text: Sequence[int] = text) -> None:
                loaded = store.load(key_of(text))
                assert loaded is not None
                maps = loaded["maps"].to(passes.network.device, passes.network.dtype)
                passes.mapped(text, maps)

            sides = [timed("plain", lambda text=text: plain_states(passes, text)), timed("mapped", mapped)]  # type: ignore[misc]
            samples = in_turns(sides, rounds, 0, lambda what, rows=rows: say(f"{rows} tokens: {what}"))  # type: ignore[misc]
            found.append({"tokens": rows, "bytes": store.bytes, "ms": samples, "attention_ms": attention})
    return found
