"""A scaffold is written by the places of the tree, whatever stands round it."""

from __future__ import annotations

import pytest

from engine.base.errors import PromptCacheError
from engine.pml import add_scaffold, parse_schema

SCHEMA = """<schema name="s">
  <user>Read. <module name="a">alpha</module> <module name="b">beta</module></user>
</schema>
"""


@pytest.mark.parametrize(
    "source",
    [
        SCHEMA,
        SCHEMA.replace("\n", ""),
        SCHEMA.replace("\n", "\r\n"),
        SCHEMA.replace("\n</schema>", "</schema >"),
        SCHEMA.replace("\n</schema>", "\n  \t</schema\n>"),
        SCHEMA + "<!-- written by hand; </schema> is above -->\n",
        SCHEMA.replace("</schema>", "<![CDATA[ </schema> ]]></schema>") + "<!-- </schema> -->",
        SCHEMA.replace("</schema>", "<!-- </schema> --></schema>"),
        "<!-- <schema x>\n        <a> -->" + SCHEMA,
        SCHEMA.replace('name="s"', 'name="s" xml:space="preserve"'),
        SCHEMA.replace('name="s"', "name = 's'\n  xml:lang='en'"),
    ],
)
def test_a_scaffold_is_added_at_the_end_of_the_schema(source: str) -> None:
    before = parse_schema(source)
    found = add_scaffold(source, ["a", "b"])
    after = parse_schema(found)
    assert after.ok, after.diagnostics
    assert before.tree is not None
    assert after.tree is not None
    assert [scaffold.modules for scaffold in after.tree.scaffolds] == [("a", "b")]
    assert after.tree.children == before.tree.children
    written = '<scaffold modules="a b"/>'
    assert found.count(written) == 1
    head, tail = found.split(written)
    assert source.startswith(head.rstrip(" \t\r\n"))
    assert source.endswith(tail.lstrip(" \t\r\n"))
    assert ("\r\n" in found) == ("\r\n" in source)
    assert found.replace("\r\n", "").count("\r") == 0


@pytest.mark.parametrize(
    ("source", "modules", "words"),
    [
        (SCHEMA, ["a", "z"], "no module 'z'"),
        (SCHEMA[:-12], ["a", "b"], "has errors"),
        ('<schema name="s"/>', ["a"], "has errors"),
        ("", ["a"], "has errors"),
        ("<prompt/>", ["a"], "has errors"),
        (SCHEMA + "<!-- </schema>", ["a", "b"], "has errors"),
        (SCHEMA.replace("</schema>", '<scaffold modules="b a"/></schema>'), ["a", "b"], "already"),
    ],
)
def test_a_scaffold_that_cannot_be_added_is_refused(source: str, modules: list[str], words: str) -> None:
    with pytest.raises(PromptCacheError, match=words):
        add_scaffold(source, modules)
