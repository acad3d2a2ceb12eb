"""What is offered at a place of a document that is being typed: `|` stands for the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.document_index import Library
from app.lsp.completion import Completion, complete
from app.lsp.hover import hover
from app.lsp.occurrences import definition
from app.lsp.sizes import sizes, token_counter
from app.lsp.targets import target_at
from app.lsp.typing_place import typing_place
from app.lsp.view import View
from engine.base.errors import ModelError
from engine.pml import ROLES, parse_schema
from sample_schemas import samples
from tests.drawing import EVERY, draws

BESIDE = ("decide", "answer-format")
EMPTY = {"<decide": {"E202", "E213"}, "<answer-format": {"E202"}}  # faults of what is still empty
SCHEMA = """<schema name="travel">
  <system>You plan trips. 🗼</system>
  <user>
    <module name="trip">
      I go for <param name="days" len="5"/> with <param name="who" len="9" default="friends"/>.
      <union>
        <module name="domestic">By train.</module>
        <module name="overseas">
          By plane. <param name="line" len="3"/>
          <union><module name="tokyo">東京 🗼</module><module name="rome">Rome.</module></union>
        </module>
      </union>
    </module>
    <module name="budget">Cheap.<module name="notes">Spend little.</module></module>
    <module name="food"><module name="notes">Eat well.</module></module>
  </user>
