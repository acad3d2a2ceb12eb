"""Mistakes that people make by hand: each has its code, and what its remedy says removes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from engine.pml import Diagnostic, bind, mended, parse_prompt, parse_schema

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


@dataclass(frozen=True)
class Mistake:
    """A document with one mistake.

    Attributes:
        name: what somebody did.
        code: what it is reported as, among other things.
        source: the document.
        after: the document after all quick fixes; "" where only soundness is asked for.
        says: what message or hint say, where a person has to write something.
        writes: what that person writes: pairs of old and new text. Empty where quick fixes do it.
    """

    name: str
    code: str
    source: str
    after: str = ""
    says: str = ""
    writes: tuple[tuple[str, str], ...] = ()


def schema(name: str, code: str, source: str, after: str = "") -> Mistake:
    return Mistake(
        name, code, f'<schema name="s">{source}</schema>', after and f'<schema name="s">{after}</schema>'
    )


def text(name: str, code: str, source: str, after: str = "") -> Mistake:
    """A mistake in the text of a module."""
    module = '<module name="m">{}</module>'.format
    return schema(name, code, module(source), after and module(after))


def param(name: str, code: str, attributes: str, after: str = "") -> Mistake:
    """A mistake in the attributes of a parameter."""
    return text(name, code, f"a <param {attributes}/> b", after and f"a <param {after}/> b")


def prompt(name: str, code: str, source: str, after: str = "") -> Mistake:
    opening = '<prompt schema="travel">'
    return Mistake(name, code, f"{opening}{source}</prompt>", after and f"{opening}{after}</prompt>")


def by_hand(mistake: Mistake, says: str, *writes: tuple[str, str]) -> Mistake:
    return Mistake(mistake.name, mistake.code, mistake.source, says=says, writes=writes)


TWO = '<module name="a">x</module><module name="b">y</module>'

CODE = [
    text("less than", "E109", "if a < b", "if a &lt; b"),
    text("a plain &", "E109", "salt & pepper", "salt &amp; pepper"),
    text("a generic type", "E105", "List<String> names;", "List&lt;String> names;"),
    text("two type parameters", "E109", "Map<String, Integer> m", "Map&lt;String, Integer> m"),
    text("an include", "E105", "#include <stdio.h>", "#include &lt;stdio.h>"),
    text("an address", "E109", "to <ann@example.com>", "to &lt;ann@example.com>"),
    text("a line break of HTML", "E105", "one<br>two", "one&lt;br>two"),
    text("HTML", "E205", '<div class="a">x</div>', '&lt;div class="a">x&lt;/div>'),
    text(
        "HTML in HTML",
        "E205",
        "<ul><li>a</li><li>b</li></ul>",
        "&lt;ul>&lt;li>a&lt;/li>&lt;li>b&lt;/li>&lt;/ul>",
    ),
    text("a loop", "E109", "for (i = 0; i <n; i++)", "for (i = 0; i &lt;n; i++)"),
    text("a shift", "E109", "cout << x", "cout &lt;&lt; x"),
    text("a placeholder", "E109", "Dear <your name>,", "Dear &lt;your name>,"),
    text("an arrow", "E109", "x <- 5", "x &lt;- 5"),
    text("JSX", "E205", "<Button onClick={go}>Go</Button>", "&lt;Button onClick={go}>Go&lt;/Button>"),
    text("the end of HTML", "E106", "x</p>", "x&lt;/p>"),
    text("the end of CDATA", "E109", "a[b[0]]>c", "a[b[0]]&gt;c"),
    text("an entity of HTML", "E110", "a&nbsp;b", "a&#160;b"),
    text("an entity of nobody", "E110", "a&foo;b", "a&amp;foo;b"),
    text("an entity without its end", "E109", "a &lt b", "a &lt; b"),
    text("an address with &", "E109", "x/?a=1&b=2", "x/?a=1&amp;b=2"),
    text("no character", "E110", "a&#0;b", "ab"),
    by_hand(
        text("code", "E109", "if (a<b[0] && c) {}"),
        "CDATA",
        ("if (a<b[0] && c) {}", "<![CDATA[if (a<b[0] && c) {}]]>"),
    ),
    text("a control character", "E103", "a\x08b", "ab"),
    text("PHP", "E112", "<?php echo 1 ?>", "&lt;?php echo 1 ?>"),
    text("a declaration in text", "E111", "<!ELEMENT x>", "&lt;!ELEMENT x>"),
]
ATTRIBUTES = [
    Mistake(
        "curly quotes",
        "E107",
        "<schema name=“s”><module name=‘m’>x</module></schema>",
        '<schema name="s"><module name="m">x</module></schema>',
    ),
    schema("one curly quote", "E107", '<module name="m”>x</module>', '<module name="m">x</module>'),
    param("a curly quote before an attribute", "E107", 'name="p” len="5"', 'name="p" len="5"'),
    param(
        "curly quotes round two words",
        "E107",
        'name="p" len="5" default=“don’t”',
        'name="p" len="5" default="don’t"',
    ),
    schema("the closing quote is lost", "E107", '<module name="m>x</module>', '<module name="m">x</module>'),
    param("it is lost before an attribute", "E107", 'name="p len="5"', 'name="p" len="5"'),
    schema("quotes of two kinds", "E107", "<module name='m\">x</module>", "<module name='m'>x</module>"),
    schema("no opening quote", "E107", '<module name=m">x</module>', '<module name="m">x</module>'),
    schema("no quotes", "E107", "<module name=m>x</module>", '<module name="m">x</module>'),
    param(
        "no quotes round two words",
        "E107",
        'name="p" len="5" default=3 days',
        'name="p" len="5" default="3 days"',
    ),
    schema("a colon", "E107", '<module name: "m">x</module>', '<module name="m">x</module>'),
    schema("no =", "E107", '<module name "m">x</module>', '<module name="m">x</module>'),
    schema("two =", "E107", '<module name=="m">x</module>', '<module name="m">x</module>'),
    schema("only the name", "E107", '<module "m">x</module>', '<module name="m">x</module>'),
    schema("= behind the tag", "E107", '<module="m">x</module>', '<module name="m">x</module>'),
    schema("a comma", "E107", '<module name="m", cache="true">x</module>'),
    schema(
        "no space",
        "E107",
        '<module name="m"cache="true">x</module>',
        '<module name="m" cache="true">x</module>',
    ),
    schema("twice", "E108", '<module name="m" name="m">x</module>', '<module name="m">x</module>'),
    param("< in a value", "E109", 'name="p" len="5" default="a<b"', 'name="p" len="5" default="a&lt;b"'),
    schema("id", "E203", '<module id="m">x</module>', '<module name="m">x</module>'),
    param("max_tokens", "E203", 'name="p" max_tokens="5"', 'name="p" len="5"'),
    param("value", "E203", 'name="p" len="5" value="x"', 'name="p" len="5" default="x"'),
    schema("a name of a role", "E203", '<user name="bob">x</user>', "<user>x</user>"),
    Mistake("title", "E203", '<schema title="s">x</schema>', '<schema name="s">x</schema>'),
    schema(
        "cache off",
        "E204",
        '<module name="m" cache="no">x</module>',
        '<module name="m" cache="false">x</module>',
    ),
    schema("space kept", "E204", '<user xml:space="keep">x</user>', '<user xml:space="preserve">x</user>'),
    param("a length with a word", "E204", 'name="p" len="5 tokens"', 'name="p" len="5"'),
    param("no length", "E202", 'name="p"', 'len="10" name="p"'),
    param("a length of nothing", "E204", 'name="p" len="0"', 'name="p" len="1"'),
    param("a length too large", "E204", 'name="p" len="99999999"', 'name="p" len="9999999"'),
    param("a length in words", "E204", 'name="p" len="ten"', 'name="p" len="10"'),
    param("a length with commas", "E204", 'name="p" len="1,000"', 'name="p" len="1000"'),
    param("two lengths", "E204", 'name="p" len="5" length="5"', 'name="p" len="5"'),
    by_hand(
        schema("no value", "E107", '<module name="m" cache>x</module>'),
        'cache="…"',
        ("cache>", 'cache="true">'),
    ),
    by_hand(schema("no name", "E202", "<module>x</module>"), 'name="…"', ("<module>", '<module name="m">')),
    Mistake(
        "xmlns", "E203", '<schema xmlns="http://x.org/" name="s">x</schema>', '<schema name="s">x</schema>'
    ),
    schema("a prefix", "E118", '<x:module name="m">x</x:module>', '<module name="m">x</module>'),
]
STRUCTURE = [
    schema("developer", "E205", "<developer>x</developer>", "<system>x</system>"),
    schema("human", "E205", "<human>x</human>", "<user>x</user>"),
    schema(
        "tags for a model",
        "E205",
        "<user><instructions>Be brief.</instructions></user>",
        "<user>&lt;instructions>Be brief.&lt;/instructions></user>",
    ),
    schema("capitals", "E205", '<MODULE name="m">x</MODULE>', '<module name="m">x</module>'),
    schema("a slip", "E205", '<modul name="m">x</modul>', '<module name="m">x</module>'),
    schema("a slip at the end", "E106", '<module name="m">x</modul>', '<module name="m">x</module>'),
    schema("no end", "E105", '<module name="m">x', '<module name="m">x</module>'),
    schema("one end too many", "E106", '<module name="m">x</module></module>', '<module name="m">x</module>'),
    schema(
        "ends crossed",
        "E105",
        '<user><module name="m">x</user></module>',
        '<user><module name="m">x</module></user>',
    ),
    schema("a start for an end", "E105", '<module name="m">x<module>', '<module name="m">x</module>'),
    schema("a slash behind for an end", "E105", '<module name="m">x<module/>', '<module name="m">x</module>'),
    schema("a space before the name", "E109", '< module name="m">x</module>', '<module name="m">x</module>'),
    schema("a space in the end", "E106", '<module name="m">x</ module>', '<module name="m">x</module>'),
    schema("a slash in the end", "E104", '<module name="m">x</module/>', '<module name="m">x</module>'),
    schema(
        "attributes in the end", "E104", '<module name="m">x</module name="m">', '<module name="m">x</module>'
    ),
    schema("the end without >", "E104", '<module name="m">x</module', '<module name="m">x</module>'),
    schema("the start without >", "E104", '<module name="m"<user>x</user></module>'),
    text("a parameter left open", "E105", 'a <param name="p" len="5"> b', 'a <param name="p" len="5"/> b'),
    text("a backslash", "E107", 'a <param name="p" len="5"\\> b', 'a <param name="p" len="5"/> b'),
    schema("a backslash in the end", "E109", '<module name="m">x<\\module>', '<module name="m">x</module>'),
    text(
        "the default inside",
        "E207",
        'a <param name="p" len="5">3 days</param> b',
        'a <param default="3 days" name="p" len="5"></param> b',
    ),
    schema(
        "a parameter in a turn",
        "E206",
        '<user>a <param name="p" len="5"/></user>',
        '<user>a <module name="p"><param name="p" len="5"/></module></user>',
    ),
    schema(
        "a scaffold in a module",
        "E206",
        '<module name="a">x</module><module name="b">y<scaffold modules="a b"/></module>',
    ),
    schema(
        "the modules inside",
        "E207",
        f"{TWO}<scaffold>a b</scaffold>",
        f'{TWO}<scaffold modules="a b"></scaffold>',
    ),
    schema("a union in a union", "E206", f'<union><module name="c">z</module><union>{TWO}</union></union>'),
    schema("text in a union", "E207", f"<union>Pick: {TWO}</union>"),
    schema("modules by tags", "E205", "<union><a>x</a><b>y</b></union>", f"<union>{TWO}</union>"),
    schema(
        "a role in a nested module",
        "E206",
        '<module name="m">a<module name="n"><user>b</user></module></module>',
    ),
    schema(
        "text beside turns",
        "E212",
        '<module name="m">Hi. <user>x</user></module>',
        '<module name="m"><user>Hi.</user> <user>x</user></module>',
    ),
    schema("a role in a role", "E206", "<user>a<system>b</system></user>", "<user>ab</user>"),
    schema("turns in a turn", "E206", "<user><user>Q</user><user>A</user></user>", "<user>Q\nA</user>"),
    schema(
        "a name with spaces", "E301", '<module name="my trip">x</module>', '<module name="my-trip">x</module>'
    ),
    schema("a name of PML", "E303", '<module name="user">x</module>', '<module name="user-text">x</module>'),
    schema(
        "one name twice",
        "E302",
        '<module name="a">x</module><module name="a">y</module>',
        '<module name="a">x</module><module name="a-2">y</module>',
    ),
    schema(
        "a name for a path",
        "E306",
        '<module name="a">x<module name="b">y</module></module><scaffold modules="a b"/>',
        '<module name="a">x<module name="b">y</module></module><scaffold modules="a a/b"/>',
    ),
    schema(
        "a scaffold of no member", "E305", f'<union scaffold="zzz">{TWO}</union>', f"<union>{TWO}</union>"
    ),
    schema("a comment that begins short", "E111", "<!- note -->x", "<!-- note -->x"),
    schema("dashes in a comment", "E114", "<!-- a -- b -->x", "<!-- a - b -->x"),
    schema("dashes at its end", "E114", "<!-- note --->x", "<!-- note -->x"),
    Mistake(
        "a comment left open",
        "E114",
        '<!-- note\n<schema name="s">x</schema>',
        '<!-- note-->\n<schema name="s">x</schema>',
    ),
    Mistake(
        "its end is short",
        "E114",
        '<!-- note ->\n<schema name="s">x</schema>',
        '<!-- note -->\n<schema name="s">x</schema>',
    ),
    text("small cdata", "E111", "<![cdata[x]]>", "<![CDATA[x]]>"),
    Mistake(
        "a DOCTYPE", "E111", '<!DOCTYPE schema>\n<schema name="s">x</schema>', '\n<schema name="s">x</schema>'
    ),
    Mistake(
        "a line before it",
        "E113",
        '\n<?xml version="1.0"?><schema name="s">x</schema>',
        '<?xml version="1.0"?><schema name="s">x</schema>',
    ),
    Mistake(
        "another encoding", "E113", '<?xml version="1.0" encoding="latin-1"?><schema name="s">x</schema>'
    ),
    Mistake("text behind", "E115", '<schema name="s">x</schema>\nmore', '<schema name="s">x\nmore</schema>'),
    Mistake("text before", "E115", 'more\n<schema name="s">x</schema>', '<schema name="s">more\nx</schema>'),
    Mistake(
        "the first < is lost",
        "E115",
        f'schema name="s">{TWO}</schema>',
        f'<schema name="s">{TWO}</schema>',
    ),
    Mistake(
        "a module for the root",
        "E201",
        '<module name="m">x</module>',
        '<schema name="my-schema"><module name="m">x</module></schema>',
    ),
    Mistake("no root", "E115", TWO, f'<schema name="my-schema">{TWO}</schema>'),
    by_hand(Mistake("nothing", "E116", " \n"), '<schema name="…">', (" \n", '<schema name="s">x</schema>')),
    by_hand(
        Mistake("two schemas", "E115", '<schema name="s">x</schema><schema name="t">y</schema>'),
        "a document of its own",
        ('<schema name="t">y</schema>', ""),
    ),
    by_hand(
        text("two parameters of one name", "E304", 2 * '<param name="p" len="5"/>'),
        "rename",
        ('/><param name="p"', '/><param name="q"'),
    ),
    text(
        "one parameter twice",
        "E304",
        'a <param name="p" len="5"/> b <param name="p" length="5" default="x"/>',
        'a <param name="p" len="5"/> b <param name="p"/>',
    ),
    text(
        "a repeat with a typo",
        "E202",
        'a <param name="city" len="5"/> b <param name="citty"/>',
        'a <param name="city" len="5"/> b <param name="city"/>',
    ),
]
PROMPTS = [
    prompt("an end for an import", "E106", "</tone>", "<tone/>"),
    prompt("an import left open", "E105", "<tone>Where?", "<tone/>Where?"),
    prompt("an import not finished", "E104", "<tone\n", "<tone/>\n"),
    prompt("an import with half an end", "E107", "<tone/\n"),
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
    prompt("a tag of a prompt", "E402", "<question>Where?</question>", "&lt;question>Where?&lt;/question>"),
    prompt("tags in tags", "E402", "<docs><doc>x</doc></docs>", "&lt;docs>&lt;doc>x&lt;/doc>&lt;/docs>"),
    prompt("a generic type", "E105", "<tone/>What is List<String> x?", "<tone/>What is List&lt;String> x?"),
    prompt("an argument's slip", "E407", '<trip durations="3"/>', '<trip duration="3"/>'),
    prompt("an argument for nothing", "E407", '<tone style="x"/>', "<tone />"),
    prompt(
        "an argument twice",
        "E408",
        '<trip duration="3"><arg name="duration">3</arg></trip>',
        '<trip duration="3"></trip>',
    ),
    prompt("an argument without quotes", "E107", "<trip duration=3 days/>", '<trip duration="3 days"/>'),
    prompt("an argument in curly quotes", "E107", "<trip duration=“3 days”/>", '<trip duration="3 days"/>'),
    prompt(
        "markup in an argument",
        "E206",
        '<trip><arg name="duration"><b>3</b></arg></trip>',
        '<trip><arg name="duration">&lt;b>3&lt;/b></arg></trip>',
    ),
    prompt("imported twice", "E405", "<tone/><budget/><tone/>", "<tone/><budget/>"),
    prompt("two of a union", "E406", "<tokyo/><rome/>", "<tokyo/>"),
    prompt("a level left out", "E403", "<trip><tokyo/></trip>", "<trip><overseas><tokyo/></overseas></trip>"),
    prompt("a level too deep", "E403", "<trip><tone/></trip>", "<trip></trip><tone/>"),
    prompt("two places", "E404", "<notes/>", "<budget><notes/></budget>"),
    prompt("two places, one taken", "E404", "<budget/><notes/>", "<budget/><food><notes/></food>"),
    by_hand(
        prompt("an argument for the prompt", "E206", '<trip/><arg name="duration">3</arg>'),
        "move it into that element",
        ('<trip/><arg name="duration">3</arg>', '<trip><arg name="duration">3</arg></trip>'),
    ),
    by_hand(
        prompt("no name of an argument", "E202", "<trip><arg>3</arg></trip>"),
        '<arg name="…">',
        ("<arg>", '<arg name="duration">'),
    ),
    by_hand(
        prompt("two of a union, with more in them", "E406", '<domestic city="Nice"/><tokyo>x</tokyo>'),
        "remove one of the two",
        ("<tokyo>x</tokyo>", ""),
    ),
    by_hand(
        Mistake("a schema", "E201", '<schema name="travel">x</schema>'),
        '<prompt schema="…">',
        ("schema name", "prompt schema"),
        ("</schema>", "</prompt>"),
    ),
]


def of_schema(source: str) -> Sequence[Diagnostic]:
    return parse_schema(source).diagnostics


def of_prompt(source: str) -> Sequence[Diagnostic]:
    parsed = parse_prompt(source)
    assert TREE is not None
    return (*parsed.diagnostics, *(bind(TREE, parsed.tree).diagnostics if parsed.tree else ()))


def errors(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [diagnostic for diagnostic in found if diagnostic.severity == "error"]


MISTAKES = [
    *((mistake, of_schema) for mistake in (*CODE, *ATTRIBUTES, *STRUCTURE)),
    *((mistake, of_prompt) for mistake in PROMPTS),
]


def test_the_schema_of_the_prompts_is_sound() -> None:
    assert of_schema(SCHEMA) == ()


@pytest.mark.parametrize(("mistake", "diagnose"), MISTAKES, ids=lambda value: getattr(value, "name", ""))
def test_the_remedy_removes_the_mistake(mistake: Mistake, diagnose: object) -> None:
    assert callable(diagnose)
    found = errors(diagnose(mistake.source))
    assert mistake.code in {fault.code for fault in found}
    result = mistake.source
    if mistake.writes:
        fault = next(fault for fault in found if fault.code == mistake.code)
        assert mistake.says in fault.message + fault.hint
        for old, new in mistake.writes:
            assert old in result
            result = result.replace(old, new)
    while not mistake.writes and (left := errors(diagnose(result))):
        fault = next((fault for fault in left if fault.fix), None)
        assert fault is not None, (result, left)
        assert fault.hint
        changed = mended(result, fault, diagnose)
        assert changed is not None, (result, fault)
        assert len(errors(diagnose(changed))) <= len(left)
        assert changed != result
        result = changed
    assert errors(diagnose(result)) == []
    if mistake.after:
        assert result == mistake.after


def test_there_are_as_many_mistakes_as_people_make() -> None:
    assert len(MISTAKES) >= 120
