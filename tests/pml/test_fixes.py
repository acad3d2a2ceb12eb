"""Quick fixes: each mends its fault, brings no other, and touches nothing but what it says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from engine.pml import Diagnostic, bind, document_kind, mended, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import Edit, Span, make
from tests.drawing import EVERY
from tests.fuzz_pml import SAMPLES, mutate, require_edits
from tests.pml.documents import schema_tree

SCHEMA = """<schema name="s">
  <system>You plan.</system>
  <user>
    <module name="trip">I go for <param name="duration" len="5"/>.
      <union scaffold="rome"><module name="tokyo">Neon.</module><module name="rome">Ruins.</module></union>
    </module>
    <module name="budget" cache="false"><![CDATA[A < B]]> &amp; <!-- note --></module>
  </user>
  <scaffold modules="trip/rome budget"/>
</schema>
"""
PROMPT = """<prompt schema="s">
  <trip duration="3 days"><tokyo/></trip>
  <budget></budget>
  <user>Where to surf?</user>
</prompt>
"""
TREE = parse_schema(SCHEMA).tree


@lru_cache(maxsize=16)  # a fix is asked about its document and what it makes of it, over and over
def of_schema(source: str) -> Sequence[Diagnostic]:
    return parse_schema(source).diagnostics


@lru_cache(maxsize=16)
def of_prompt(source: str) -> Sequence[Diagnostic]:
    parsed = parse_prompt(source)
    assert TREE is not None
    return (*parsed.diagnostics, *(bind(TREE, parsed.tree).diagnostics if parsed.tree else ()))


def errors(found: Sequence[Diagnostic]) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in found)


def check(source: str, fault: Diagnostic, diagnose: Callable[[str], Sequence[Diagnostic]]) -> bool:
    """Works out the promise of one fix again; says whether the fix is given or withheld."""
    require_edits(source, fault)
    result = mended(source, fault, diagnose)
    if result is None:
        return False
    before, after = diagnose(source), diagnose(result)
    assert errors(after) <= errors(before), (fault, after)
    outside, rest = source, result
    for edit in sorted(fault.fix, key=lambda edit: edit.span.start, reverse=True):
        tail = outside[edit.span.end :]
        assert rest.endswith(edit.text + tail)
        outside, rest = outside[: edit.span.start], rest[: len(rest) - len(tail) - len(edit.text)]
    assert outside == rest
    start = fault.span.start
    start += sum(
        len(e.text) - (e.span.end - e.span.start)
        for e in fault.fix
        if e.span.end <= fault.span.start and e.span != fault.span
    )
    here = Counter((found.code, found.span.start) for found in before)
    there = Counter((found.code, found.span.start) for found in after)
    codes, left = Counter(found.code for found in before), Counter(found.code for found in after)
    gone = there[fault.code, start] < here[fault.code, fault.span.start]
    assert gone or left[fault.code] < codes[fault.code], (fault, after)
    return True


@pytest.mark.parametrize("seed", range(6 if EVERY else 1))
def test_no_fix_does_harm_in_mutated_documents(seed: int) -> None:
    rng = random.Random(seed)
    samples = [text for path in sorted(SAMPLES.glob("*.pml")) if len(text := path.read_text("utf-8")) < 9000]
    pool = [SCHEMA, PROMPT, SCHEMA, PROMPT, *samples]
    given: Counter[bool] = Counter()
    for _ in range(350 if EVERY else 90):
        source = mutate(rng, rng.choice(pool), (SCHEMA, PROMPT))
        if rng.random() < 0.2:
            pool.append(source)
        if len(source) > 9000:
            continue
        diagnose = of_schema if document_kind(source) == "schema" else of_prompt
        fixable = [fault for fault in diagnose(source) if fault.fix]
        for fault in rng.sample(fixable, min(3, len(fixable))):
            given[check(source, fault, diagnose)] += 1
    assert given.total() > (200 if EVERY else 50)
    assert given[False] * 50 <= given.total(), "fixes that are offered and then withheld"


def of_sample(path: Path) -> Callable[[str], Sequence[Diagnostic]]:
    """Finds what is wrong with a sample, a prompt against its own schema."""
    if ".prompt." not in path.name:
        return of_schema
    tree = schema_tree((SAMPLES / f"{path.name.partition('.')[0]}.pml").read_text("utf-8"))

    @lru_cache(maxsize=16)
    def diagnose(source: str) -> Sequence[Diagnostic]:
        parsed = parse_prompt(source)
        return (*parsed.diagnostics, *(bind(tree, parsed.tree).diagnostics if parsed.tree else ()))

    return diagnose


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pml")), ids=lambda path: path.name)
def test_no_fix_does_harm_in_samples_with_one_tag_broken(path: Path) -> None:
    source = path.read_text("utf-8")
    diagnose = of_sample(path)
    rng = random.Random(path.name)
    for _ in range(12):
        place = rng.choice([index for index, char in enumerate(source) if char in '<>/"='])
        broken = source[:place] + source[place + 1 :]
        for fault in [fault for fault in diagnose(broken) if fault.fix][:3]:
            assert check(broken, fault, diagnose)


def test_a_fix_that_would_do_harm_is_withheld() -> None:
    source = "<schema name='s'><module name='a'>x</module></schema>"
    harmful = make("W603", "", Span(0, 1), source, fix=(Edit(Span(0, 8), ""),))
    assert mended(source, harmful, of_schema) is None
    assert mended(source, make("W603", "", Span(0, 1), source), of_schema) is None


def test_a_prompt_moves_imports_out_of_a_turn_in_their_order() -> None:
    source = "<prompt><user>Read <terse/> and <shipping/> and <returns/>.</user></prompt>"
    faults = [one for one in parse_prompt(source).diagnostics if one.code == "E206"]
    for fault in faults:
        assert [fix.title for fix in fault.fixes] == ["Move all 3 imports before the turns"]
        moved = mended(source, fault, lambda text: parse_prompt(text).diagnostics, fault.fixes[0])
        assert str(moved).startswith("<prompt><terse/> <shipping/> <returns/> <user>")
    assert len(faults) == 3


def test_only_tags_of_html_in_a_turn_may_be_text() -> None:
    def titles(tag: str) -> list[str]:
        (fault,) = parse_prompt(f"<prompt><user>Read {tag}.</user></prompt>").diagnostics
        return [fix.title for fix in fault.fixes]

    assert titles("<returns/>") == ["Move it before <user>"]
    assert titles("<br/>") == ["Write &lt;br: the tag is then read as text", "Move it before <user>"]


def test_the_text_around_a_parameter_goes_into_its_module() -> None:
    source = (
        "<schema name='s'><system>Be <!-- a\n\nb -->kind.\n\n  Say <!-- c --> <param name='who' len='3'/> "
        "and <param name='me' len='3'/>.\n\nEnd.</system><module name='m'>x</module></schema>"
    )
    fault, _ = (one for one in parse_schema(source).diagnostics if one.code == "E206")
    assert [fix.title for fix in fault.fixes] == [
        'Put its text into <module name="who">…</module>: a prompt has to import it'
    ]
    changed = mended(source, fault, lambda text: parse_schema(text).diagnostics, fault.fixes[0])
    assert changed is not None
    inside = changed.split('<module name="who">')[1].split("</module>")[0]
    assert inside == "Say <!-- c --> <param name='who' len='3'/> and <param name='me' len='3'/>."
    assert parse_schema(changed).ok


def test_text_between_turns_of_a_schema_moves_into_one_of_them() -> None:
    source = (
        '<schema name="s">\n<system>Plan.</system>\n<!-- a -->Be &lt;honest&gt;.\n<user>Go.</user></schema>'
    )
    (fault,) = parse_schema(source).diagnostics
    moved = [mended(source, fault, of_schema, fix) for fix in fault.fixes]
    piece = "Be &lt;honest&gt;."
    assert [fix.title for fix in fault.fixes] == [
        "Move it to the end of <system>",
        "Move it to the beginning of <user>",
    ]
    without = source.replace(piece, "")
    assert moved == [without.replace("Plan.", f"Plan. {piece}"), without.replace("Go.", f"{piece} Go.")]
    assert parse_schema(source.replace(piece, "<module name='m'>x</module>")).diagnostics == ()
