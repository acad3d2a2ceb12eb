"""The parts of the suite by their names, and those that cannot be measured yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale


@dataclass(frozen=True)
class Part:
    """A part of the suite.

    Attributes:
        name: of the part, as `--only` takes it.
        title: what it measures, in a heading.
        source: module and function that measure it.
        reading: how to read its figures, "" if they need no explanation.
    """

    name: str
    title: str
    source: tuple[str, str]
    reading: str

    def measure(self, scale: Scale, say: Say) -> list[Group]:
        """Measures it. Torch is loaded here and not before."""
        import importlib

        module, function = self.source
        run: Callable[[Scale, Say], list[Group]] = getattr(
            importlib.import_module(f"benchmarks.suite.{module}"), function
        )
        return run(scale, say)


PARTS = (
    Part(
        "T1",
        "Time to first token, 1.1B",
        ("first_token", "large"),
        "TTFT starts at the prompt text, for other software at token ids.",
    ),
    Part("T2", "Time to first token, 0.1B", ("first_token", "small"), ""),
    Part(
        "T3",
        "Against the floor",
        ("first_token", "floor"),
        "From token ids, against a forward pass of the new tokens alone.",
    ),
    Part(
        "T4",
        "Against the paper's method",
        ("first_token", "paper"),
        "From token ids, against a copy of all modules into one buffer.",
    ),
    Part("T5", "Segments from files", ("first_token", "files"), ""),
    Part(
        "T6",
        "Number of modules",
        ("modules", "counts"),
        "",
    ),
    Part("T7", "Cost of an edit", ("modules", "edits"), ""),
    Part("T8", "First run", ("beginnings", "first_runs"), ""),
    Part("T9", "Overhead", ("modules", "overhead"), ""),
    Part(
        "T10",
        "Errors while typing",
        ("mistakes", "mistakes"),
        "A key press includes a wait of 90 ms.",
    ),
    Part(
        "T11",
        "Many prompts at once",
        ("crowds", "together"),
        "Attention: one layer over 32 prompts. The time one by one is extrapolated from two or four prompts.",
    ),
    Part(
        "arrivals",
        "Random arrivals",
        ("crowds", "small"),
        "The highest rate at which a token takes at most twice its time alone; 0: below the measured rates.",
    ),
    Part(
        "T13",
        "Decoding",
        ("decoding", "steps"),
        "Quoting answers repeat their documents. The large networks replay the bundled model's tokens.",
    ),
    Part(
        "T14",
        "Start of a process",
        ("beginnings", "starts"),
        "",
    ),
    Part("M1", "Storage", ("storing", "memory"), ""),
    Part("lengths", "Number of cached tokens", ("first_token", "lengths"), ""),
    Part("answers", "Length of the answer", ("decoding", "answers"), ""),
    Part("store", "Size of the store", ("storing", "lookups"), ""),
)
NOT_YET = {"T12": "a GPU and a 7B model", "T15": "a run of `pml bench serve`"}
BY_NAME = {part.name: part for part in PARTS}
