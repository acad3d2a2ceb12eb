"""Mistakes that people make by hand in prompts: each has its code, and what its remedy says removes it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.pml import Diagnostic, bind, parse_prompt, parse_schema
from tests.pml.remedied import Mistake, by_hand, prompt, require_remedy

SCHEMA = """<schema name="travel">
  <system>You plan.</system>
  <user>
    <module name="trip">I go for <param name="duration" len="5"/>.
      <union>
        <module name="domestic">Home, in <param name="city" len="4" default="Lyon"/>.</module>
        <module name="overseas">Away.
          <union> <module name="tokyo">Neon.</module> <module name="rome">Ruins.</module> </union>
        </module>
      </union>
    </module>
    <module name="budget">Cheap. <module name="notes">Spend little.</module></module>
    <module name="food">Good. <module name="notes">Eat well.</module></module>
    <module name="tone">Be brief.</module>
  </user>
</schema>
"""
TREE = parse_schema(SCHEMA).tree

PROMPTS = [
    prompt("an end for an import", "E106", "</tone>", "<tone/>"),
    prompt("an import left open", "E105", "<tone>Where?", "<tone/>Where?"),
    prompt("an import left open before a turn", "E105", "<tone><user>Hi.</user>", "<tone/><user>Hi.</user>"),
    prompt("an import left open before others", "E105", "<tone><food/>", "<tone/><food/>"),
    prompt(
        "an import left open behind its own", "E105", "<food><notes/><tone/>", "<food><notes/></food><tone/>"
    ),
    prompt(
        "an import left open, in lines",
        "E105",
        "\n <tone>\n <food/>\n <budget/>\n <user>Hi.</user>\n",
        "\n <tone/>\n <food/>\n <budget/>\n <user>Hi.</user>\n",
    ),
    prompt(
        "an import left open that holds others, in lines",
        "E105",
        "\n <food>\n  <notes/>\n <tone/>\n <user>Hi.</user>\n",
        "\n <food>\n  <notes/>\n </food>\n <tone/>\n <user>Hi.</user>\n",
    ),
    prompt("an import not finished", "E104", "<tone\n", "<tone/>\n"),
    prompt("an import with half an end", "E104", "<tone/\n", "<tone/>\n"),
    prompt("a backslash", "E107", "<tone\\>", "<tone/>"),
    prompt("a space", "E109", "< tone/>", "<tone/>"),
    Mistake(
        "name for schema",
        "E203",
        '<prompt name="travel"><tone/></prompt>',
        '<prompt schema="travel"><tone/></prompt>',
    ),
    Mistake("no schema in it", "E202", '<prompt schema=""><tone/></prompt>', "<prompt><tone/></prompt>"),
    Mistake(
        "another schema",
        "E401",
        '<prompt schema="travels"><tone/></prompt>',
        '<prompt schema="travel"><tone/></prompt>',
    ),
    Mistake(
        "the file of the schema",
        "E401",
        '<prompt schema="travel.pml"><tone/></prompt>',
        '<prompt schema="travel"><tone/></prompt>',
    ),
    Mistake("a capital", "E201", "<Prompt><tone/></Prompt>", "<prompt><tone/></prompt>"),
    prompt("a path", "E107", "<budget/notes/>", "<budget><notes/></budget>"),
    prompt(
        "a path with an end", "E107", "<budget/notes>x</budget/notes>", "<budget><notes>x</notes></budget>"
    ),
    Mistake(
        "the question behind", "E115", "<prompt><tone/></prompt>\nWhere?", "<prompt><tone/>\nWhere?</prompt>"
    ),
    Mistake(
        "the question before", "E115", "Where?\n<prompt><tone/></prompt>", "<prompt>Where?\n<tone/></prompt>"
    ),
    prompt("an import in a role", "E206", "<user><tone/>Where?</user>", "<tone/> <user>Where?</user>"),
    prompt("HTML in a role", "E206", "<user>A <b>big</b> one</user>", "<user>A &lt;b>big&lt;/b> one</user>"),
    prompt("a role in an import", "E206", "<tone><user>Where?</user></tone>"),
    prompt("a role before an import", "E409", "<user>Where?</user><tone/>", "<tone/><user>Where?</user>"),
    prompt("module", "E206", '<module name="tone"/>', "<tone/>"),
    prompt(
        "module with content", "E206", '<module name="trip"><domestic/></module>', "<trip><domestic/></trip>"
    ),
    prompt("union", "E206", "<union><tone/></union>", "<tone/>"),
    prompt(
        "param",
        "E206",
        '<trip><param name="duration">3</param></trip>',
        '<trip><arg name="duration">3</arg></trip>',
    ),
    prompt("a slip", "E402", "<tonne/>", "<tone/>"),
    by_hand(
        prompt("a tag of a prompt", "E402", "<question>Where?</question>"),
        "write &lt;question for literal text",
        ("<question>Where?</question>", "&lt;question>Where?&lt;/question>"),
    ),
    prompt("a tag in a text", "E402", "A <b>big</b> one", "A &lt;b>big&lt;/b> one"),
    prompt(
        "tags in tags in a text",
        "E402",
        "See <docs><doc>x</doc></docs>",
        "See &lt;docs>&lt;doc>x&lt;/doc>&lt;/docs>",
    ),
    prompt("a short slip", "E402", "<tnoe/>", "<tone/>"),
    by_hand(prompt("another short name", "E402", "<ton/>"), "did you mean <tone/>?", ("ton", "tone")),
    prompt("a role in capitals", "E402", "<User>Where?</User>", "<user>Where?</user>"),
    prompt("a role with a slip", "E106", "<usr>Where?</user>", "<user>Where?</user>"),
    prompt(
        "an argument with a slip",
        "E402",
        '<trip><Arg name="duration">3</Arg></trip>',
        '<trip><arg name="duration">3</arg></trip>',
    ),
    prompt("ends crossed", "E106", "<food><notes>x</food></notes>", "<food><notes>x</notes></food>"),
    prompt("text in a tag", "E104", "<userWhere?</user>", "<user>Where?</user>"),
    prompt("text in an end tag", "E104", "<tone>x</toneWhere?", "<tone>x</tone>Where?"),
    prompt("a start tag twice", "E105", "<food><food><notes/></food>", "<food><notes/></food>"),
    prompt("an end tag without <", "E105", "<tone>Be kind./tone>", "<tone>Be kind.</tone>"),
    prompt("a start tag without <", "E106", "user>Where?</user>", "<user>Where?</user>"),
    prompt("a generic type", "E105", "<tone/>What is List<String> x?", "<tone/>What is List&lt;String> x?"),
    prompt("an argument's slip", "E407", '<trip durations="3"/>', '<trip duration="3"/>'),
    by_hand(
        prompt("an argument for nothing", "E407", '<tone style="x"/>'),
        "it has no parameter; remove the argument",
        (' style="x"', ""),
    ),
    prompt(
        "an argument twice",
        "E408",
        '<trip duration="3"><arg name="duration">3</arg></trip>',
        '<trip duration="3"></trip>',
    ),
    by_hand(
        prompt("two arguments for one", "E408", '<trip duration="3"><arg name="duration">4</arg></trip>'),
        "keep one",
        ('<arg name="duration">4</arg>', ""),
    ),
    prompt("an argument without quotes", "E107", "<trip duration=3 days/>", '<trip duration="3 days"/>'),
    prompt("an argument in curly quotes", "E107", "<trip duration=“3 days”/>", '<trip duration="3 days"/>'),
    prompt(
        "markup in an argument",
        "E206",
        '<trip><arg name="duration"><b>3</b></arg></trip>',
        '<trip><arg name="duration">&lt;b>3&lt;/b></arg></trip>',
    ),
    prompt("imported twice", "E405", "<tone/> <tone/><budget/>", "<tone/><budget/>"),
    by_hand(
        prompt("imported twice, apart", "E405", "<tone/><budget/><tone/>"),
        "remove one",
        ("<budget/><tone/>", "<budget/>"),
    ),
    by_hand(prompt("two of a union", "E406", "<tokyo/><rome/>"), "remove one", ("<rome/>", "")),
    prompt("a level left out", "E403", "<trip><tokyo/></trip>", "<trip><overseas><tokyo/></overseas></trip>"),
    prompt("a level too deep", "E403", "<trip><tone/></trip>", "<trip></trip><tone/>"),
    prompt("two a level too deep", "E403", "<trip><tone/><food/></trip>", "<trip></trip><tone/><food/>"),
    prompt("two places", "E404", "<notes/>", "<budget><notes/></budget>"),
    by_hand(
        prompt("two places, one taken", "E404", "<budget/><notes/>"),
        "nest the import as in the schema",
        ("<budget/><notes/>", "<budget><notes/></budget>"),
    ),
    by_hand(
        prompt("an argument for the prompt", "E206", '<trip/><arg name="duration">3</arg>'),
        "move it into that import",
        ('<trip/><arg name="duration">3</arg>', '<trip><arg name="duration">3</arg></trip>'),
    ),
    by_hand(
        prompt("no name of an argument", "E202", "<trip><arg>3</arg></trip>"),
        '<arg name="…">',
        ("<arg>", '<arg name="duration">'),
    ),
    by_hand(
        prompt("two of a union, with more in them", "E406", '<domestic city="Nice"/><tokyo>x</tokyo>'),
        "remove one",
        ("<tokyo>x</tokyo>", ""),
    ),
    by_hand(
        Mistake("a schema", "E201", '<schema name="travel">x</schema>'),
        '<prompt schema="…">',
        ("schema name", "prompt schema"),
        ("</schema>", "</prompt>"),
    ),
]


def of_prompt(source: str) -> Sequence[Diagnostic]:
    parsed = parse_prompt(source)
    assert TREE is not None
    return (*parsed.diagnostics, *(bind(TREE, parsed.tree).diagnostics if parsed.tree else ()))


def test_the_schema_of_the_prompts_is_sound() -> None:
    assert parse_schema(SCHEMA).diagnostics == ()


@pytest.mark.parametrize("mistake", PROMPTS, ids=lambda mistake: mistake.name)
def test_the_remedy_removes_the_mistake(mistake: Mistake) -> None:
    require_remedy(mistake, of_prompt)


def test_there_are_as_many_mistakes_as_people_make() -> None:
    assert len(PROMPTS) >= 45
