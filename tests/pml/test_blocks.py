"""Headings, list items and other blocks that begin a line in the schema and not in what is read."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from engine.pml import Diagnostic, Module, Union, apply_edits, bind, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation
from tests.drawing import draws
from tests.pml.documents import schema_tree

CUSTOMER = """
<user>
  Customer: <module name="a">Ada</module>

  ## Rules
  Be kind.
</user>
"""
ORDER = """
<user>
  - order: <module name="order">#5</module>
  <module name="history">
  ## History
  None.
  </module>
</user>
"""


def told(found: Sequence[Diagnostic], *codes: str) -> list[Diagnostic]:
    return [one for one in found if one.code in (codes or ("W616",))]


def of_schema(content: str, base: Path | None = None) -> list[Diagnostic]:
    """What is said of blocks in a schema, which has no error."""
    parsed = parse_schema(f'<schema name="s">{content}</schema>', base=base)
    assert parsed.ok, parsed.diagnostics
    return told(parsed.diagnostics)


def asked(content: str, prompt: str) -> tuple[str, list[Diagnostic]]:
    """What a prompt spells, and everything that is said of it."""
    tree = schema_tree(f'<schema name="s">{content}</schema>')
    parsed = parse_prompt(f"<prompt>{prompt}</prompt>")
    assert parsed.tree is not None
    bound = bind(tree, parsed.tree)
    assert bound.ok, bound.diagnostics
    return "|".join(one.text for one in conversation(bound.parts)), [
        one for one in bound.diagnostics if one.code != "W618"
    ]


def test_a_heading_behind_what_a_left_out_module_leaves_is_told() -> None:
    (fault,) = of_schema(CUSTOMER)
    assert fault.message == (
        "'## Rules' begins a line here, but not if module 'a' is left out: it then follows 'Customer:'; "
        "write 'Customer:' into module 'a' too, or a line break after 'Customer:'"
    )
    assert fault.line == 5
    spelled, found = asked(CUSTOMER, "")
    assert spelled == "Customer: ## Rules\nBe kind."
    (fault,) = told(found)
    assert fault.message == (
        "'## Rules' (line 5) begins a line in the schema but follows 'Customer:' (line 3) here, "
        "without module 'a' between them; write 'Customer:' into module 'a' too in the schema, "
        "or a line break after 'Customer:'"
    )
    assert asked(CUSTOMER, "<a/>") == ("Customer: Ada\n\n## Rules\nBe kind.", [])


def test_it_is_told_at_the_import_that_brings_it_about() -> None:
    (fault,) = of_schema(ORDER)
    assert "'## History' begins a line here, but not if module 'order' is left out" in fault.message
    assert "write '- order:' into module 'order' too" in fault.message
    spelled, found = asked(ORDER, "\n<history/>")
    assert spelled == "- order: ## History\nNone."
    (fault,) = told(found)
    assert (fault.line, fault.column, fault.end_column) == (2, 2, 9)
    assert "without module 'order' between them" in fault.message
    assert not told(asked(ORDER, "<order/><history/>")[1])


@pytest.mark.parametrize(
    ("content", "prompt", "spelled"),
    [
        (CUSTOMER.replace('Customer: <module name="a">', '<module name="a">Customer: '), "", "## Rules"),
        (CUSTOMER.replace("Customer: ", "Customer:\n"), "", "Customer:\n\n## Rules"),
        (ORDER.replace('- order: <module name="order">', '<module name="order">- order: '), "", "## Hist"),
    ],
)
def test_the_remedies_that_are_told_help(content: str, prompt: str, spelled: str) -> None:
    assert not of_schema(content)
    for imports in (prompt, "<history/>" if "history" in content else prompt):
        assert not told(asked(content, imports)[1])


@pytest.mark.parametrize(
    "mark", ["# x", "###### x", "- x", "* x", "> x", "1. x", "2) x", "```\nx\n```", "| x | y |"]
)
def test_each_block_is_told(mark: str) -> None:
    content = f'<user>Customer: <module name="a">Ada</module>\n{mark}\nBe kind.</user>'
    (fault,) = of_schema(content)
    (same,) = told(asked(content, "")[1])
    assert mark.split("\n")[0] in fault.message
    assert mark.split("\n")[0] in same.message


@pytest.mark.parametrize(
    ("content", "prompts"),
    [
        ('Title: <module name="t"># x</module>', ["<t/>", ""]),
        ('Title: <module name="a">Ada</module> <module name="t"># x</module>', ["<t/>", "<a/><t/>"]),
        ('Title: <module name="t">\n# x\n</module>', ["<t/>"]),
        ('Customer: <module name="a">Ada</module>\n#tag', [""]),
        ('Customer: <module name="a">Ada</module>\nRules', [""]),
        ('Customer:\n<module name="a">Ada</module>\n## Rules', [""]),
        ('<module name="a">Ada</module> <module name="b">Bob</module>\n## Rules', ["", "<b/>", "<a/><b/>"]),
        ('<user>Hi</user><assistant><module name="a">Ada</module>\n- x</assistant>', ["", "<a/>"]),
        ('Customer:\n<module name="a"><module name="b">Ada</module>\n## Rules</module>', ["<a/>"]),
    ],
)
def test_what_begins_its_line_or_never_did_is_not_told(content: str, prompts: list[str]) -> None:
    if 'name="b">Bob' not in content:
        assert not of_schema(content)
    for prompt in prompts:
        assert not told(asked(content, prompt)[1]), asked(content, prompt)


@pytest.mark.parametrize(
    ("content", "prompt", "spelled", "says"),
    [
        (
            '<module name="a">Ada</module> <module name="b">Bob</module>\n## R',
            "<a/>",
            "Ada ## R",
            ["without module 'b' between them", "write a line break after </module> of 'a' in the schema"],
        ),
        (
            'To: <union><module name="a">Ada</module><module name="b">Bob</module></union>\n- x',
            "",
            "To: - x",
            [
                "without the union of 'a' between",
                "write 'To:' into each module of the union of 'a' too in the",
            ],
        ),
        (
            '# All\nTo: <module name="a">Ada</module>\n<module name="b">- x</module>',
            "<b/>",
            "# All\nTo: - x",
            ["write 'To:' into module 'a' too"],
        ),
        (
            'To: <module name="m"><module name="a">Ada</module>\n- x</module>',
            "<m/>",
            "To: - x",
            ["without module 'm/a' between", "write 'To:' into module 'm/a' too"],
        ),
        (
            '<module name="m">To: <param name="p" len="2"/> <module name="a">Ada</module>\n- x</module>',
            "<m p='me'/>",
            "To: me - x",
            ["follows 'me'", "write a line break after the parameter 'p' in the schema"],
        ),
        (
            'To: <module name="a"><param name="p" len="2"/></module>\n- x',
            "<a/>",
            "To: - x",
            ["without module 'a' between", "write 'To:' into module 'a' too"],
        ),
    ],
)
def test_the_place_that_mends_it_is_told(content: str, prompt: str, spelled: str, says: list[str]) -> None:
    assert len(of_schema(content)) == 1
    text, found = asked(content, prompt)
    (fault,) = told(found)
    assert text == spelled
    assert [part for part in says if part not in fault.message] == [], fault.message


def test_an_order_that_brings_it_about_is_told_in_the_prompt_alone() -> None:
    content = '<module name="a">- a</module> <module name="b">two</module>'
    assert not of_schema(content)
    spelled, found = asked(content, "<b/><a/>")
    assert spelled == "two - a"
    (fault,) = told(found)
    assert "'- a' (line 1) begins a line in the schema but follows 'two' (line 1) here;" in fault.message
    assert "write a line break before <module> of 'b' in the schema" in fault.message
    assert not told(asked(content.replace("> <", ">\n<"), "<b/><a/>")[1])


def test_text_of_a_prompt_in_front_of_a_block_is_mended() -> None:
    content = '<user><module name="a">- tea</module>\n<module name="b">Bob</module></user>'
    for prompt, result in (("Buy <a/>", "Buy\n <a/>"), ("Buy<!-- c --> <a/>", "Buy\n<!-- c --> <a/>")):
        spelled, found = asked(content, prompt)
        assert spelled == "Buy - tea"
        (fault,) = told(found)
        assert fault.hint == "a line break between them"
        (edit,) = fault.fix
        start = edit.span.start - len("<prompt>")
        mended = prompt[:start] + edit.text + prompt[start:]
        assert mended == result
        assert asked(content, mended) == ("Buy\n- tea", [])


def test_text_at_the_end_of_an_import_is_told_where_the_schema_helps() -> None:
    content = '<module name="a">Ada</module> <module name="b">Bob</module>\n## R'
    spelled, found = asked(content, "<a>six</a>")
    assert spelled == "Ada\nsix ## R"
    (fault,) = told(found)
    assert not fault.fix
    assert "so write a line break after </module> of 'a' in the schema" in fault.message
    helped = content.replace("</module> <", "</module>\n<")
    assert asked(helped, "<a>six</a>") == ("Ada\nsix\n## R", [])


def test_a_number_alone_in_a_line_of_new_text_is_no_list() -> None:
    content = '<module name="day">2. Juli</module>\n<module name="steps">1. Go.\n2. Wait.</module>'
    assert asked(content, "Am <day/>")[1] == []
    assert asked(content, "Am <day/>")[0] == "Am 2. Juli"
    (fault,) = told(asked(content, "Do <steps/>")[1])
    assert "'1. Go.'" in fault.message


def test_long_texts_are_cut_in_messages() -> None:
    content = 'This is a long text in front: <module name="a">Ada</module>\n## A heading that is long as well'
    (fault,) = of_schema(content)
    assert "'## A heading that is lon…' begins" in fault.message
    assert "follows '…is a long text in front:'; write '…is a long text in front:' into" in fault.message


def test_what_touches_is_not_told_twice() -> None:
    content = 'Hello<module name="a"> dear</module>\n- x'
    _, found = asked(content, "")
    assert [one.code for one in found] == ["W613"]


def test_a_text_in_front_is_told_once_and_many_modules_take_no_long_time() -> None:
    many = "\n".join(f'<module name="m{number}">- item</module>' for number in range(500))
    assert not of_schema(f"Items:\n{many}")
    assert len(of_schema(f'Items: <module name="m">none</module>\n{many}')) == 1
    spaced = " ".join(f'<module name="n{number}">word</module>' for number in range(500))
    assert len(of_schema(f"{spaced}\n{many}")) == 1


def test_what_is_included_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.pml").write_text(f'<schema name="x">{CUSTOMER.strip()[6:-7]}</schema>', encoding="utf-8")
    (fault,) = of_schema('<user>Hello\n\n<include src="x.pml"/></user>', tmp_path)
    assert fault.file == "x.pml"
    (tmp_path / "y.pml").write_text('<schema name="y">- tea</schema>', encoding="utf-8")
    (fault,) = of_schema('Buy <module name="m">now</module>\n<include src="y.pml"/>', tmp_path)
    assert fault.file == ""
    assert "'- tea' begins a line here, but not if module 'm' is left out" in fault.message


MARKS = ("## {}", "- {}", "> {}", "1. {}", "| {} | x |", "```{}\nls\n```")
WORD = re.compile(r"[a-z]{3}x")


class Drawn:
    """A schema of Markdown, drawn; it knows of each block whether it begins its line in the source."""

    def __init__(self, rng: random.Random, most: int) -> None:
        self._rng = rng
        self._left = most
        letters = ("bdfgk", "aeiou", "lmnrst")
        self.words = (f"{one}{two}{three}x" for one, two, three in product(*letters))
        self.begins: dict[str, bool] = {}
        self.content = self._fill(True, 2)

    def _text(self, begins: bool) -> str:
        word = next(self.words)
        if self._rng.random() < 0.5:
            return word + self._rng.choice(("", ":", ","))
        self.begins[word] = begins
        return self._rng.choice(MARKS).format(word)

    def _fill(self, begins: bool, depth: int) -> str:
        content, text = "", False
        for number in range(self._rng.choice((1, 3, 4))):
            gap = self._rng.choice(("", " ", " ", "\n", "\n", "\n\n")) if number else ""
            here = "\n" in gap if number else begins
            optional = self._left > 0 and (text or self._rng.random() < 0.4)
            if text and not optional:
                break
            content += gap + (self._optional(here, depth) if optional else self._text(here))
            text = not optional
        return content

    def _optional(self, begins: bool, depth: int) -> str:
        members = self._rng.choice((1, 1, 1, 2))
        self._left -= members
        named = [f'<module name="m-{next(self.words)}">' for _ in range(members)]
        inner = "".join(
            f"{tag}{self._fill(begins, depth - 1) if depth else self._text(begins)}</module>" for tag in named
        )
        return f"<union>{inner}</union>" if members == 2 else inner


def violations(spelled: str, begins: dict[str, bool]) -> list[tuple[str, str]]:
    """Blocks that begin a line in the source and not in a text, each with what stands in front of it."""
    found = []
    for word in (match[0] for match in WORD.finditer(spelled)):
        if begins.get(word):
            place = spelled.index(word)
            line = spelled[:place].rpartition("\n")[2]
            front = re.sub(r"(?:```|(?:##|-|>|1\.|\|) )\Z", "", line)
            if front.strip():
                found.append((word, front))
    return found


def choices(nodes: Sequence[object]) -> Iterator[str]:
    """The imports of every choice among nodes, in the order of the schema."""
    optional = [node for node in nodes if isinstance(node, Module | Union)]
    ways = []
    for node in optional:
        members = node.members if isinstance(node, Union) else (node,)
        inner = [f"<{one.name}>{way}</{one.name}>" for one in members for way in choices(one.children)]
        ways.append(["", *inner])
    for way in product(*ways):
        yield "".join(way)


SAID = re.compile(r"^'[^']*?([a-z]{3}x)")
FRONT = re.compile(r"follows '([^']+)'")


@pytest.mark.parametrize("seed", range(2))
def test_a_drawn_schema_says_what_any_choice_brings_about(seed: int) -> None:
    rng = random.Random(seed)
    counted: Counter[str] = Counter()
    for _ in range(draws(300)):
        drawn = Drawn(rng, 4)
        parsed = parse_schema(f'<schema name="s">{drawn.content}</schema>')
        assert parsed.tree is not None
        found = told(parsed.diagnostics)
        spelled = [asked(drawn.content, prompt)[0] for prompt in choices(parsed.tree.children)]
        broken = [pair for text in spelled for pair in violations(text, drawn.begins)]
        spaced = [pair for pair in broken if pair[1].endswith(" ")]
        assert bool(spaced) <= bool(found), (drawn.content, spaced)
        for fault in found:
            right, left = SAID.search(fault.message), FRONT.search(fault.message)
            assert right is not None
            assert left is not None
            assert any(word == right[1] and left[1] in front for word, front in broken), (
                drawn.content,
                fault.message,
            )
        counted["told" if found else "not"] += 1
    assert min(counted["told"], counted["not"]) > draws(300) // 30, counted


def picked(rng: random.Random, nodes: Sequence[object], words: Iterator[str]) -> str:
    """Imports of some modules, in any order, with text between them."""
    imports = ""
    optional = [node for node in nodes if isinstance(node, Module | Union)]
    for node in rng.sample(optional, len(optional)):
        one = rng.choice(node.members) if isinstance(node, Union) else node
        if rng.random() < 0.6:
            imports += rng.choice(("", "", "", next(words) + " "))
            imports += f"<{one.name}>{picked(rng, one.children, words)}</{one.name}>"
            imports += rng.choice(("", " ", "\n"))
    return imports


BEHIND = re.compile(r"line break (after|before) (</?module>|the union) of '([^']+)' in the schema")
TEXT = re.compile(r"(?:a line break|and) after '([^']+)'")


def with_break(content: str, message: str) -> str | None:
    """A schema with the line break in it that a message wants."""
    advice = BEHIND.search(message)
    if advice is None:
        text = TEXT.search(message)
        return content.replace(text[1], text[1] + "\n", 1) if text and content.count(text[1]) == 1 else None
    side, what, path = advice.groups()
    tag = f'<module name="{path.rpartition("/")[2]}"'
    opened: list[re.Match[str]] = []
    wanted: re.Match[str] | None = None
    for match in re.finditer(r"<(/?)(?:module|union)[^>]*>", content):
        if not match[1]:
            opened.append(match)
            if match[0].startswith(tag):
                wanted = opened[-2] if what == "the union" else match
        elif opened.pop() is wanted:
            place = wanted.start() if side == "before" else match.end()
            return f"{content[:place]}\n{content[place:]}"
    raise AssertionError(message)


@pytest.mark.parametrize("seed", range(2))
def test_no_block_of_a_drawn_prompt_loses_its_line_unsaid(seed: int) -> None:
    rng = random.Random(seed)
    counted: Counter[str] = Counter()
    for _ in range(draws(300)):
        drawn = Drawn(rng, 6)
        parsed = parse_schema(f'<schema name="s">{drawn.content}</schema>')
        assert parsed.tree is not None
        prompt = picked(rng, parsed.tree.children, drawn.words)
        spelled, found = asked(drawn.content, prompt)
        broken = violations(spelled, drawn.begins)
        said = " ".join(
            one.message for one in told([*found, *told(parsed.diagnostics, "W613")], "W613", "W616")
        )
        unsaid = [(word, WORD.findall(front)[-1:]) for word, front in broken if word not in said]
        dated = [word for word, front in unsaid if f"1. {word}" in drawn.content and front[0] in prompt]
        assert [word for word, _ in unsaid] == dated, (drawn.content, prompt, spelled)
        for fault in told(found):
            right = SAID.search(fault.message)
            assert right is not None
            word = right[1]
            assert word in dict(broken), (drawn.content, prompt, fault.message)
            content, mended = drawn.content, prompt
            if fault.fix:
                mended = apply_edits(f"<prompt>{prompt}</prompt>", fault.fix)[
                    len("<prompt>") : -len("</prompt>")
                ]
            else:
                content = with_break(content, fault.message) or content
            if (content, mended) != (drawn.content, prompt):
                counted["fix" if fault.fix else "advice"] += 1
                after = dict(violations(asked(content, mended)[0], drawn.begins))
                assert word not in after, (content, mended, fault.message)
    assert min(counted["fix"], counted["advice"]) > draws(300) // 60, counted
