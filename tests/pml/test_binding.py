"""The order in which a bound prompt is read, argument by argument and turn by turn."""

from __future__ import annotations

import pytest

from engine.pml import (
    ArgumentText,
    Bound,
    NewText,
    RoleClose,
    RoleOpen,
    SchemaText,
    bind,
    parse_prompt,
)
from engine.pml.tree.parts import is_seam
from tests.pml.documents import prompt_tree
from tests.pml.documents import valid_schema as tree

LETTERS = """<schema name="letters">
  start
  <module name="a">A<param name="p" len="3" default="dp"/>A</module>
  middle
  <union>
    <module name="b">B</module>
    <module name="c">
      C<module name="d">D</module>c<module name="e">E<param name="q" len="2"/></module>c
    </module>
  </union>
  <module name="f">F</module>
  end
</schema>
"""

TURNS = """<schema name="turns">
  <system>S <module name="a">A</module></system>
  <user>U <module name="b">B</module> u <module name="c">C</module></user>
  {tail}
</schema>
"""


def bound(schema: str, prompt: str) -> Bound:
    parsed = parse_prompt(prompt)
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    return bind(tree(schema), parsed.tree)


def shown(result: Bound) -> str:
    """The parts but seams: text of the schema bare, arguments in {}, new text in [], turns in <>."""
    words: list[str] = []
    for part in result.parts:
        if is_seam(part):
            continue
        if isinstance(part, SchemaText):
            words.append(part.node.text.strip())
        elif isinstance(part, ArgumentText):
            words.append("{" + part.text + ("" if part.given else "?") + "}")
        elif isinstance(part, NewText):
            words.append("[" + part.text.strip() + "]")
        elif isinstance(part, RoleOpen):
            words.append("<" + part.role + ("+" if part.new else ""))
        elif isinstance(part, RoleClose):
            words.append(">" + ("+" if part.new else ""))
    return " ".join(words)


def order(schema: str, prompt: str) -> str:
    result = bound(schema, prompt)
    assert result.ok, result.diagnostics
    return shown(result)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<prompt/>", "start middle end"),
        ("<prompt>tail</prompt>", "start middle end [tail]"),
        ("<prompt><a/></prompt>", "start A {dp?} A middle end"),
        ('<prompt><a p="x"/></prompt>', "start A {x} A middle end"),
        ('<prompt><a p=""/></prompt>', "start A {} A middle end"),
        ('<prompt><a><arg name="p">\n  x\n</arg></a></prompt>', "start A {x} A middle end"),
        ("<prompt><a/><b/><f/></prompt>", "start A {dp?} A middle B F end"),
        ("<prompt><f/><a/></prompt>", "start F middle A {dp?} A end"),
        ("<prompt><f/><b/><a/></prompt>", "start F middle B A {dp?} A end"),
        ("<prompt><f/><b/></prompt>", "start middle F B end"),
        ("<prompt><c/></prompt>", "start middle C c c end"),
        ("<prompt><c><e/><d/></c></prompt>", "start middle C E {?} c D c end"),
        ("<prompt><d/></prompt>", "start middle C D c c end"),
        ("<prompt><e q='1'/><a/><d/></prompt>", "start C E {1} c D c middle A {dp?} A end"),
        ("<prompt><d/><c/></prompt>", "start middle C D c c end"),
        ("<prompt>x <a/> y <f/> z</prompt>", "start [x] A {dp?} A [y] middle F end [z]"),
        ("<prompt>x <f/> y <a/> z</prompt>", "start [x] F [y] middle A {dp?} A end [z]"),
        ("<prompt><c>x <e/> y <d/> z</c></prompt>", "start middle C [x] E {?} [y] c D [z] c end"),
        ("<prompt><c>x</c></prompt>", "start middle C c c [x] end"),
        ("<prompt>w <d/> x <f/> y</prompt>", "start middle C [w] D [x] c c F end [y]"),
        ("<prompt><c>x</c> y <f/></prompt>", "start middle C c c [x] [y] F end"),
        ("<prompt><a/> ask <user>x</user></prompt>", "start A {dp?} A middle end [ask] <user+ [x] >+"),
        (
            "<prompt><user>x</user> more <assistant>y</assistant> z</prompt>",
            "start middle end <user+ [x] [more] >+ <assistant+ [y] >+ <user+ [z] >+",
        ),
    ],
)
def test_order_without_roles_in_the_schema(prompt: str, expected: str) -> None:
    assert order(LETTERS, prompt) == expected


