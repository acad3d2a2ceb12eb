"""One mistake in a sound document, and its fixes pressed until none is left: what the prompt says then."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import pytest

from engine.pml import Diagnostic, Schema, bind, folded, has_errors, mended, parse_prompt, parse_schema
from tests.pml import readable
from tests.pml.documents import schema_tree
from tests.pml.mistakes import (
    BOTH,
    PROMPT_MISTAKES,
    SCHEMA_MISTAKES,
    Pair,
    Reading,
    Spoil,
    called,
    reading,
    renamed,
    samples,
    two_of,
)

Diagnose = Callable[[str], Sequence[Diagnostic]]

pytestmark = pytest.mark.long

DRAWN = 14
"""Documents that are drawn, with the samples."""

MOST_PRESSED = 30
EITHER = ("E405", "E406")
"""Codes of two imports that exclude each other: nothing shows which of them is meant."""

RENAMED = 2
"""Modules that each prompt has renamed in its schema."""

LEAST = 90
"""This share of a kind of mistake, in percent, is repaired; less of the kinds below that leave more open."""

SOME = {
    "prompt: a module called quite otherwise": 0,
    "prompt: a module renamed a little": 0,
    "prompt: attribute twice, with another value": 50,
    "prompt: import misspelt": 85,
    "prompt: imported twice": 48,
    "prompt: no </import>": 85,
    "prompt: no <import>": 30,
    "prompt: no <role>": 85,
    "prompt: no attribute": 0,
    "prompt: two of a union": 0,
    "schema: a start tag for an end tag": 80,
    "schema: attribute twice, with another value": 0,
    "schema: end tag twice": 30,
    "schema: no </module>": 80,
    "schema: no </role>": 80,
    "schema: no </union>": 70,
    "schema: no <module>": 0,
    "schema: no <role>": 75,
    "schema: no <schema>": 0,
    "schema: no <union>": 50,
    "schema: no attribute": 5,
    "schema: value misspelt": 30,
}


def of_schema() -> Diagnose:
    return lru_cache(maxsize=64)(lambda source: parse_schema(source).diagnostics)


def of_prompt(schema: Schema) -> Diagnose:
    def diagnose(source: str) -> Sequence[Diagnostic]:
        parsed = parse_prompt(source)
        return (*parsed.diagnostics, *(bind(schema, parsed.tree).diagnostics if parsed.tree else ()))

    return lru_cache(maxsize=64)(diagnose)


def pressed(source: str, diagnose: Diagnose, *, choosing: bool = False) -> str:
    """A document after the first fix was pressed again and again; `choosing`: the first of a choice too."""
    for _ in range(MOST_PRESSED):
        faults = sorted(folded(diagnose(source)), key=lambda one: (one.span.start, one.span.end))
        tried = (
            mended(source, fault, diagnose, fix)
            for fault in faults
            for fix in (fault.fixes[:1] if fault.fix or (choosing and fault.code not in EITHER) else ())
        )
        after = next((text for text in tried if text not in (None, source)), None)
        if after is None:
            break
        source = after
    return source


@dataclass
class Tally:
    """What became of the mistakes of one kind, and examples of wrong prompts."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, outcome: str, broken: str, after: str) -> None:
        self.counts[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{broken}\n---- became ----\n{after}")

    @property
    def repaired(self) -> float:
        """How many percent say again what was meant."""
        return 100 * self.counts["repaired"] / max(self.counts.total(), 1)


@cache
def pairs() -> tuple[Pair, ...]:
    """The samples, and drawn documents in several layouts, without faults and advice."""
    found, seed = samples(), 0
    while len(found) < len(samples()) + DRAWN:
        rng = random.Random(seed)
        seed += 1
        tree, layout = readable.schema(rng), rng.choice(readable.LAYOUTS)
        schema = layout.write(tree)
        prompts = [rng.choice(readable.LAYOUTS).write(readable.prompt(rng, tree)) for _ in range(2)]
        parsed = parse_schema(schema)
        assert parsed.tree is not None
        advice = [*parsed.diagnostics, *(one for text in prompts for one in of_prompt(parsed.tree)(text))]
        if not any(one.fixes or one.severity == "error" for one in advice):
            found.append(Pair(f"drawn {seed}", schema, tuple(prompts)))
    return tuple(found)


def one_each(schema: Schema) -> Iterator[str]:
    """For each module a prompt that imports it alone."""
    for path in schema.index.by_path:
        names = path.split("/")
        opened, closed = "".join(f"<{name}>" for name in names), "".join(f"</{name}>" for name in names[::-1])
        yield f"<prompt>{opened}{closed}<user>Well?</user></prompt>"


def spoilt(spoil: Spoil, seed: str, source: str) -> Iterator[str]:
    rng = random.Random(seed)
    options = [*spoil(rng, source)]
    yield from rng.sample(options, min(1, len(options)))


def outcome(meant: Sequence[Reading | None], says: Sequence[Reading | None]) -> str:
    """What became of a mistake, by what prompts said before and say now; None is an error."""
    if any(now not in (None, before) for before, now in zip(meant, says, strict=True)):
        return "wrong"
    return "error" if None in says else "repaired"


class Measurement:
    """What becomes of mistakes whose fixes are pressed, and of choices by their first."""

    def __init__(self) -> None:
        self.of_fixes: dict[str, Tally] = defaultdict(Tally)
        self.of_choices: dict[str, Tally] = defaultdict(Tally)

    def note(
        self,
        kind: str,
        broken: str,
        diagnose: Diagnose,
        says: Callable[[str], list[Reading | None]],
        meant: list[Reading | None],
    ) -> None:
        """Presses the fixes of a document that is broken by one mistake."""
        if not has_errors(diagnose(broken)):
            return  # it is another sound document
        after = pressed(broken, diagnose)
        self.of_fixes[kind].note(outcome(meant, says(after)), broken, after)
        after = pressed(after, diagnose, choosing=True)
        self.of_choices[kind].note(outcome(meant, says(after)), broken, after)

    def schema(self, pair: Pair, tree: Schema) -> None:
        """Spoils the schema, and compares its prompts and one for each module."""
        prompts = (*pair.prompts, *one_each(tree))
        meant = [reading(pair.schema, one) for one in prompts]

        def says(schema: str) -> list[Reading | None]:
            return [reading(schema, one) for one in prompts]

        for kind, spoil in {**SCHEMA_MISTAKES, **BOTH}.items():
            for broken in spoilt(spoil, f"{pair.name} {kind}", pair.schema):
                self.note(f"schema: {kind}", broken, of_schema(), says, meant)

    def prompt(self, pair: Pair, tree: Schema, prompt: str) -> None:
        """Spoils a prompt, and renames modules that it imports."""
        meant = [reading(pair.schema, prompt)]
        for kind, spoil in {**PROMPT_MISTAKES, **BOTH, "two of a union": two_of(tree)}.items():
            for broken in spoilt(spoil, f"{pair.name} {kind} {prompt}", prompt):
                diagnose = of_prompt(tree)
                self.note(
                    f"prompt: {kind}", broken, diagnose, lambda text: [reading(pair.schema, text)], meant
                )
        for near in (True, False):
            kind = f"prompt: a module {'renamed a little' if near else 'called quite otherwise'}"
            rng = random.Random(f"{pair.name} {prompt}")
            used = [one for one in renamed(near)(rng, pair.schema) if f"<{one[1]}" in prompt]
            for other, old, new in rng.sample(used, min(RENAMED, len(used))):
                now = schema_tree(other)

                def says(
                    text: str, other: str = other, old: str = old, new: str = new
                ) -> list[Reading | None]:
                    return [called(reading(other, text), new, old)]

                self.note(kind, prompt, of_prompt(now), says, meant)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    found = Measurement()
    for pair in pairs():
        tree = schema_tree(pair.schema)
        found.schema(pair, tree)
        for prompt in pair.prompts:
            found.prompt(pair, tree, prompt)
    return found


def test_no_fix_leaves_another_prompt_without_an_error(measured: Measurement) -> None:
    assert sum(tally.counts.total() for tally in measured.of_fixes.values()) > 1500
    wrong = {kind: tally.wrong[0] for kind, tally in measured.of_fixes.items() if tally.wrong}
    assert not wrong, "\n\n".join(f"{kind}: {text}" for kind, text in wrong.items())


def test_as_many_mistakes_are_repaired_as_before(measured: Measurement) -> None:
    short = {
        kind: (round(tally.repaired), dict(tally.counts))
        for kind, tally in measured.of_fixes.items()
        if tally.repaired < SOME.get(kind, LEAST)
    }
    assert not short


def test_the_first_of_a_choice_repairs_more_and_is_seldom_wrong(measured: Measurement) -> None:
    counts = sum((tally.counts for tally in measured.of_choices.values()), Counter[str]())
    wrong = [f"{kind}: {text}" for kind, tally in measured.of_choices.items() for text in tally.wrong]
    assert counts["wrong"] * 300 < counts.total(), "\n\n".join(wrong)
    assert measured.of_choices["prompt: a module renamed a little"].repaired >= LEAST
