"""Searching a schema: what is found, that the index is whole or made anew, and the prompt of a question."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.engine import Engine
from engine.pml import Schema, bind, has_errors, parse_prompt, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.conversation import conversation
from engine.prompt.conversation.question import ask, choose, narrowed
from engine.prompt.conversation.search import FOLDER, SearchIndex, forget, query
from engine.store import Store
from tests.drawing import EVERY
from tests.engine.cases import model_of

SOURCE = """<schema name="docs"><system>Answer from the documents.</system><user>
<module name="guide">All about it.
  <module name="install">Run the installer, then restart the machine.</module>
  <module name="faq">Why is it slow? Because the disk is full. Don't panic.</module>
</module>
<union><module name="french">Bonjour, monde.</module><module name="german">Guten Tag, monde.</module></union>
<module name="tokyo">東京の天気は晴れです。</module>
<module name="api">Call read_text_file with NEAR and "quotes" - or * stars.</module>
</user></schema>"""


def schema(source: str = SOURCE) -> Schema:
    parsed = parse_schema(source)
    assert parsed.tree is not None
    assert parsed.ok, parsed.diagnostics
    return parsed.tree


def found(question: str, tree: Schema | None = None) -> list[str]:
    with SearchIndex.of(tree or schema()) as index:
        return [hit.path for hit in index.search(question)]


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("How do I install it?", "guide/install"),
        ("restarting machines", "guide/install"),
        ("why so SLOW", "guide/faq"),
        ("東京の天気は？", "tokyo"),
        ("what does read_text_file do", "api"),
        ('NEAR("quotes", 3)', "api"),
    ],
)
def test_the_best_module_comes_first(question: str, best: str) -> None:
    assert found(question)[0] == best


@pytest.mark.parametrize("question", ["", "?", '"', "*", "zebra", "-", "(((", "name:", "^", "XOR"])
def test_questions_that_find_nothing(question: str) -> None:
    assert found(question) == []


@settings(max_examples=150 if EVERY else 12, deadline=None)
@given(st.text(st.sampled_from("\"*-+^:(){}[]NEAROTDa東 \n\\';%_.\x00é"), max_size=30) | st.text(max_size=30))
def test_no_sign_in_a_question_is_a_command(question: str) -> None:
    with SearchIndex.of(schema()) as index:
        index.search(question)
    assert all(one.startswith('"') and one.endswith('"') for one in query(question).split(" OR ") if one)


def test_what_is_kept_is_used_and_what_is_damaged_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = schema()
    with SearchIndex.of(tree, tmp_path) as index:
        wanted = index.search("slow disk")
        assert index.keep(tmp_path)
    (path,) = (tmp_path / FOLDER).iterdir()
    data = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(
            "engine.prompt.conversation.search._built", lambda entries: pytest.fail("it was built again")
        )
        with SearchIndex.of(tree, tmp_path) as index:
            assert index.search("slow disk") == wanted
    for damaged in (b"", data[:50], data[:-1], data[:200] + b"\0" * 20 + data[220:], b"x" * 4096):
        path.write_bytes(damaged)
        with SearchIndex.of(tree, tmp_path) as index:
            assert index.search("slow disk") == wanted
            assert index.keep(tmp_path)
        assert path.read_bytes() == data
    assert forget(tmp_path) == 1


def test_a_text_that_changed_has_an_index_of_its_own(tmp_path: Path) -> None:
    for source in (SOURCE, SOURCE.replace("disk is full", "zebra is full")):
        with SearchIndex.of(schema(source), tmp_path) as index:
            assert bool(index.search("zebra")) == ("zebra" in source)
            index.keep(tmp_path)
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_the_oldest_of_many_go(tmp_path: Path) -> None:
    for number in range(20):
        with SearchIndex.of(schema(SOURCE.replace("slow", f"slow{number}")), tmp_path) as index:
            index.keep(tmp_path)
    assert len(list((tmp_path / FOLDER).iterdir())) == 16


def test_a_link_in_the_place_of_an_index_is_not_followed(tmp_path: Path) -> None:
    tree = schema()
    with SearchIndex.of(tree, tmp_path) as index:
        index.keep(tmp_path)
    (path,) = (tmp_path / FOLDER).iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with SearchIndex.of(tree, tmp_path) as index:
        assert index.search("slow")
        assert index.keep(tmp_path)
    assert not path.is_symlink()


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file", encoding="utf-8")
    with SearchIndex.of(schema(), tmp_path) as index:
        assert not index.keep(tmp_path)
        assert index.search("slow")
    with SearchIndex.of(schema(), tmp_path / "none") as index:
        assert not index.keep(tmp_path / "none")


def _keeps(folder: str) -> int:
    kept = 0
    for number in range(30):
        with SearchIndex.of(schema(SOURCE.replace("slow", f"slow{number % 3}")), Path(folder)) as index:
            kept += index.keep(Path(folder)) and bool(index.search("disk"))
            if number % 7 == 0:
                forget(Path(folder))
    return kept


@pytest.mark.long
def test_two_processes_keep_indexes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_keeps, [str(tmp_path)] * 2) == [30, 30]


def test_a_library_without_full_text_search_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.prompt.conversation.search._TOKENIZER", "no such tokenizer")
    with pytest.raises(Exception, match="SQLite of this Python cannot search"):
        SearchIndex.of(schema())
    assert sqlite3.sqlite_version


# The prompt of a question


def spelled(tree: Schema, paths: tuple[str, ...], question: str) -> list[tuple[str | None, str]]:
    asked = ask(tree, paths, question)
    again = parse_prompt(write_prompt(asked.prompt))
    assert again.tree is not None
    told = []
    for side in (tree, asked.schema, schema(write_schema(asked.schema))):
        bound = bind(side, again.tree)
        assert not has_errors(bound.diagnostics)
        told.append([(one.role, one.text) for one in conversation(bound.parts)])
    assert told[0] == told[1] == told[2]
    return told[0]


def test_a_question_stands_behind_its_modules() -> None:
    (_, (role, text)) = spelled(schema(), ("guide/faq", "api"), "Why?")
    assert role == "user"
    assert text.startswith("All about it.")
    assert "Because the disk" in text
    assert "installer" not in text
    assert text.endswith("stars.\n\nWhy?")


def test_the_order_is_that_of_the_rank() -> None:
    (_, (_, text)) = spelled(schema(), ("api", "tokyo", "guide/install"), "Why?")
    assert text.index("stars") < text.index("東京") < text.index("installer")


def test_a_question_gets_a_turn_of_its_own_where_the_last_is_no_users() -> None:
    tree = schema(
        '<schema name="s"><user><module name="a">A</module></user><assistant>B</assistant></schema>'
    )
    assert spelled(tree, ("a",), "Why?")[-1] == ("user", "Why?")


def test_of_a_union_one_member_is_chosen() -> None:
    assert choose(schema(), ["german", "french", "api"], 5) == ("german", "api")


def test_a_budget_passes_over_what_does_not_fit() -> None:
    tree = schema()
    ranked = ["guide/install", "api", "german"]
    assert choose(tree, ranked, 5, budget=40, count=len) == ("german",)
    assert choose(tree, ranked, 5, budget=1000, count=len) == tuple(ranked)
    assert choose(tree, ranked, 1) == ("guide/install",)


def test_a_narrow_schema_has_no_other_texts_of_modules() -> None:
    narrow = narrowed(schema(), ["guide/faq", "german"])
    own = {
        one.path: "".join(getattr(child, "text", "") for child in one.children) for one in narrow.modules()
    }
    assert [path for path, text in own.items() if text.strip()] == ["guide", "guide/faq", "german"]
    assert narrow.union_of("german") is not None


def test_segments_are_those_of_the_whole_schema_in_any_order(tmp_path: Path) -> None:
    tree = schema(SOURCE.replace("<union>", "Between. <union>"))
    pages = ("guide/faq", "guide/install", "tokyo", "api")
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        engine.schema(tree).encode()
        for paths in (pages, pages[::-1], pages[1:3]):
            asked = ask(tree, paths, "Why?")
            answer = engine.schema(asked.schema).prompt(asked.prompt).answer(max_new_tokens=2)
            tokens = answer.to_json()["tokens"]
            assert tokens["encoded"] == 0
            assert tokens["from_cache"] > 0


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("inst", "guide/install"),
        ("xyzzy", None),
        ("slow bonj", "french"),
        ("read_te", "api"),
        ("東", "tokyo"),
    ],
)
def test_a_word_that_is_being_typed_is_found_by_its_beginning(typed: str, path: str | None) -> None:
    with SearchIndex.of(schema()) as index:
        paths = [hit.path for hit in index.search(typed, typing=True)]
        assert paths == [] if path is None else path in paths
        assert "guide/install" not in [hit.path for hit in index.search("inst")]


@pytest.mark.parametrize("word", ["running", "generally", "universal", "İstanbul", "größen", "restarting"])
def test_every_beginning_of_a_word_finds_it(word: str) -> None:
    tree = schema(f'<schema name="s"><module name="m">Some {word} here.</module></schema>')
    with SearchIndex.of(tree) as index:
        for end in range(2, len(word) + 1):
            assert index.search(word[:end], typing=True), word[:end]


@given(st.text(max_size=30))
def test_nothing_that_is_typed_is_a_command(typed: str) -> None:
    with SearchIndex.of(schema()) as index:
        index.search(typed, typing=True)
