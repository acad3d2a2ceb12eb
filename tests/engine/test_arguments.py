"""What is given or asked and cannot be is refused in words, also once the engine is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Answer, Engine, FirstToken, PromptError, RunSettings, SettingsError
from engine.base.errors import ClosedError, PathError, PromptCacheError
from engine.inference.step_lock import Computing
from engine.prepared import PreparedPrompt
from engine.store import Store
from tests.engine.cases import model_of

SCHEMA = (
    '<schema name="s"><user>Go. <module name="a">one</module><module name="b">two</module></user></schema>'
)
PROMPT = '<prompt schema="s"><a/><b/><user>So?</user></prompt>'
ANY: Any = None  # an argument of a type that the signature forbids


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "store")) as opened:
        yield opened


@pytest.fixture
def prompt(engine: Engine) -> PreparedPrompt:
    return engine.schema(SCHEMA).prompt(PROMPT)


CHOICES: dict[str, Callable[[Engine, PreparedPrompt, Any], object]] = {
    "encode": lambda engine, prompt, word: prompt.schema.encode(scope=word),
    "layout": lambda engine, prompt, word: prompt.schema.layout(scope=word),
    "check of a schema": lambda engine, prompt, word: prompt.schema.check(scope=word),
    "check of a prompt": lambda engine, prompt, word: prompt.check(scope=word),
    "its placement": lambda engine, prompt, word: prompt.check(placement=word),
    "check of a text": lambda engine, prompt, word: engine.check(SCHEMA, scope=word),
    "placement": lambda engine, prompt, word: engine.placement(word),
    "answer": lambda engine, prompt, word: prompt.answer(scope=word),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("word", ["isolate", "", None, 3])
def test_a_word_that_is_no_choice_is_refused(
    engine: Engine, prompt: PreparedPrompt, name: str, word: object
) -> None:
    with pytest.raises(SettingsError, match="must be one of"):
        CHOICES[name](engine, prompt, word)
    assert engine.store.segments() == []


def test_a_folder_and_a_model_are_named_by_text_or_path(tmp_path: Path) -> None:
    demo = Path(__file__).resolve().parents[2] / "assets" / "demo_model"
    with Engine.open(demo, cache_dir=str(tmp_path / "store")) as engine:
        assert engine.model.name == str(demo)
    assert (tmp_path / "store").is_dir()


@pytest.mark.parametrize("memory", ["1GiB", -1, 1.5, True, None])
def test_memory_is_a_number_of_bytes(tmp_path: Path, memory: Any) -> None:
    with pytest.raises(SettingsError, match="whole number of bytes"):
        Engine.open("demo", cache_dir=tmp_path / "store", memory=memory)


def test_settings_that_are_a_dictionary_are_refused(prompt: PreparedPrompt) -> None:
    wrong: Any = {"max_new_tokens": 5}
    for ask in (prompt.answer, prompt.plan, prompt.fidelity, lambda given: list(prompt.stream(given))):
        with pytest.raises(SettingsError, match="must be RunSettings"):
            ask(wrong)


@pytest.mark.parametrize("given", ["text" * 99, None, 5, Path("prompt.pml")], ids=type)
def test_what_is_no_prepared_prompt_is_not_submitted(
    engine: Engine, prompt: PreparedPrompt, given: Any
) -> None:
    words = r"^prompt is .{1,40}; it must be a prepared prompt: schema\.prompt\("
    with pytest.raises(SettingsError, match=words):
        engine.submit(given)
    found = dict(engine.answer_all([given, prompt], max_new_tokens=1))
    assert isinstance(found[1], Answer), "a fault ends one prompt only"
    with pytest.raises(SettingsError, match=words):
        raise found[0]  # type: ignore[misc]


@pytest.mark.parametrize("given", ["abc", b"abc", None, 5])
def test_what_is_no_series_of_prompts_is_refused(engine: Engine, prompt: PreparedPrompt, given: Any) -> None:
    for wrong in (given, prompt):
        with pytest.raises(SettingsError, match="it must be an iterable of prepared prompts, such as"):
            engine.answer_all(wrong)


def test_one_stop_text_is_given_in_a_list() -> None:
    wrong: Any = "Day"
    with pytest.raises(SettingsError, match="a list of texts"):
        RunSettings(stop=wrong)


@pytest.mark.parametrize("source", [5, b"<schema/>", None, ["<schema/>"]])
def test_a_document_of_another_type_is_refused(engine: Engine, prompt: PreparedPrompt, source: Any) -> None:
    with pytest.raises(TypeError, match=f"the schema must be PML text.*not {type(source).__name__}"):
        engine.schema(source)
    with pytest.raises(TypeError, match=f"the prompt must be PML text.*not {type(source).__name__}"):
        prompt.schema.prompt(source)


def test_a_tree_of_the_other_kind_is_refused(prompt: PreparedPrompt) -> None:
    tree: Any = prompt.schema.tree
    with pytest.raises(TypeError, match="not Schema"):
        prompt.schema.prompt(tree)


def test_the_name_of_a_file_is_no_document(engine: Engine, prompt: PreparedPrompt) -> None:
    for read in (engine.schema, prompt.schema.prompt, engine.check):
        with pytest.raises(PathError, match=r"Give Path\('travel\.pml'\)"):
            read("travel.pml")
    with pytest.raises(PromptError):
        engine.schema("Look at travel.pml for more")


def test_nouns_say_what_they_are(engine: Engine, prompt: PreparedPrompt) -> None:
    assert repr(prompt.schema) == "<PreparedSchema 's'>"
    assert repr(prompt) == "<PreparedPrompt over 's'>"
    assert "on cpu" in repr(engine)


@pytest.mark.parametrize("warm", [False, True])
def test_an_answer_under_way_ends_with_its_engine(engine: Engine, prompt: PreparedPrompt, warm: bool) -> None:
    if warm:
        prompt.answer(max_new_tokens=2)
    events = prompt.stream(max_new_tokens=20)
    first = next(events)
    assert isinstance(first, FirstToken) is warm
    engine.close()
    with pytest.raises(ClosedError):
        list(events)
    engine.close()


def test_what_asks_the_store_is_refused_by_a_closed_engine(engine: Engine, prompt: PreparedPrompt) -> None:
    engine.close()
    for ask in (prompt.plan, prompt.answer, prompt.schema.layout, prompt.schema.encode, prompt.fidelity):
        with pytest.raises(ClosedError):
            ask()
    assert engine.count_tokens("one") > 0
    assert not [found for found in prompt.check() if found.severity == "error"]


def test_an_answer_that_others_close_in_between_ends_in_words(engine: Engine, prompt: PreparedPrompt) -> None:
    ends: list[BaseException | None] = []

    def answer() -> None:
        try:
            for _ in range(200):
                prompt.answer(max_new_tokens=3)
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    threads = [threading.Thread(target=answer) for _ in range(3)]
    for thread in threads:
        thread.start()
    prompt.answer(max_new_tokens=1)
    engine.close()
    for thread in threads:
        thread.join()
    assert [type(end) for end in ends] == [ClosedError] * 3
    assert all(isinstance(end, PromptCacheError) for end in ends)


def test_closing_waits_for_the_step_that_runs() -> None:
    computing, order = Computing(), []
    running, go_on = threading.Event(), threading.Event()

    def work() -> Any:
        running.set()
        go_on.wait(30)
        order.append("step")
        yield "one"
        order.append("never")

    def read() -> None:
        with pytest.raises(ClosedError):
            list(computing.steps(work(), "cached"))

    reader = threading.Thread(target=read)
    reader.start()
    running.wait(30)
    closer = threading.Thread(target=lambda: (computing.close(), order.append("closed")))
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    go_on.set()
    closer.join(30)
    reader.join(30)
    assert order == ["step", "closed"]