@pytest.mark.parametrize(
    ("tail", "prompt", "expected"),
    [
        ("", "<prompt/>", "<system S > <user U u >"),
        ("", "<prompt>x</prompt>", "<system S > <user U u [x] >"),
        ("", "<prompt><c/><b/><a/>x</prompt>", "<system S A > <user U C u B [x] >"),
        ("", "<prompt><b/>x<user>y</user></prompt>", "<system S > <user U B u [x] > <user+ [y] >+"),
        (
            "<assistant>R</assistant>",
            "<prompt><b/>x</prompt>",
            "<system S > <user U B u > <assistant R > <user+ [x] >+",
        ),
        (
            "<assistant>R</assistant>",
            "<prompt><user>x</user></prompt>",
            "<system S > <user U u > <assistant R > <user+ [x] >+",
        ),
        ("after", "<prompt>x</prompt>", "<system S > <user U u > after <user+ [x] >+"),
    ],
)
def test_order_with_roles_in_the_schema(tail: str, prompt: str, expected: str) -> None:
    assert order(TURNS.replace("{tail}", tail), prompt) == expected


def test_a_turn_that_the_prompt_implies_has_no_space_at_its_ends() -> None:
    result = bound(
        TURNS.replace("{tail}", "<assistant>R</assistant>"), "<prompt><b/> x <user>y</user></prompt>"
    )
    assert [part.text for part in result.parts if isinstance(part, NewText)] == ["x", "y"]


def test_parts_hold_the_nodes_of_the_schema() -> None:
    schema = tree(LETTERS)
    prompt = prompt_tree('<prompt><a p="x"/></prompt>')
    result = bind(schema, prompt)
    module = schema.module("a")
    assert module is not None
    of_a = [
        part for part in result.parts if isinstance(part, SchemaText | ArgumentText) and part.module == "a"
    ]
    assert [part.param if isinstance(part, ArgumentText) else part.node for part in of_a] == list(
        module.children
    )
    assert all(
        any(node is child for child in module.children)
        for part in of_a
        for node in [part.param if isinstance(part, ArgumentText) else part.node]
    )
    assert {part.module for part in result.parts if isinstance(part, SchemaText)} == {"", "a"}
    assert result.schema is schema


def test_imports_are_paths_in_the_order_of_the_prompt() -> None:
    assert bound(LETTERS, "<prompt><f/><d/><a/></prompt>").imports == ("f", "c", "c/d", "a")


def test_an_argument_keeps_its_span() -> None:
    source = '<prompt><a p="x"/></prompt>'
    parsed = prompt_tree(source)
    part = next(part for part in bind(tree(LETTERS), parsed).parts if isinstance(part, ArgumentText))
    assert part.span is not None
    assert source[part.span.start : part.span.end] == 'p="x"'


def test_binding_a_faulty_prompt_still_gives_parts() -> None:
    result = bound(LETTERS, '<prompt>x <zzz/> y <b/> <c/> <a p="1" zz="2"/> z</prompt>')
    assert not result.ok
    assert [found.code for found in result.diagnostics] == ["E402", "E406", "E407"]
    assert shown(result) == "start [x] [y] B middle A {1} A end [z]"


def test_a_name_at_the_top_level_wins_over_a_nested_one() -> None:
    inner = '<module name="m">M<module name="x">1</module></module>'
    source = f'<schema name="s">{inner}<module name="x">2</module></schema>'
    assert bound(source, "<prompt><x/></prompt>").imports == ("x",)
    assert order(source, "<prompt><m><x/></m></prompt>") == "M 1"


def test_a_module_twice_is_merged_for_the_rest() -> None:
    result = bound(LETTERS, "<prompt><c><d/></c><c><e q='1'/></c></prompt>")
    assert [found.code for found in result.diagnostics] == ["E405"]
    assert shown(result) == "start middle C D c E {1} c end"


def test_the_diagnostics_of_binding_are_placed_in_the_prompt() -> None:
    found = bound(LETTERS, "<prompt>\n  <b/>\n  <c/>\n</prompt>").diagnostics[0]
    assert (found.code, found.line, found.column, found.end_column) == ("E406", 3, 4, 5)


def test_the_same_schema_binds_many_prompts() -> None:
    schema = tree(LETTERS)
    prompts = [parse_prompt(f"<prompt><{name}/></prompt>").tree for name in "abcf"]
    first = [bind(schema, prompt).parts for prompt in prompts if prompt is not None]
    second = [bind(schema, prompt).parts for prompt in prompts if prompt is not None]
    assert first == second
    assert len(first) == 4
