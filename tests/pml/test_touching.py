"""Words, sentences and marks that touch, in schemas and in prompts, and what mends them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engine.pml import Diagnostic, Module, Union, apply_edits, bind, mended, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation
from tests.drawing import draws
from tests.pml.documents import schema_diagnostics as of_schema
from tests.pml.documents import schema_tree

KEPT = ' xml:space="preserve"'
GAP = '<param name="p" len="2"/>'


def touching(schema: str, base: Path | None = None) -> list[Diagnostic]:
    """What is said of words that touch in a schema, which has no error."""
    parsed = parse_schema(f'<schema name="s">{schema}</schema>', base=base)
    assert parsed.ok, parsed.diagnostics
    return [found for found in parsed.diagnostics if found.code == "W613"]


def module(name: str, text: str, attributes: str = "") -> str:
    return f'<module name="{name}"{attributes}>{text}</module>'


def asked(schema: str, prompt: str) -> tuple[str, list[Diagnostic]]:
    """What a prompt spells, and what is said in it of words that touch."""
    tree = parse_schema(
        schema if schema.startswith("<schema") else f'<schema name="s">{schema}</schema>'
    ).tree
    parsed = parse_prompt(f"<prompt>{prompt}</prompt>")
    assert tree is not None
    assert parsed.tree is not None
    bound = bind(tree, parsed.tree)
    assert bound.ok, bound.diagnostics
    spelled = "|".join(message.text for message in conversation(bound.parts))
    return spelled, [found for found in bound.diagnostics if found.code == "W613"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Buy this.", "- milk"),
        ("Buy this:", "* milk"),
        ("milk", "- eggs"),
        ("She wrote", "> I see."),
        ("Prices", "| tea | 2 |"),
        ("Prices", "|tea|2|"),
        ("Prices", f"|{'tea ' * 30}|2|"),
        ("Run it:", "```\nls\n```"),
        ("Run it:", "~~~sh\nls\n~~~"),
        ("Do this:", "1. Buy milk."),
        ("Buy milk.", "2. Boil it."),
        ("Buy milk", "2) Boil it."),
        ("```\nls\n```", "Then wait."),
        ("| tea | 2 |", "Then wait."),
        (f"| {'tea ' * 30}| 2 |", "Then wait."),
        (f"```\n{'ls ' * 40}\n```", "Then wait."),
        ("说明", "- 牛奶"),
        ("I stay for 20", "days"),
        ("since 2020", "The rule holds."),
        ("I walk there.", "20 people came."),
        ("Is it far?", "3 miles are far."),
        ("I pay.", "I walk."),
        ("cash", "walk"),
        ("12", "34"),
    ],
)
def test_what_would_read_as_one_is_told(left: str, right: str) -> None:
    (found,) = touching(f'<module name="a">{left}</module><module name="b">{right}</module>')
    assert "run together" in found.message
    (here,) = touching(f'{left}<module name="b">{right}</module>')
    assert here.message == found.message


@pytest.mark.parametrize(
    ("left", "right", "space"),
    [
        ("Rome", "Tokyo", " "),
        ("for 20", "days", " "),
        ("Dear Ann,", "hello", " "),
        ("Customer:", "Ann", " "),
        ("I pay.", "I walk.", "\n"),
        ("Why?)", "So", "\n"),
        ("Rules:", "# One", "\n"),
        ("Rules:", "#one", " "),
        ("milk", "- eggs", "\n"),
        ("milk", "2. Eggs", "\n"),
        ("```\nls\n```", "Then", "\n"),
    ],
)
def test_words_are_set_apart_by_a_space_and_sentences_and_blocks_by_a_line_break(
    left: str, right: str, space: str
) -> None:
    said = "a space between them" if space == " " else "a line break between them"
    one, two = module("a", left), module("b", right)
    told = [touching(one + two), touching(left + two), asked(one, f"<a/>{right}")[1]]
    for (fault,) in [*told, asked(two, f"{left}<b/>")[1]]:
        assert [edit.text for edit in fault.fix] == [space]
        assert fault.hint == said
        assert fault.message.endswith(f"; put {said}")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("3", "D"),
        ("the 20", "th"),
        ("5", "km"),
        ("GPT-", "4"),
        ("GPT", "4. It is large."),
        ("v", "2"),
        ("v", "2. It is new."),
        ("x", "-y"),
        ("x", "- y".replace(" ", "\u00a0")),
        ("pi is 3.", "14"),
        ("1,", "000 people"),
        ("it took 5.", "2. That is long."),
        ("localhost:", "8080"),
        ("Fig.", "2 shows it"),
        ("file", "1"),
        ("0x20", "beef"),
        ("yes", "|no"),
        ("a", "||b"),
        ("a", "*b*"),
        ("a", "&gt;b"),
        ("Use ", "`ls`"),
        ("```", "python"),
        ("说明", "牛奶"),
        ("Write to ", "- milk"),
        ("line\n", "- milk"),
        ("I go", ", then"),
        ("I go", "."),
    ],
)
def test_what_reads_well_is_not_told(left: str, right: str) -> None:
    assert not touching(f'<module name="a"{KEPT}>{left}</module><module name="b"{KEPT}>{right}</module>')


def test_a_place_is_told_once_also_where_many_modules_meet() -> None:
    glued = "".join(f'<module name="m{number}">word</module>' for number in range(40))
    assert len(touching(glued)) == 39
    others = glued.replace('name="m', 'name="n')
    assert len(touching(f"<union>{glued}</union><union>{others}</union>")) == 1


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (f"Hello{module('m', ', dear!', KEPT)} world", "Helloworld"),
        (f"{module('a', 'one')}{module('b', ': it.')}{module('c', 'two')}", "onetwo"),
        (f"A {module('a', 'blue')}{module('b', ', large')} sea", "bluesea"),
        (module("a", f"Go{module('b', ', then,')}<union>{module('c', 'stay')}</union>"), "Gostay"),
        (f"Pay{module('a', ', go')}{module('b', '.')}{module('c', 'or')}{module('d', 'wait')}", "Payor"),
    ],
)
def test_words_that_touch_where_a_module_is_left_out_are_told_in_the_schema(schema: str, words: str) -> None:
    schema = schema.replace("!</module> ", "! </module>")
    (found,) = [one for one in touching(schema) if "left out" in one.message and repr(words) in one.message]
    assert not found.fix, "white space there would set apart what stands side by side otherwise"


@pytest.mark.parametrize(
    "schema",
    [
        f"I go{module('m', ', then')}, I said.",
        f"I go {module('m', 'then')} home.",
        f"I go\n{module('a', 'now')}\n{module('b', 'then')}\nhome.",
        f"A {module('a', 'blue')} {module('b', ', large')} sea",
        f"See {module('a', GAP)}: it.",
        f"See {module('a', GAP)}<union>{module('b', 'it')}</union>",
    ],
)
def test_what_may_be_left_out_without_harm_is_not_told(schema: str) -> None:
    assert not touching(schema)


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ('I am<param name="p" len="2" default="Bob"/>.', "I amBob"),
        ('<param name="p" len="2" default="Bob"/>is here', "Bobis here"),
        ('<param name="p" len="2" default="20"/>5', "205"),
        ('Buy<param name="p" len="9" default="- milk"/>', "Buy- milk"),
    ],
)
def test_a_default_that_touches_is_told_in_the_schema_alone(inside: str, words: str) -> None:
    source = f'<schema name="s">{module("a", inside)}</schema>'
    (fault,) = touching(module("a", inside))
    assert repr(words) in fault.message
    result = mended(source, fault, of_schema)
    assert result is not None
    assert not [found for found in of_schema(result) if found.code == "W613"]
    spelled, told = asked(module("a", inside), "<a/>")
    assert words in spelled
    assert not told, "what every prompt reads is the schema's business"
    assert not touching(module("a", 'I "<param name="p" len="2" default="am"/>", (<param name="p"/>).'))


def test_a_default_at_the_edge_of_a_module_is_told() -> None:
    (fault,) = touching(
        "I am" + module("a", "<union>" + module("b", GAP.replace("/>", ' default="Al"/>')) + "</union>")
    )
    assert "'I amAl'" in fault.message


@pytest.mark.parametrize("included", ["moon", '<module name="x">moon</module>'])
def test_text_glued_to_what_is_included_is_told_and_mended(tmp_path: Path, included: str) -> None:
    (tmp_path / "x.pml").write_text(f'<schema name="x">{included}</schema>', encoding="utf-8")

    def diagnose(source: str) -> Sequence[Diagnostic]:
        return [found for found in parse_schema(source, base=tmp_path).diagnostics if found.code == "W613"]

    source = '<schema name="s"><user>Hello<include src="x.pml"/>world</user></schema>'
    before, behind = diagnose(source)
    assert "'Hellomoon'" in before.message
    assert "'moonworld'" in behind.message
    for fault in (before, behind):
        assert mended(source, fault, diagnose) is not None
    assert not diagnose(source.replace("<include", " <include").replace("/>", "/>\n"))
    twice = '<schema name="s"><include src="x.pml"/><include src="y.pml"/></schema>'
    (tmp_path / "y.pml").write_text('<schema name="y">star</schema>', encoding="utf-8")
    (fault,) = diagnose(twice)
    assert "'moonstar'" in fault.message


@pytest.mark.parametrize(
    ("schema", "prompt", "words", "told"),
    [
        (f"Hello {module('m', 'dear')}, {module('n', 'Ann')} world", "", "", ""),
        (
            f"Hello{module('m', ', dear,')}world",
            "",
            "Helloworld",
            "text 'Hello' (line 1) of the schema directly precedes text 'world' (line 1); "
            "write a space or a line break after 'Hello' in the schema",
        ),
        (
            f"{module('a', 'one')} {module('b', 'two')}, three",
            "<b/><a/>",
            "twoone",
            "module 'b' (line 1) of the schema directly precedes module 'a' (line 1); "
            "write a space or a line break after </module> of 'b' in the schema",
        ),
        (
            f"{module('a', 'one')}{module('b', ', two')}",
            "<b/><a/>",
            ", twoone",
            "write a space or a line break before <module> of 'b' in the schema",
        ),
        (
            f"<union>{module('a', 'one')}</union>{module('c', ', two')}{module('d', 'for')}",
            "<a/><d/>",
            "onefor",
            "write a space or a line break after the union of 'a' in the schema",
        ),
        (module("a", 'I am<param name="p" len="2"/>here'), "<a/>", "I amhere", "after 'I am' in the schema"),
        (
            module("a", f'I am <param name="p" len="2" default="Al"/>{module("b", ", you")}so'),
            "<a/>",
            "Also",
            "after the parameter 'p' in the schema",
        ),
    ],
)
def test_what_only_some_prompts_put_side_by_side_is_told_in_them(
    schema: str, prompt: str, words: str, told: str
) -> None:
    spelled, found = asked(schema, prompt)
    assert words in spelled
    assert [told in fault.message and repr(words) in fault.message for fault in found] == [True] * bool(words)
    assert not any(fault.fix for fault in found), "it is mended in the schema"


def test_it_is_told_at_the_import_that_brings_it_about() -> None:
    schema = f"{module('a', 'one')} {module('b', 'two')}, three"
    parsed = parse_prompt(source := "<prompt><b/>\n<a/></prompt>")
    tree = schema_tree(f'<schema name="s">{schema}</schema>')
    assert parsed.tree is not None
    found = next(one for one in bind(tree, parsed.tree).diagnostics if one.code == "W613")
    assert (source[found.span.start : found.span.end], found.line) == ("a", 2)


def test_what_always_stands_side_by_side_is_told_in_the_schema_alone() -> None:
    schema = f"<user>{module('a', module('b', 'one'))}{module('c', 'two')}three</user>"
    first, second = touching(schema)
    assert "'onetwo'" in first.message
    assert "'twothree'" in second.message
    assert asked(schema, "<b/><c/>") == ("onetwothree", [])
    spelled, (found,) = asked(schema, "<b/>")
    assert spelled == "onethree"
    assert "'onethree'" in found.message


@pytest.mark.parametrize(
    ("schema", "prompt", "words", "mended_to"),
    [
        (module("a", "one"), "six<a/>", "sixone", "six <a/>"),
        (module("a", "one"), "<a/>six", "onesix", "<a/> six"),
        (module("a", "one"), "<a>two</a>six", "twosix", "<a>two</a> six"),
        (module("a", f"one {module('b', 'two')} for"), "<a>six<b/></a>", "sixtwo", "<a>six <b/></a>"),
        (module("a", GAP.replace("/>", ' default="Al"/>')), "six<a/>", "sixAl", "six <a/>"),
        (module("a", GAP), "six<!-- c --><a p='Al'/>", "sixAl", "six <!-- c --><a p='Al'/>"),
    ],
)
def test_text_of_a_prompt_that_touches_is_mended(
    schema: str, prompt: str, words: str, mended_to: str
) -> None:
    spelled, found = asked(schema, prompt)
    (fault,) = found
    assert words in spelled
    shift = len("<prompt>")
    (edit,) = fault.fix
    result = prompt[: edit.span.start - shift] + edit.text + prompt[edit.span.end - shift :]
    assert result == mended_to
    spelled, found = asked(schema, result)
    assert words not in spelled
    assert not found


def test_a_tag_that_is_a_fault_makes_no_two_texts_of_one() -> None:
    tree, parsed = (
        parse_schema(f'<schema name="s">{module("a", "one")}</schema>').tree,
        parse_prompt("<prompt><a/> six<module>ten</module></prompt>"),
    )
    assert tree is not None
    assert parsed.tree is not None
    assert not bind(tree, parsed.tree).diagnostics


def test_text_at_the_end_of_an_import_has_no_fix_but_advice_that_helps() -> None:
    inner = module("b", "one")
    for prompt in ("<a>six</a>", "<a>six<!-- c --></a>", "<a>six<![CDATA[ ]]> </a>"):
        spelled, (fault,) = asked(f"{module('a', 'one')}two", prompt)
        assert (spelled, fault.fix) == ("one\nsixtwo", ())
        assert "after </module> of 'a' in the schema" in fault.message
        assert asked(f"{module('a', 'one')} two", prompt) == ("one\nsix two", [])
    spelled, (fault,) = asked(module("a", f"{inner} two"), "<a><b/>\nsix</a>")
    assert (spelled, fault.fix) == ("one\nsixtwo", ())
    assert 'write <a xml:space="preserve"> and a space after the text' in fault.message
    kept = "<a xml:space='preserve'><b/>\nsix </a>"
    assert asked(module("a", f"{inner} two"), kept) == ("one \nsix two", [])


def drawn(rng: random.Random, words: Iterator[str], depth: int = 2) -> str:
    """Content of a schema, every text of it one word that no other has, some of them glued."""
    content = next(words) if depth < 2 or rng.random() < 0.5 else ""
    for _ in range(rng.randint(1, 3)):
        gap = rng.choice(("", "", " ", "\n"))
        name = f"m{next(words)}"
        kind = rng.random()
        if kind < 0.2:
            content += gap + (next(words) if content[-1:] == ">" else "")
        elif kind < 0.4:
            members = (module(f"{name}-{one}", rng.choice((", ", "")) + next(words)) for one in "xy")
            content += f"{gap}<union>{''.join(members)}</union>"
        else:
            below = drawn(rng, words, depth - 1) if depth and rng.random() < 0.4 else next(words)
            content += gap + module(name, rng.choice(("", "", ", ")) + below)
    return content


def picked(rng: random.Random, modules: Sequence[Module | Union], words: Iterator[str]) -> str:
    """Imports of some modules, in any order, with text between them."""
    imports = ""
    for node in rng.sample(modules, len(modules)):
        one = rng.choice(node.members) if isinstance(node, Union) else node
        if rng.random() < 0.7:
            inner = picked(rng, [child for child in one.children if isinstance(child, Module | Union)], words)
            imports += f"<{one.name}>{inner}</{one.name}>" + rng.choice(("", "", " ", "\n"))
            imports += rng.choice(("", "", next(words), next(words) + " "))
    return imports


def with_space(schema: str, side: str, what: str, path: str) -> str:
    """A schema with a space written before or behind one of its modules, or the union round it."""
    start = schema.index(f'<module name="{path.rpartition("/")[2]}"')
    tag = "union" if what.endswith("union") else "module"
    start = schema.rindex(f"<{tag}", 0, start + len("<module"))
    depth = 0
    for found in re.finditer(f"<{tag}|</{tag}>", schema[start:]):
        depth += 1 if found[0] == f"<{tag}" else -1
        if not depth:
            place = start if side == "before" else start + found.end()
            return f"{schema[:place]} {schema[place:]}"
    raise AssertionError(path)


def glued(spelled: str) -> Counter[str]:
    """The pairs of drawn words that stand in a text as one."""
    runs = re.findall(r"[a-z]{6,}", spelled)
    return Counter(run[place - 3 : place + 3] for run in runs for place in range(3, len(run), 3))


ADVICE = re.compile(r"(after|before) (</?module>|the union) of '([^']+)' in the schema")


@pytest.mark.parametrize("seed", range(3))
def test_no_two_words_of_a_drawn_prompt_touch_unsaid(seed: int) -> None:
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    for _ in range(draws(300)):
        words = (f"{one}{two}{three}" for one in "bdfgk" for two in "aeiou" for three in "lmnrst")
        schema = f'<schema name="s">{drawn(rng, words)}</schema>'
        parsed = parse_schema(schema)
        assert parsed.tree is not None
        nodes = [child for child in parsed.tree.children if isinstance(child, Module | Union)]
        prompt = picked(rng, nodes, words)
        spelled, found = asked(schema, prompt)
        said = " ".join(fault.message for fault in found)
        unsaid = [pair for pair in glued(spelled) if pair not in said]
        mended_schema = apply_edits(schema, [edit for one in parsed.diagnostics for edit in one.fix])
        assert not glued(asked(mended_schema, prompt)[0]) & Counter(unsaid), (schema, prompt)
        told["schema"] += len(unsaid)
        for fault in found:
            pair = re.search(r"run together: '[^']*?([a-z]{6})[^']*'", fault.message)
            assert pair is None or pair[1] in glued(spelled), (schema, prompt, fault.message)
            if fault.fix:
                result = apply_edits(f"<prompt>{prompt}</prompt>", fault.fix)
                after = asked(schema, result[len("<prompt>") : -len("</prompt>")])
                told["fixes"] += 1
            elif advice := ADVICE.search(fault.message):
                after = asked(with_space(schema, *advice.groups()), prompt)
                told["advice"] += 1
            else:
                continue
            assert fault.message not in [one.message for one in after[1]], (schema, prompt, fault.message)
            assert pair is None or not glued(after[0])[pair[1]], (schema, prompt, fault.message)
    assert min(told[kind] for kind in ("schema", "fixes", "advice")) > draws(300) // 60, told
