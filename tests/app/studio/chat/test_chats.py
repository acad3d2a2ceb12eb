"""Chats over a prompt: branches, forks, documents that change, a full window, and what is stored."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from app.studio.chat import answering
from app.studio.chat.answering import Answering
from app.studio.chat.store import ChatStore
from app.studio.chat.turns import Chat, new_exchange
from app.studio.database import FILE, UserDatabase
from app.studio.database.tables import migrations
from engine import Engine, PreparedPrompt
from engine.base.errors import PromptCacheError
from engine.pml import parse_prompt, parse_schema
from tests.app.studio.asked import Asked

SCHEMA = """<schema name="town">
  <system>Answer in one word.</system>
  <module name="tower"><user>Torlin has a tower.</user><assistant>I see.</assistant></module>
  <module name="lake"><user>Torlin has a lake.</user><assistant>I see.</assistant></module>
</schema>"""
PROMPT = '<prompt schema="town">\n  <tower/>\n  <user>What has Torlin?</user>\n</prompt>\n'
TEXTS = {"schema": SCHEMA, "prompt": PROMPT}
SETTINGS = {"max_new_tokens": 4, "reuse": "off"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Engine]:
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path_factory.mktemp("cache")) as engine:
        yield engine


@pytest.fixture
def studio(tmp_path: Path, engine: Engine) -> Asked:
    return Asked(tmp_path, engine=engine)


def ask(studio: Asked, key: str, question: str, **more: Any) -> dict[str, Any]:
    """Asks a question, waits for the answer, and returns the chat."""
    texts = {} if "id" in more else TEXTS
    told = studio.ask("ask_chat", {"key": key, "question": question, "settings": SETTINGS, **texts, **more})
    assert "error" not in told, told
    studio.ended(key)
    return studio.ask("open_chat", {"id": told["chat"]["id"]})  # type: ignore[no-any-return]


def turns(chat: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in chat["exchanges"]}


def test_each_turn_reads_the_earlier_ones_from_the_cache(studio: Asked) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    assert (chat["name"], chat["modules"], chat["question"]) == ("town", ["tower"], "What has Torlin?")
    first = turns(chat)["a"]
    assert (first["state"], first["message"], first["generated"]) == ("done", "", 4)
    assert first["answer"]
    second = turns(ask(studio, "b", "And the lake?", id=chat["id"], parent="a"))["b"]
    third = turns(ask(studio, "c", "And now?", id=chat["id"], parent="b"))["c"]
    whole = second["from_cache"] + second["computed"]
    assert third["from_cache"] >= whole - 40, "the turns before the last two were stored"
    assert first["from_cache"] == 0
    assert "The next answer reads" in first["unread"]
    assert third["unread"] == ""
    assert third["computed"] < whole
    assert third["ttft_ms"] > 0


def test_with_a_kl_limit_the_next_answer_reads_the_cache_on_a_condition(
    studio: Asked, engine: Engine
) -> None:
    schema = SCHEMA.replace("Torlin", "Aldar").replace("one word", "two")
    prompt = PROMPT.replace("<tower/>", "<tower/><lake/>")
    more = {"schema": schema, "prompt": prompt, "settings": {**SETTINGS, "reuse": "auto"}}
    chat = ask(studio, "a", "What has Torlin?", **more)
    assert turns(chat)["a"]["unread"].endswith("from the cache if the KL limit allows it.")
    (submission,) = engine.schema(schema).prompt(prompt).submissions(reuse="auto")
    assert submission.taken is not None
    engine.store.measured.count(submission.taken.combination, "town")
    engine.store.measured.note(submission.taken.combination, dict.fromkeys(range(5), 9.0))
    second = turns(ask(studio, "b", "And now?", id=chat["id"], parent="a", settings=more["settings"]))["b"]
    assert second["unread"] == "Not read from the cache: every method tried had a KL above 0.02."


def test_an_edited_turn_begins_a_branch_and_the_old_one_stays(studio: Asked) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    ask(studio, "b", "And the lake?", id=chat["id"], parent="a")
    edited = ask(studio, "c", "What else has Torlin?", id=chat["id"], parent="")
    assert edited["leaf"] == "c"
    assert turns(edited)["b"]["parent"] == "a"
    assert studio.ask("select_turn", {"id": chat["id"], "exchange": "a"})["leaf"] == "b"
    written = studio.ask("write_chat", {"id": chat["id"], "exchange": "c"})["prompt"]
    assert written == PROMPT.replace("What has", "What else has")


def test_a_fork_is_a_chat_of_its_own(studio: Asked) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    ask(studio, "b", "And the lake?", id=chat["id"], parent="a")
    fork = studio.ask("fork_chat", {"id": chat["id"], "exchange": "a"})
    assert list(turns(fork)) == ["a"]
    assert fork["leaf"] == "a"
    ask(studio, "c", "Why?", id=fork["id"], parent="a")
    listed = studio.ask("list_chats")["chats"]
    assert [(one["id"], one["turns"]) for one in listed] == [(fork["id"], 2), (chat["id"], 2)]
    studio.ask("delete_chat", {"id": fork["id"]})
    assert [one["title"] for one in studio.ask("list_chats")["chats"]] == ["What has Torlin? … And the lake?"]
    assert "no longer exists" in studio.ask("open_chat", {"id": fork["id"]})["error"]


def test_a_chat_goes_on_from_the_answer_of_a_run(studio: Asked) -> None:
    opening = {"answer": "A tower.", "model": "tiny", "ttft_ms": 12.5, "from_cache": 30, "computed": 4}
    chat = ask(studio, "a", "How high?", parent="opening", opening=opening)
    first = turns(chat)["opening"]
    assert (first["question"], first["answer"], first["ttft_ms"]) == ("What has Torlin?", "A tower.", 12.5)
    written = studio.ask("write_chat", {"id": chat["id"], "exchange": "a"})["prompt"]
    assert written == PROMPT.replace(
        "</prompt>", "  <assistant>A tower.</assistant>\n  <user>How high?</user>\n</prompt>"
    )


def test_another_studio_finds_the_chat_and_an_answer_that_was_cut_off(
    studio: Asked, tmp_path: Path, engine: Engine
) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    with ChatStore(studio.parts.database).changing(chat["id"]) as stored:
        stored.add(new_exchange("b", "a", "And the lake?", "tiny"))
    again = Asked(tmp_path, engine=engine)
    found = turns(again.ask("open_chat", {"id": chat["id"]}))
    assert (found["b"]["question"], found["b"]["state"]) == ("And the lake?", "stopped")
    refused = again.ask(
        "ask_chat", {"key": "c", "id": chat["id"], "parent": "b", "question": "Why?", "settings": SETTINGS}
    )
    assert refused["error"] == "The turn before has no answer. Ask it again first."


def test_an_answer_is_saved_while_it_arrives(studio: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[str] = []
    monkeypatch.setattr(answering, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(
        Answering, "_keep", lambda _, exchange: stored.append(f"{exchange['state']} {exchange['answer']}")
    )
    chat = studio.ask(
        "ask_chat", {"key": "a", "question": "Why?", **TEXTS, "settings": {**SETTINGS, "max_new_tokens": 40}}
    )
    whole = studio.ended("a")["result"]["answer"]
    assert chat["job"]["key"] == "a"
    assert len(stored) > 2
    assert stored[0].startswith("working ")
    assert stored[-1] == f"done {whole}"


def test_a_stopped_answer_keeps_what_came(studio: Asked) -> None:
    long = {**SETTINGS, "max_new_tokens": 20_000}
    chat = studio.ask("ask_chat", {"key": "a", "question": "Why?", **TEXTS, "settings": long})["chat"]
    while not studio.ask("job_state", {"key": "a"})["result"]["answer"]:
        time.sleep(0.01)
    studio.ask("stop_job", {"key": "a"})
    studio.ended("a")
    stopped = turns(studio.ask("open_chat", {"id": chat["id"]}))["a"]
    assert (stopped["state"], stopped["message"], bool(stopped["answer"])) == ("stopped", "", True)
    held = vars(studio.parts.jobs.find("a"))["_result"]
    assert not any(isinstance(one, PreparedPrompt) for one in vars(held).values()), "it would hold the model"
    after = ask(studio, "b", "And now?", id=chat["id"], parent="a")
    assert turns(after)["b"]["state"] == "done"


def test_the_documents_of_a_chat_are_opened_again(studio: Asked) -> None:
    chat = ask(studio, "a", "Why?")
    page = {"name": "mine", "schema": "<schema/>", "prompt": "<prompt/>", "settings": {"seed": 7}, "base": 0}
    opened = studio.ask("restore_chat", {"id": chat["id"], "page": page})["workspace"]
    assert (opened["name"], opened["schema"], opened["prompt"]) == ("town", SCHEMA, PROMPT)
    assert opened["settings"] == {"seed": 7}
    assert [one["name"] for one in studio.ask("shelf")["shelf"]] == ["mine"]


def test_a_chat_goes_on_with_other_documents(studio: Asked) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    other = {"schema": SCHEMA, "prompt": PROMPT.replace("tower", "lake").replace("What has", "Who likes")}
    moved = studio.ask("go_on_chat", {"id": chat["id"], **other})
    assert (moved["modules"], moved["of"] == chat["of"]) == (["lake"], False)
    ask(studio, "b", "Why?", id=chat["id"], parent="a")
    written = studio.ask("write_chat", {"id": chat["id"], "exchange": "b"})["prompt"]
    assert "<lake/>\n  <user>What has Torlin?</user>" in written
    refused = studio.ask("go_on_chat", {"id": chat["id"], "schema": SCHEMA, "prompt": written})
    assert "turns of the assistant already" in refused["error"]


def test_a_full_window_is_refused_with_a_sentence_and_nothing_is_stored(studio: Asked) -> None:
    chat = ask(studio, "a", "What has Torlin?")
    long = {"key": "b", "id": chat["id"], "parent": "a", "question": "x" * 40_000, "settings": SETTINGS}
    refused = studio.ask("ask_chat", long)["error"]
    assert refused.startswith("The chat is full: with this message it has 40,")
    assert "the model reads at most 32,767" in refused
    assert list(turns(studio.ask("open_chat", {"id": chat["id"]}))) == ["a"]


def test_documents_with_errors_and_empty_messages_are_refused(studio: Asked) -> None:
    wrong = {"schema": SCHEMA, "prompt": '<prompt schema="town"><towr/></prompt>'}
    assert "E402" in studio.ask("preview_chat", wrong)["error"]
    assert "E402" in studio.ask("ask_chat", {"key": "a", "question": "Why?", **wrong})["error"]
    assert "empty" in studio.ask("ask_chat", {"key": "a", "question": " \n", **TEXTS})["error"]
    assert studio.ask("list_chats")["chats"] == []


def test_the_turns_are_written_without_a_change_of_their_text() -> None:
    tree = parse_schema(SCHEMA).tree
    assert tree is not None
    question, answer = "Is 1 < 2 &\n    <tower/>\n    \n  right?", "</assistant> \x00\n\n  yes"
    chat = Chat("k", SCHEMA, PROMPT, "", "town")
    chat.add({**new_exchange("a", "", "What has Torlin?", ""), "answer": answer, "state": "done"})
    parsed = parse_prompt(chat.written(tree, chat.branch("a"), question))
    assert parsed.diagnostics == ()
    assert parsed.tree is not None
    texts = ["".join(part.text for part in turn.children) for turn in parsed.tree.children[1:]]  # type: ignore[union-attr]
    assert texts == ["What has Torlin?", answer.replace("\x00", "\ufffd"), question]


def test_the_table_is_added_to_a_database_of_an_earlier_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        db = Database(connection)
        migrations.apply(db, stop_before="create_chats")
        db.table("forms").insert({"page": "batch", "form": "{}"})
        connection.commit()
    database = UserDatabase(tmp_path)
    ChatStore(database).add(Chat("one", SCHEMA, PROMPT, "", "town"))
    assert [one["id"] for one in ChatStore(database).summaries()] == ["one"]
    with database.reading() as db:
        assert db.table("forms").count == 1
    assert database.notes == []


@pytest.mark.parametrize(
    ("schema", "prompt", "written"),
    [
        ("<module/>", "<prompt/>", "<prompt>\n  <user>Why?</user>\n</prompt>"),
        ("<module/>", "<prompt> What? </prompt>", "<prompt> Why? </prompt>"),
        ("<user>Say:</user>", "<prompt></prompt>", "<prompt>Why?</prompt>"),
        ("<system>Hi.</system>", "<prompt></prompt>", "<prompt><user>Why?</user></prompt>"),
    ],
)
def test_the_first_question_takes_the_place_of_the_one_in_the_prompt(
    schema: str, prompt: str, written: str
) -> None:
    tree = parse_schema(f'<schema name="s">{schema.replace("<module/>", "")}</schema>').tree
    assert tree is not None
    assert Chat("k", "", prompt, "", "s").written(tree, [], "Why?") == written


def test_the_least_recently_used_chats_are_deleted_first(tmp_path: Path) -> None:
    store = ChatStore(UserDatabase(tmp_path), most=2)
    for key in ("one", "two"):
        store.add(Chat(key, SCHEMA, PROMPT, "", "town"))
    with store.changing("one") as chat:
        chat.leaf = ""
    store.add(Chat("three", SCHEMA, PROMPT, "", "town"))
    assert [one["id"] for one in store.summaries()] == ["three", "one"]
    with pytest.raises(PromptCacheError, match="larger than"):
        ChatStore(UserDatabase(tmp_path), most_bytes=100).add(Chat("four", SCHEMA, PROMPT, "", "town"))
    assert len(store.summaries()) == 2


def test_a_key_that_is_taken_replaces_nothing(studio: Asked) -> None:
    chat = ask(studio, "k1", "Where?")
    for key, parent in (("k1", ""), ("k1", "k1"), ("", "k1"), ("opening", "")):
        sent = {"key": key, "id": chat["id"], "parent": parent, "question": "Again?", "settings": SETTINGS}
        assert "no key of its own" in studio.ask("ask_chat", sent)["error"]
    assert studio.ask("open_chat", {"id": chat["id"]})["exchanges"] == chat["exchanges"]


def test_turns_in_a_circle_end() -> None:
    one, two = new_exchange("k1", "k2", "a", "m"), new_exchange("k2", "k1", "b", "m")
    chat = Chat("c", "", "", "", "s", "k2", [one, two])
    with pytest.raises(PromptCacheError, match="no longer exists"):
        chat.branch("k2")
    assert chat.tip("k1") in ("k1", "k2")
    own = Chat(
        "c", "", "", "", "s", "k1", [new_exchange("k1", "k1", "a", "m"), new_exchange("", "k1", "b", "m")]
    )
    with pytest.raises(PromptCacheError, match="no longer exists"):
        own.branch("k1")
    assert own.tip("") == ""
