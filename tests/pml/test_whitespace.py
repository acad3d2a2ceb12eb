"""The white-space rules, run by run."""

from __future__ import annotations

import pytest

from engine.pml import Import, Module, Param, Role, Schema, Text, Union, parse_schema
from engine.pml.whitespace.separators import own_seam
from tests.pml.documents import prompt_tree, schema_tree


def parts(inner: str, attributes: str = "") -> list[str]:
    """The children of the module `m`: texts, {parameters}, modules as * with their seam, seams escaped."""
    parsed = parse_schema(f'<schema name="a"{attributes}><module name="m">{inner}</module></schema>')
    assert parsed.ok, parsed.diagnostics
    assert parsed.tree is not None
    return [shown(child) for child in parsed.tree.modules()[0].children]


def shown(node: object) -> str:
    if isinstance(node, Text):
        seam = node.text.replace("\n", "\\n").replace(" ", "\\s")
        return "~" * node.implied + seam if node.seam else node.text
    if isinstance(node, Param):
        return f"{{{node.name}}}"
    if isinstance(node, Union):
        return "|".join(map(shown, node.members))
    assert isinstance(node, Module)
    seam = own_seam(node)
    return "*" + (shown(seam) if seam else "")


P = '<param name="p" len="3"/>'
Q = '<param name="q" len="3"/>'
N = '<module name="n">x</module>'
N2 = '<module name="n2">x</module>'
U = '<union> <module name="u">x</module> <module name="v">x</module>\n</union>'


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("text", ["text"]),
        (" text ", ["text"]),
        ("\n\t text\n\n", ["text"]),
        ("\n    one\n      two\n\n    three\n  ", ["one\n  two\n\nthree"]),
        ("\n\tone\n\t\ttwo\n", ["one\n\ttwo"]),
        ("\n\tone\n    two\n", ["one\n    two"]),
        ("\n    one\n   \n    two\n", ["one\n\ntwo"]),
        ("class A:\n    def f(self):\n        pass", ["class A:\n    def f(self):\n        pass"]),
        ("\n  a\u00a0\n", ["a\u00a0"]),
        (f"{P}{Q}", ["{p}", "{q}"]),
        (f"{P} \n {Q}", ["{p}", " \n ", "{q}"]),
        (f"\n  {P}\n", ["{p}"]),
        (f"\n  a {P}\n  b\n    c {Q}, d\n  e", ["a ", "{p}", "\nb\n  c ", "{q}", ", d\ne"]),
        (f"\n    def f({P}):\n        return 1\n", ["def f(", "{p}", "):\n    return 1"]),
        (f"\n    if a:\n        {P}\n", ["if a:\n    ", "{p}"]),
        (f"\n  a\n  {N}\n  b\n", ["a", "\\n", "*\\n", "b"]),
        (f"\n  a\n\n  {N}\n \n\n  b\n", ["a", "\\n\\n", "*\\n\\n", "b"]),
        (f"a {N}b", ["a", "\\s", "*", "b"]),
        (f"a{N}\t b", ["a", "*\\s", "b"]),
        (f"{N}\n  {P}", ["*\\n", "{p}"]),
        (f"{P} {N} {Q}", ["{p}", "\\s", "*\\s", "{q}"]),
        (f"\n {N}\n {N2}\n", ["*\\n", "*~\\n"]),
        (f"\n {U}\n b", ["*\\n|*\\n", "b"]),
        (f"a\n {U}", ["a", "\\n", "*~\\n|*~\\n"]),
        (f"{N}\n<!-- c -->\n{N2}", ["*\\n", "*~\\n"]),
        (f"{N} <!-- c --> {N2}", ["*\\s", "*~\\s"]),
        ("a<!-- c -->b", ["ab"]),
        ("a <!-- c --> b", ["a b"]),
        ("a<!-- c --> b", ["a b"]),
        ("\n  a\n  <!-- c -->\n  b\n", ["a\nb"]),
        ("\n  a\n  <!-- c --> <!-- d -->\n  b\n", ["a\nb"]),
        ("\n  <!-- c -->\n  a\n", ["a"]),
        (" <!-- c --> ", []),
        (f"{P}<!-- c --> <!-- d -->{Q}", ["{p}", " ", "{q}"]),
        ("<![CDATA[ a ]]>", ["a"]),
        ("a<![CDATA[<b>]]>c", ["a<b>c"]),
        ("a&#32;", ["a"]),
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
    tree = schema_tree(source)
    found = {module.name: module.children[0] for module in tree.modules()}
    assert [found[name].text for name in "mno"] == [" x ", " y ", "z"]  # type: ignore[union-attr]


def test_beside_a_turn_white_space_is_nothing() -> None:
    source = '<schema name="a"> \n one <user> \n two {m} three \n </user> four \n </schema>'
    source = source.replace("{m}", '<module name="m"> x </module>')
    tree = parse_schema(source).tree
    assert isinstance(tree, Schema)
    first, role, last = tree.children
    assert isinstance(role, Role)
    assert [shown(first), *map(shown, role.children), shown(last)] == [
        "one",
        "two",
        "\\s",
        "*\\s",
        "three",
        "four",
    ]


def test_a_scaffold_is_no_more_than_a_comment() -> None:
    source = '<schema name="a">{m}\n  <scaffold modules="m"/>\n{n}\n  <scaffold modules="n"/>\n</schema>'
    source = source.replace("{m}", '<module name="m">x</module>').replace("{n}", N)
    tree = schema_tree(source)
    assert [shown(child) for child in tree.children] == ["*\\n", "*~\\n"]


def test_in_a_prompt_white_space_between_imports_is_nothing() -> None:
    tree = prompt_tree("<prompt>\n a <m>\n b\n </m>\n<n/> c \n<user> d </user></prompt>")
    *above, role = tree.children
    assert isinstance(role, Role)
    found = [shown(child) if isinstance(child, Text) else child.name for child in above]  # type: ignore[union-attr]
    assert found == ["~\\n", "a", "\\s", "m", "n", "\\s", "c"]
    inner = above[3]
    assert isinstance(inner, Import)
    assert [shown(child) for child in inner.children] == ["~\\n", "b"]
    assert [shown(child) for child in role.children] == ["d"]


def test_the_text_of_an_argument_is_trimmed_and_dedented() -> None:
    source = (
        '<prompt><m><arg name="a">\n   one\n     two\n </arg><arg name="b" xml:space="preserve"> x\n </arg>'
        '<arg name="c"/><arg name="d"> <!-- none --> </arg></m></prompt>'
    )
    tree = prompt_tree(source)
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
    tree = schema_tree(source)
    span = tree.children[0].span
    assert source[span.start : span.end] == "one <!-- d --> two &amp;"