</schema>
"""


def completed(folder: Path, text: str, name: str = "doc.pml") -> Completion | None:
    library = Library()
    library.hold(folder / "travel.pml", SCHEMA)
    document = library.hold(folder / name, text.replace("|", ""))
    return complete(library, document, text.index("|"))


def labels(folder: Path, text: str) -> list[str]:
    found = completed(folder, text)
    return [item.label for item in found.items] if found else []


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("<|", ["schema", "prompt"]),
        ("<!-- a comment --><|", ["schema", "prompt"]),
        ('<|<schema name="s">x</schema>', []),
        ('<schema name="s">x</schema><|', []),
        ('<schema name="s"><|', ["module", "union", "system", "user", "assistant", "scaffold", "include"]),
        ('<schema name="s"><user><|</user></schema>', ["module", "union", "include"]),
        ('<schema name="s"><module name="m">東京 🗼 <p|', ["module", "union", "param", "include"]),
        ('<schema name="s"><union><|', ["module"]),
        ('<schema name="s"><module name="m"> <|', ["module", "union", "param", "include", *ROLES]),
        ('<schema name="s"><module name="m"> <| x</module>', ["module", "union", "param", "include"]),
        ('<schema name="s"><union><module name="m"><user>x</user><|</module></union>', [*ROLES]),
        (
            '<schema name="s"><module name="m"><user><|</user></module>',
            ["module", "union", "include", "param"],
        ),
        ('<schema name="s"><module name="m"><module name="n"><|', ["module", "union", "param", "include"]),
        ('<schema name="s"><module name="m">x</|', ["module"]),
        ('<schema name="s"><module name="m">x</module></|', ["schema"]),
        ('<schema name="s"><module name="m" |', ["cache", "src", "xml:space"]),
        ('<schema name="s"><module | name="m">x</module>', ["cache", "src", "xml:space"]),
        ('<schema name="s"><module name="m" cache="|"', ["true", "false"]),
        ('<schema name="s"><module name="m"><param |', ["name", "len", "default", "scaffold", "xml:space"]),
        (
            '<schema name="s"><module name="m"><param name="a" length="3" |',
            ["default", "scaffold", "xml:space"],
        ),
        ('<schema name="s"><union scaffold="|"><module name="a">x</module></union></schema>', ["a"]),
        ('<schema name="s"><module name="a">x</module><scaffold modules="|"/></schema>', ["a"]),
        ('<schema name="s">text | and more</schema>', []),
        ('<schema name="s"><!-- <| -->', []),
        ('<schema name="s"><![CDATA[ <|', []),
    ],
)
def test_in_a_schema(tmp_path: Path, text: str, offered: list[str]) -> None:
    assert labels(tmp_path, text) == offered


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (
            '<prompt schema="travel">\n  <|',
            ["trip", "budget", "food", "domestic", "overseas", "tokyo", "rome", *ROLES, *BESIDE],
        ),
        (
            '<prompt schema="travel">\n  <trip><|',
            ["domestic", "overseas", 'arg name="days"', 'arg name="who"'],
        ),
        ('<prompt schema="travel"><trip days="2"><overseas><|', ["tokyo", "rome", 'arg name="line"']),
        (
            '<prompt schema="travel"><trip><overseas><rome/></overseas></trip><|',
            ["budget", "food", *ROLES, *BESIDE],
        ),
        (
            '<prompt schema="travel"><|<budget/></prompt>',
            ["trip", "food", *("domestic", "overseas", "tokyo", "rome"), *BESIDE],
        ),
        ('<prompt schema="travel"><user><|', []),
        ('<prompt schema="travel"><budget/><user>Where?</user><|</prompt>', [*ROLES, *BESIDE]),
        ('<prompt schema="travel"><trip><arg name="days"><|', []),
        ('<prompt schema="travel"><trip |', ["days", "who", "xml:space"]),
        ('<prompt schema="travel"><trip days="3" |/></prompt>', ["who", "xml:space"]),
        ('<prompt schema="travel"><trip><arg name="|', ["days", "who"]),
        ('<prompt schema="travel"><trip><overseas></|', ["overseas"]),
        ('<prompt schema="|"/>', ["travel"]),
        ("<prompt |", ["schema", "xml:space"]),
        ('<prompt schema="travel">Words | and more', []),
        ('<prompt schema="nowhere"><|', [*ROLES, *BESIDE]),
        ('<prompt schema="travel"><decide type="choice">Which?<|', ["option"]),
        ('<prompt schema="travel"><decide type="predicate">Warm?<|', []),
        ('<prompt schema="travel"><decide>Which?<|', ["option"]),
        ('<prompt schema="travel"><decide type="score">Hot?<option value="a"/><o|', ["option"]),
        ('<prompt schema="travel"><decide type="score" |>', ["name", "xml:space"]),
        ('<prompt schema="travel"><decide name="|', []),
        ('<prompt schema="travel"><decide type="score">Hot?</|', ["decide"]),
        ('<prompt schema="travel"><trip/><answer-format type="json"/><user>Hi</user><|', [*ROLES, "decide"]),
        ('<prompt schema="travel"><answer-format type="choice"><|', ["option"]),
        ('<prompt schema="travel"><answer-format |', ["type", "src", "xml:space"]),
        ('<prompt schema="travel"><answer-format type="|', ["json", "choice", "regex"]),
        ('<prompt schema="travel"><decide |', ["type", "name", "xml:space"]),
        ('<prompt schema="travel"><decide type="|', ["predicate", "choice", "score"]),
        ('<prompt schema="travel"><decide type="choice">Which?<option |', ["value", "xml:space"]),
    ],
)
def test_in_a_prompt(tmp_path: Path, text: str, offered: list[str]) -> None:
    assert labels(tmp_path, text) == offered


def test_required_attributes_are_written_too(tmp_path: Path) -> None:
    found = completed(tmp_path, '<prompt schema="travel"><|')
    assert found is not None
    trip, budget = (next(one for one in found.items if one.label == name) for name in ("trip", "budget"))
    assert (trip.plain, trip.snippet) == ('trip days=""></trip>', 'trip days="$1">$0</trip>')
    assert budget.plain == "budget></budget>"
    found = completed(tmp_path, '<prompt schema="travel"><trip><overseas><t|')
    assert found is not None
    assert found.items[0].plain == "tokyo/>"
    found = completed(tmp_path, '<schema name="s"><module name="m"><|')
    assert found is not None
    assert found.items[2].snippet == 'param name="$1" len="$2"/>'


def test_a_question_is_written_with_its_type_and_options(tmp_path: Path) -> None:
    for text, label, plain, snippet in (
        ("<|", "decide", 'decide type=""></decide>', 'decide type="$1">$0</decide>'),
        (
            '<decide type="choice">Which?<|',
            "option",
            'option value=""></option>',
            'option value="$1">$0</option>',
        ),
    ):
        found = completed(tmp_path, f'<prompt schema="travel">{text}')
        assert found is not None
        (item,) = (one for one in found.items if one.label == label)
        assert (item.plain, item.snippet) == (plain, snippet)
        assert item.detail


def test_a_tag_that_goes_on_gets_only_its_name(tmp_path: Path) -> None:
    for text in (
        '<prompt schema="travel"><tr| days="2"/></prompt>',
        '<prompt schema="travel"><tr|></prompt>',
    ):
        found = completed(tmp_path, text)
        assert found is not None
        assert found.items[0].plain == "trip"
        assert text.replace("|", "")[found.span.start : found.span.end] == "tr"


def test_paths_of_a_scaffold_are_completed_word_by_word(tmp_path: Path) -> None:
    text = SCHEMA.replace("</schema>", '<scaffold modules="trip trip/ov|"/></schema>')
    found = completed(tmp_path, text, "travel.pml")
    assert found is not None
    assert text.replace("|", "")[found.span.start : found.span.end] == "trip/ov"
    assert "trip/overseas" in [item.label for item in found.items]
    assert "trip" not in [item.label for item in found.items]


def test_files_of_the_folder_are_offered_to_src(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / ".hidden").write_text("x", encoding="utf-8")
    (tmp_path / "other.pml").write_text("<prompt/>", encoding="utf-8")
    assert labels(tmp_path, '<schema name="s"><module name="m" src="|') == ["notes.txt"]


def offered_and_written(folder: Path, text: str) -> list[str]:
    """The document after each of what is offered was chosen."""
    found = completed(folder, text)
    bare = text.replace("|", "")
    return (
        [bare[: found.span.start] + item.plain + bare[found.span.end :] for item in found.items]
        if found
        else []
    )


@pytest.mark.parametrize(
    "text",
    ['<schema name="s">a<|</schema>', '<schema name="s"><module name="m">a<|</module></schema>'],
)
def test_what_is_offered_in_a_schema_is_allowed_there(tmp_path: Path, text: str) -> None:
    for written in offered_and_written(tmp_path, text):
        codes = {found.code for found in parse_schema(written).diagnostics if found.severity == "error"}
        assert not codes & {"E104", "E105", "E106", "E203", "E205", "E206", "E207"}, written


@pytest.mark.parametrize(
    "text",
    [
        '<prompt schema="travel"><|</prompt>',
        '<prompt schema="travel"><budget/><trip><|</trip></prompt>',
        '<prompt schema="travel"><trip><overseas line="x"><rome/></overseas></trip><|</prompt>',
    ],
)
def test_what_is_offered_in_a_prompt_binds(tmp_path: Path, text: str) -> None:
    library = Library()
    library.hold(tmp_path / "travel.pml", SCHEMA)
    offered = offered_and_written(tmp_path, text)
    assert len(offered) >= 4
    for written in offered:
        found = library.diagnostics(library.hold(tmp_path / "doc.pml", written))
        empty = next((codes for tag, codes in EMPTY.items() if tag in written), set())
        assert {one.code for one in found if one.severity == "error"} == empty, written


@settings(max_examples=draws(100))
@given(st.text(alphabet="<>/=\"' \n!-[]CDATA東🗼abtripoverseas", max_size=60), st.data())
def test_nothing_that_is_typed_breaks_it(junk: str, data: st.DataObject) -> None:
    library = Library()
    library.hold(Path("/nowhere/travel.pml"), SCHEMA)
    for start in ('<prompt schema="travel"><trip>', '<schema name="s"><module name="m">', ""):
        text = start + junk
        offset = data.draw(st.integers(0, len(text)))
        document = library.hold(Path("/nowhere/doc.pml"), text)
        found = complete(library, document, offset)
        assert found is None or 0 <= found.span.start <= found.span.end == offset
        view = View(library, document)
        hover(view, offset, None)
        target = target_at(view, offset)
        if target is not None:
            assert target.span.start <= offset <= target.span.end or target.kind in ("param", "attribute")
            definition(view, target)
        typing_place(text, offset)


@pytest.mark.parametrize(
    "path",
    [one for sample in samples() for one in (sample.schema_path, *sample.prompts)][:: 1 if EVERY else 6],
    ids=lambda path: path.name,
)
def test_what_is_offered_anywhere_in_a_sample_brings_no_fault(path: Path) -> None:
    library, text = Library(), path.read_text(encoding="utf-8")
    places = [place for place, char in enumerate(text) if char == "<"]
    for place in places if ".prompt." in path.name else places[::9]:
        library.hold(path, text)
        typed = f"{text[:place]}<{text[place:]}"
        found = complete(library, library.hold(path, typed), place + 1)
        for item in found.items if found else ():
            written = typed[: place + 1] + item.plain + typed[place + 1 :]
            faults = library.diagnostics(library.imagined(path, written))
            codes = {one.code for one in faults if one.severity == "error"}
            assert codes <= {"E202", "E204", "E213"}, item.label  # of what is still empty


def said(folder: Path, text: str) -> str:
    library = Library()
    library.hold(folder / "travel.pml", SCHEMA)
    document = library.hold(folder / "doc.pml", text.replace("|", ""))
    found = hover(View(library, document), text.index("|"), None)
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '<prompt schema="travel"><tr|ip/></prompt>',
            [
                "trip",
                "I go for [days] with [who]",
                "days: at most 5 tokens",
                "at most 9 tokens, “friends” by default",
            ],
        ),
        (
            '<prompt schema="travel"><toky|o/></prompt>',
            ["trip/overseas/tokyo", "東京 🗼", "2 words, 4 characters"],
        ),
        ('<prompt schema="travel"><trip da|ys="2"/></prompt>', ["trip\ndays: at most 5 tokens"]),
        ('<prompt schema="travel"><trip><arg name="wh|o">x</arg></trip></prompt>', ["trip\nwho: at most 9"]),
        ('<prompt schema="tra|vel"/>', ["schema travel\ntravel.pml"]),
        ('<prompt schema="travel"><us|er>x</user></prompt>', ["<user>\na user turn"]),
        ('<schema name="s"><mod|ule name="m">x</module></schema>', ["<module>\nreusable text, cached once"]),
        (
            '<schema name="s"><module ca|che="true" name="m">x</module></schema>',
            ['cache\n"false": never stored'],
        ),
        ('<prompt schema="travel"><deci|de type="choice"/></prompt>', ["<decide>\na question"]),
        ('<prompt schema="travel"><decide ty|pe="choice"/></prompt>', ["type\npredicate, choice or score"]),
        ('<prompt schema="travel"><decide><opt|ion value="a"/></decide></prompt>', ["a possible answer"]),
        ('<prompt schema="travel"><decide><option va|lue="a"/></decide></prompt>', ["value\nthe label"]),
        ('<schema name="s">words | here</schema>', []),
    ],
)
def test_what_a_hover_says(tmp_path: Path, text: str, told: list[str]) -> None:
    found = said(tmp_path, text)
    assert [words for words in told if words not in found] == []
    assert bool(found) == bool(told)


def test_tokens_are_counted_by_the_tokenizer_of_a_model(tmp_path: Path) -> None:
    counter = token_counter("demo")
    tree = parse_schema(SCHEMA).tree
    assert tree is not None
    trip, tokyo, notes = (tree.module(path) for path in ("trip", "trip/overseas/tokyo", "food/notes"))
    assert trip is not None
    assert tokyo is not None
    assert notes is not None
    own, below = sizes(trip, counter), sizes(tokyo, counter)
    assert below.tokens == below.total == counter.count("東京 🗼")
    assert own.tokens is not None
    assert own.total is not None
    assert own.tokens >= 5 + 9
    assert own.total > own.tokens + below.tokens
    assert "tokens" in str(own)
    assert "with nested modules" in str(own)
    assert sizes(notes, None).tokens is None
    assert counter.count("\ud83d") == counter.count("?")


def test_a_model_without_a_tokenizer_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        token_counter(str(tmp_path))


def test_files_that_can_be_included_and_parameters_that_can_be_repeated_are_offered(tmp_path: Path) -> None:
    library = Library()
    library.hold(tmp_path / "rules.pml", '<schema name="r"><module name="brief">Be brief.</module></schema>')
    library.hold(tmp_path / "one.pml", "<prompt><brief/></prompt>")

    def offered(text: str) -> list[str]:
        document = library.hold(tmp_path / "main.pml", text.replace("|", ""))
        found = complete(library, document, text.index("|"))
        return [item.label for item in found.items] if found else []

    assert offered('<schema name="s"><include src="|"/></schema>') == ["rules.pml"]
    module = '<module name="m">x <param name="city" len="3"/> y <param name="|"/></module>'
    assert offered(f'<schema name="s">{module}</schema>') == ["city"]
