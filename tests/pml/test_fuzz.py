"""Mutated documents: nothing raises, spans stay inside the text, and the verdict agrees with lxml's."""

from __future__ import annotations

import lxml.etree as ET
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.pml import (
    Diagnostic,
    PromptEditError,
    bind,
    document_kind,
    parse_prompt,
    parse_schema,
    read_picks,
    set_argument,
    set_pick,
)
from tests import fuzz_pml
from tests.drawing import EVERY, draws

SCHEMA = """<?xml version="1.0" encoding="UTF-8"?>
<!-- A schema with everything in it. -->
<schema name="all">
  <system>You are <![CDATA[<kind>]]> &amp; brief.</system>
  <user xml:space="default">
    <module name="plan" cache="false">
      For <param name="duration" len="5" default="a &quot;day&quot;"/> 🗼
      <union scaffold="tokyo">
        <module name="tokyo">Tokyo &#x1F5FC;</module>
        <module name='rome'>Rome <parameter name='p' length=' 3 ' scaffold="x"></parameter></module>
      </union>
    </module>
    <module name="file" src="x.txt"/>
  </user>
  <assistant>Yes.</assistant>
  <scaffold modules="plan plan/tokyo"/>
</schema>
"""

PROMPT = """<prompt schema="all">
  Before <!-- note -->
  <plan duration="3 days"> in <tokyo/> out </plan>
  <file><arg name="x">long &lt; text</arg></file>
  <user>Ask &amp; answer 🗼</user>
  <decide name="q" type="choice">Which? <option value="a">&lt;</option><option value="b"/></decide>
  <answer-format type="choice"><option value="a"/><option value="b"/></answer-format>
</prompt>
"""

WORDS = """
< > / & " ' = <!-- --> <![CDATA[ ]]> <?x ?> &#0; &amp; &nbsp; <module </module> <param> <union/> </schema>
<prompt> </prompt> <user> </user> xml:space='preserve' <a:b/> <tokyo/> <plan> </plan> name='x' len=5
"""
TAGS = ("<module name='tokyo'>", "<schema name='b'>", "<arg name='duration'>", "<!DOCTYPE x [")
ODD = (" ", "\n", "\r", "\0", "\ud800", "🗼", "\ufeff", "\u0301", "<\u00d7")
PIECES = st.sampled_from((*WORDS.split(), *TAGS, *ODD))


@st.composite
def mutated(draw: st.DrawFn, source: str) -> str:
    """A document with a few stretches removed, doubled, moved, or replaced by a piece of markup."""
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(source)))
        end = min(start + draw(st.integers(0, 40)), len(source))
        match draw(st.sampled_from(["insert", "remove", "double", "move"])):
            case "insert":
                source = source[:start] + draw(PIECES) + source[start:]
            case "remove":
                source = source[:start] + source[end:]
            case "double":
                source = source[:end] + source[start:]
            case "move":
                rest = source[:start] + source[end:]
                target = draw(st.integers(0, len(rest)))
                source = rest[:target] + source[start:end] + rest[target:]
    return source


SCHEMAS = mutated(SCHEMA)
PROMPTS = mutated(PROMPT)
ANY = st.one_of(SCHEMAS, PROMPTS, st.text(max_size=60), st.lists(PIECES, max_size=30).map("".join))


def check_places(source: str, diagnostics: tuple[Diagnostic, ...]) -> None:
    for found in diagnostics:
        assert 0 <= found.span.start <= found.span.end <= len(source), found
        assert found.line >= 1
        assert found.column >= 1
        assert (found.line, found.column) <= (found.end_line, found.end_column), found
        assert found.message
        assert "\n" not in found.message
        assert found.render(source, "f.pml")


@settings(max_examples=draws(400))
@given(source=ANY)
@example(source="<a b='")
@example(source='<a b="x<y')
@example(source="<a/><b")
@example(source="<!DOCTYPE")
def test_nothing_raises_and_places_are_inside(source: str) -> None:
    for parsed in (parse_schema(source), parse_prompt(source)):
        check_places(parsed.source, parsed.diagnostics)
        assert parsed.source == source
        assert parsed.ok or parsed.diagnostics
        assert document_kind(source) in ("schema", "prompt", None)


@settings(max_examples=draws(200))
@given(data=st.binary(max_size=60) | SCHEMAS.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_never_raise(data: bytes) -> None:
    parsed = parse_schema(data)
    check_places(parsed.source, parsed.diagnostics)
    parse_prompt(data)


@settings(max_examples=300 if EVERY else 20)
@given(schema=SCHEMAS, prompt=PROMPTS, data=st.data())
def test_binding_and_edits_of_broken_documents(schema: str, prompt: str, data: st.DataObject) -> None:
    tree, written = parse_schema(schema).tree, parse_prompt(prompt).tree
    if tree is None:
        return
    if written is not None:
        bound = bind(tree, written)
        check_places(prompt, bound.diagnostics)
        assert set(bound.imports) <= {module.path for module in tree.modules()}
    before = read_picks(prompt, tree)
    for module in tree.modules()[:3]:
        on = data.draw(st.booleans())
        try:
            after = set_pick(prompt, tree, module.path, on)
        except PromptEditError:
            continue
        else:
            assert (module.path in read_picks(after, tree).paths) == on
            assert after == prompt or (module.path in before.paths) != on
        for param in module.params():
            try:
                after = set_argument(prompt, tree, module.path, param.name, "new")
            except PromptEditError:
                continue
            else:
                assert read_picks(after, tree).arguments[module.path][param.name] == "new"


POLICY = {"E102", "E111", "E112", "E113", "E117", "E118", "E121"}
"""Faults of documents that XML itself allows."""


@settings(max_examples=draws(400))
@given(source=ANY)
def test_the_verdict_agrees_with_lxml(source: str) -> None:
    codes = {found.code for found in parse_schema(source).diagnostics if found.code.startswith("E1")}
    if codes & POLICY:
        return
    parser = ET.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        ET.fromstring(source.removeprefix("\ufeff").encode("utf-8"), parser)
        sound = True
    except (ET.XMLSyntaxError, UnicodeEncodeError):
        sound = False
    assert sound == (not codes), codes


def test_the_fuzzer_finds_nothing_in_many_documents() -> None:
    many = 1000 if EVERY else 60
    seeds = [SCHEMA, PROMPT]
    tally = fuzz_pml.run(seed=1, seconds=600, limit=many, seeds=seeds, report=lambda _: None)
    assert tally.documents == many
    assert tally.sound < many
    assert tally.sound or many < 1000  # the first valid one comes late


def test_the_fuzzer_notices_what_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_pml, "format_source", lambda source: source.replace("tokyo", "kyoto"))
    with pytest.raises(fuzz_pml.FuzzError) as found:
        fuzz_pml.run(seed=1, seconds=600, limit=1000, seeds=[SCHEMA], report=lambda _: None)
    assert "changed the meaning" in str(found.value.__cause__)
    assert "<" in str(found.value)
