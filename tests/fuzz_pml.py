"""A mutation fuzzer of the language: `python -m tests.fuzz_pml --seconds 60`.

Each document is a mutation of a sample, of the test documents, or of the mutation before it. It goes through
every reader of the package: parsing as schema and as prompt, binding, reading the picks, editing, formatting,
and the quick fix of its first fault. A failure is an exception, a place outside the text, edits that
overlap, a fix that brings errors, a formatter that changes the meaning, a document that takes longer than a
second, or a peak of memory over 200 MB. The document is then kept.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.base.errors import PromptCacheError
from engine.pml import (
    Diagnostic,
    PromptEditError,
    PromptError,
    Schema,
    bind,
    document_kind,
    mended,
    parse_prompt,
    parse_schema,
    read_picks,
    set_pick,
)
from engine.pml.edit.formatter import format_source

SAMPLES = Path(__file__).parents[1] / "sample_schemas"
PIECES = (
    *(
        "<",
        ">",
        "/>",
        "</",
        "&",
        '"',
        "'",
        "=",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?",
        "?>",
        "<!DOCTYPE x [",
    ),
    *(
        "<module",
        " name='a'",
        "<module name='m'>",
        "</module>",
        "<union>",
        "</union>",
        "<param name='p' len='3'/>",
    ),
    *(
        "<scaffold modules='a b'/>",
        " xml:space='preserve'",
        " src='../x'",
        " cache='false'",
        "<user>",
        "</user>",
    ),
    *("<schema name='s'>", "</schema>", "<prompt>", "</prompt>", "<arg name='p'>", "<tokyo/>", "<a:b/>"),
    *(
        "&amp;",
        "&lt;",
        "&#0;",
        "&#x110000;",
        "&nbsp;",
        "&x;",
        "\0",
        "\x1b",
        "\ud800",
        "\ufffe",
        "\ufeff",
        "\r",
    ),
    *(
        "\n",
        "\r\n",
        "\t",
        "  ",
        "\u2028",
        "\u202e",
        "e\u0301",
        "🗼",
        "東京",
        "\u00a0",
        "x" * 300,
        "<a>" * 300,
    ),
)
SLOW = 1.0
"""Seconds that one document may take, in all readers together."""
MENDED = 4_000
"""Characters of a document whose first fault is mended, which takes three more looks at it."""
LARGE = 200
"""MB by which the memory of the process may grow."""


@dataclass
class Tally:
    """What a run has seen."""

    documents: int = 0
    slowest: float = 0.0
    sound: int = 0


class FuzzError(Exception):
    """A document that breaks a promise."""


def mutate(rng: random.Random, source: str, others: Sequence[str]) -> str:
    """A few small changes at random places, or a stretch of another document put in."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        start = rng.randint(0, len(source))
        end = min(start + rng.choice((1, 3, 20, 200)), len(source))
        piece = source[start:end]
        match rng.randrange(7):
            case 0 | 1:
                source = source[:start] + rng.choice(PIECES) + source[start:]
            case 2:
                source = source[:start] + source[end:]
            case 3:
                source = source[:end] + piece * rng.choice((1, 2, 50)) + source[end:]
            case 4:
                target = rng.randint(0, len(source))
                source = source[:target] + piece + source[target:]
            case 5:
                other = rng.choice(others)
                cut = rng.randint(0, len(other))
                source = source[:start] + other[cut : cut + rng.choice((5, 50, 500))] + source[end:]
            case 6:
                source = (
                    source[:start]
                    + chr(rng.choice((rng.randrange(128), rng.randrange(0x11000))))
                    + source[end:]
                )
    return source[:200_000]


def check_places(source: str, diagnostics: Sequence[Diagnostic]) -> None:
    """Every diagnostic lies in the text, and can be shown."""
    for found in diagnostics:
        if not 0 <= found.span.start <= found.span.end <= len(source) or found.line < 1 or found.column < 1:
            raise FuzzError(f"{found} lies outside the text")
        require_edits(source, found)
    if diagnostics:
        diagnostics[-1].render(source, "fuzz.pml")


def require_edits(source: str, found: Diagnostic) -> None:
    """The edits of a fix lie in the text, do not overlap, and have a hint that says what they write."""
    place = 0
    for edit in sorted(found.fix, key=lambda edit: (edit.span.start, edit.span.end)):
        if not place <= edit.span.start <= edit.span.end <= len(source):
            raise FuzzError(f"{found} has edits that overlap, or lie outside the text")
        place = edit.span.end
    if found.fix and not found.hint:
        raise FuzzError(f"{found} has a fix and no hint")


