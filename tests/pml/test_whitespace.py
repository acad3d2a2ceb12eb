"""The white-space rules, run by run."""

from __future__ import annotations

import pytest

from engine.pml import Import, Param, Role, Schema, Text, parse_prompt, parse_schema


def parts(inner: str, attributes: str = "") -> list[str]:
    """The children of the module `m`: text, or the name of a parameter in braces."""
    parsed = parse_schema(f'<schema name="a"{attributes}><module name="m">{inner}</module></schema>')
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    shown: list[str] = []
    for child in parsed.tree.modules()[0].children:
        if isinstance(child, Text):
            shown.append(child.text)
        elif isinstance(child, Param):
            shown.append(f"{{{child.name}}}")
        else:
            shown.append("*")
    return shown


P = '<param name="p" len="3"/>'
Q = '<param name="q" len="3"/>'
N = '<module name="n">x</module>'


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("text", ["text"]),
        (" text ", [" text "]),
        ("\n\t text\n\n", [" text "]),
        ("\n    one\n      two\n\n    three\n  ", [" one\n  two\n\nthree "]),
        ("\n\tone\n\t\ttwo\n", [" one\n\ttwo "]),
        ("\n\tone\n    two\n", [" one\n    two "]),
        ("\n    one\n   \n    two\n", [" one\n\ntwo "]),
        ("class A:\n    def f(self):\n        pass", ["class A:\n    def f(self):\n        pass"]),
        ("\n  a\u00a0\n", [" a\u00a0 "]),
        (f"{P}{Q}", ["{p}", "{q}"]),
        (f"{P} \n {Q}", ["{p}", " ", "{q}"]),
        (f"\n  {P}\n", ["{p}"]),
        (f"\n  a {P}\n  b\n    c {Q}, d\n  e", [" a ", "{p}", " b\n  c ", "{q}", ", d\ne"]),
        (f"\n    def f({P}):\n        return 1\n", [" def f(", "{p}", "):\n    return 1 "]),
        (f"\n  a\n  {N}\n  b\n", [" a ", "*", " b "]),
        (f"{N}\n  {P}", ["*", "{p}"]),
        (f"{P} {N} {Q}", ["{p}", "*", "{q}"]),
        ("a<!-- c -->b", ["ab"]),
        ("a <!-- c --> b", ["a b"]),
        ("a<!-- c --> b", ["a b"]),
        ("\n  a\n  <!-- c -->\n  b\n", [" a\nb "]),
        ("\n  a\n  <!-- c --> <!-- d -->\n  b\n", [" a\nb "]),
        ("\n  <!-- c -->\n  a\n", [" a "]),
        (" <!-- c --> ", []),
        (f"{P}<!-- c --> <!-- d -->{Q}", ["{p}", " ", "{q}"]),
        ("<![CDATA[ a ]]>", [" a "]),
        ("a<![CDATA[<b>]]>c", ["a<b>c"]),
        ("a&#32;", ["a "]),
    ],
)
def test_runs(inner: str, expected: list[str]) -> None:
    assert parts(inner) == expected


@pytest.mark.parametrize("inner", ["  a\n   b  ", f"\n {P} {N} \n", " a <!-- c --> b "])
def test_preserve_keeps_everything(inner: str) -> None:
    kept = inner.replace(P, "\0{p}\0").replace(N, "\0*\0").replace("<!-- c -->", "")
    assert parts(inner, ' xml:space="preserve"') == kept.split("\0")


def test_preserve_is_inherited_and_can_be_ended() -> None:
    source = (
        '<schema name="a"><module name="m" xml:space="preserve"> x <module name="n"> y </module>'
        '<module name="o" xml:space="default">\n z\n</module></module></schema>'
    )
    tree = parse_schema(source).tree
    assert tree is not None
    found = {module.name: module.children[0] for module in tree.modules()}
    assert [found[name].text for name in "mno"] == [" x ", " y ", " z "]  # type: ignore[union-attr]


def test_schema_and_role_trim_their_ends() -> None:
    source = '<schema name="a"> \n one <user> \n two {m} three \n </user> four \n </schema>'
    source = source.replace("{m}", '<module name="m"> x </module>')
    tree = parse_schema(source).tree
    assert isinstance(tree, Schema)
    first, role, last = tree.children
    assert isinstance(first, Text)
    assert isinstance(role, Role)
    assert isinstance(last, Text)
    assert (first.text, last.text) == ("one ", " four")
    assert [child.text for child in role.children if isinstance(child, Text)] == ["two ", " three"]


def test_a_prompt_trims_its_ends_but_an_import_does_not() -> None:
    tree = parse_prompt("<prompt>\n a <m>\n b\n </m> c \n<user> d </user></prompt>").tree
    assert tree is not None
    first, node, after, role = tree.children
    assert isinstance(node, Import)
    assert isinstance(role, Role)
    shown = [first, *node.children, after, *role.children]
    assert [child.text for child in shown if isinstance(child, Text)] == ["a ", " b ", " c ", "d"]


def test_the_text_of_an_argument_is_trimmed_and_dedented() -> None:
    source = (
        '<prompt><m><arg name="a">\n   one\n     two\n </arg><arg name="b" xml:space="preserve"> x\n </arg>'
        '<arg name="c"/><arg name="d"> <!-- none --> </arg></m></prompt>'
    )
    tree = parse_prompt(source).tree
    assert tree is not None
    node = tree.children[0]
    assert isinstance(node, Import)
    assert [(a.name, a.value) for a in node.arguments] == [
        ("a", "one\n  two"),
        ("b", " x\n "),
        ("c", ""),
        ("d", ""),
    ]


def test_spans_leave_out_the_white_space_at_the_ends() -> None:
    source = '<schema name="a"> <!-- c -->\n  one <!-- d --> two &amp; <!-- e -->\n <user>x</user></schema>'
    tree = parse_schema(source).tree
    assert tree is not None
    span = tree.children[0].span
    assert source[span.start : span.end] == "one <!-- d --> two &amp;"
