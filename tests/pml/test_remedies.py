"""Mistakes that people make by hand in schemas: each has its code, and what its remedy says removes it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.pml import Diagnostic, parse_schema
from tests.pml.remedied import Mistake, by_hand, param, require_remedy, schema, text

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
P = '<param name="p" len="5"/>'
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
    schema(
        "one end too many",
        "E106",
        '\n  <module name="m">\n    x\n  </module>\n  </module>\n',
        '\n  <module name="m">\n    x\n  </module>\n  \n',
    ),
    by_hand(
        schema("one end too many, in a line", "E106", '<module name="m">x</module></module>'),
        "remove it",
        ("</module></module>", "</module>"),
    ),
    schema(
        "ends crossed",
        "E106",
        '<user><module name="m">x</user></module>',
        '<user><module name="m">x</module></user>',
    ),
    schema(
        "an end left out",
        "E105",
        '\n <user>\n  <module name="a">\n   x\n  <module name="b">y z</module>\n </user>\n',
        '\n <user>\n  <module name="a">\n   x\n  </module>\n  <module name="b">y z</module>\n </user>\n',
    ),
    schema(
        "a union left open",
        "E105",
        f'\n <user>\n  <union>\n   {TWO}\n  <module name="c">z</module>\n </user>\n',
        f'\n <user>\n  <union>\n   {TWO}\n  </union>\n  <module name="c">z</module>\n </user>\n',
    ),
    by_hand(
        schema("a union left open in a line", "E105", f'<union>{TWO}<module name="c">z</module>'),
        "write </union>",
        ('<module name="c">', '</union><module name="c">'),
    ),
    schema(
        "a start left out",
        "E106",
        '\n <user>\n   <module name="a">x y</module>\n  </union>\n  z\n </user>\n',
        '\n <user>\n  <union>\n   <module name="a">x y</module>\n  </union>\n  z\n </user>\n',
    ),
    schema(
        "a start for an end, in lines",
        "E105",
        '\n <module name="a">\n  x y\n <module>\n <module name="b">z</module>\n',
        '\n <module name="a">\n  x y\n </module>\n <module name="b">z</module>\n',
    ),
    schema(
        "the start without >, before text",
        "E104",
        '<module name="m"\n x y</module>',
        '<module name="m">\n x y</module>',
    ),
    schema(
        "a parameter twice", "E304", f'<module name="m">{2 * P}</module>', f'<module name="m">{P}</module>'
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
    by_hand(
        schema("one name twice", "E302", '<module name="a">x</module><module name="a">y</module>'),
        "rename one",
        ('"a">y', '"b">y'),
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
        "a separate document",
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


def of_schema(source: str) -> Sequence[Diagnostic]:
    return parse_schema(source).diagnostics


MISTAKES = [*CODE, *ATTRIBUTES, *STRUCTURE]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_remedy_removes_the_mistake(mistake: Mistake) -> None:
    require_remedy(mistake, of_schema)


def test_there_are_as_many_mistakes_as_people_make() -> None:
    assert len(MISTAKES) >= 90