def _mend(source: str, diagnose: Callable[[str], Sequence[Diagnostic]]) -> None:
    found = diagnose(source)
    fault = next((one for one in found if one.fix), None)
    if fault is None or len(source) > MENDED:
        return
    result = mended(source, fault, diagnose)
    if result is not None and _errors(diagnose(result)) > _errors(found):
        raise FuzzError(f"the fix of {fault} brings errors")


def _errors(found: Sequence[Diagnostic]) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in found)


def check(source: str, schema: Schema) -> bool:
    """Sends one document through everything; the answer is whether it has no error."""
    as_schema, as_prompt = parse_schema(source), parse_prompt(source)
    for parsed in (as_schema, as_prompt):
        check_places(parsed.source, parsed.diagnostics)
    if as_prompt.tree is not None:
        check_places(source, bind(as_schema.tree or schema, as_prompt.tree).diagnostics)
        _edit(source, schema)
    _mend(source, lambda text: parse_schema(text).diagnostics)
    _mend(source, lambda text: parse_prompt(text).diagnostics)
    _format(source)
    return as_schema.ok or as_prompt.ok


def _edit(source: str, schema: Schema) -> None:
    path = schema.modules()[-1].path
    try:
        edited = set_pick(source, schema, path, True)
    except PromptEditError:
        return
    if path not in read_picks(edited, schema).paths:
        raise FuzzError("a pick that was set is not there")


def _format(source: str) -> None:
    try:
        formatted = format_source(source)
    except PromptError:
        return
    except PromptCacheError:
        if document_kind(source) is not None:
            raise
        return
    parse: Callable[[str], object] = (
        (lambda text: parse_prompt(text).tree)
        if document_kind(source) == "prompt"
        else (lambda text: parse_schema(text).tree)
    )
    if parse(formatted) != parse(source):
        raise FuzzError("the formatter changed the meaning")
    if format_source(formatted) != formatted:
        raise FuzzError("the formatter is not idempotent")


def run(
    seed: int, seconds: float, limit: int, seeds: Sequence[str], report: Callable[[Tally], None]
) -> Tally:
    """Fuzzes until the time is over or `limit` documents are done.

    Raises:
        FuzzError: A document broke a promise; its argument holds the document.
    """
    schema = parse_schema((SAMPLES / "travel.pml").read_text(encoding="utf-8")).tree
    if schema is None:
        raise FuzzError("the travel sample cannot be read")
    rng, tally, pool = random.Random(seed), Tally(), list(seeds)
    end = time.monotonic() + seconds
    base = _peak()
    while time.monotonic() < end and tally.documents < limit:
        source = mutate(rng, rng.choice(pool), seeds)
        began = time.thread_time()
        try:
            tally.sound += check(source, schema)
        except Exception as error:
            raise FuzzError(source) from error
        tally.slowest = max(tally.slowest, time.thread_time() - began)
        tally.documents += 1
        if tally.slowest > SLOW or _peak() - base > LARGE:
            raise FuzzError(source)
        if rng.random() < 0.3:  # mutations of mutations go deeper
            pool.append(source)
            pool = pool if len(pool) < 200 else pool[-100:] + list(seeds)
        if tally.documents % 1000 == 0:
            report(tally)
    return tally


def _peak() -> float:
    """The largest memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--documents", type=int, default=sys.maxsize, help="stop after so many documents")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default: 0)")
    parser.add_argument(
        "--keep", type=Path, default=Path("fuzz-failure.pml"), help="where a failure is written"
    )
    options = parser.parse_args()
    seeds = [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("*.pml"))]
    try:
        tally = run(options.seed, options.seconds, options.documents, seeds, _say)
    except FuzzError as failure:
        options.keep.write_bytes(str(failure).encode("utf-8", "surrogatepass"))
        traceback.print_exception(failure.__cause__ or failure)
        print(f"\nThe document is in {options.keep} (seed {options.seed}).", file=sys.stderr)
        return 1
    _say(tally)
    return 0


def _say(tally: Tally) -> None:
    print(
        f"{tally.documents} documents, {tally.sound} of them without errors, "
        f"slowest {tally.slowest * 1000:.0f} ms, memory {_peak():.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
