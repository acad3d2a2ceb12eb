"""What a model reads, as the page gets it: places in UTF-16, and a sentence where there is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from engine import Engine
from engine.store import Store
from tests.app.studio.asked import Asked
from tests.engine.tiny import tiny_model

SCHEMA = (
    '<schema name="s"><user>Go 🦀. <module name="a">one 🦀 <param name="p" len="60"/></module>'
    '<module name="b">Two</module></user></schema>'
)
PROMPT = '<prompt schema="s"><a p="🦀 x"/> So 🦀?<b/></prompt>'


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("reads")
    engine = Engine(tiny_model(chat=True), Store.open(folder / "cache"))
    yield Asked(folder, engine=engine)
    engine.close()


def reads(asked: Asked, schema: str = SCHEMA, prompt: str = PROMPT, **more: Any) -> Any:
    answer = asked.ask("read_prompt", {"schema": schema, "prompt": prompt, **more})
    TypeAdapter(asked.endpoints["read_prompt"].answer).validate_python(answer)
    return answer


def wide(text: str, start: int, end: int) -> str:
    """What the editor finds between two places."""
    return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le")


def test_places_count_as_the_editor_counts(asked: Asked) -> None:
    documents = {"schema": SCHEMA, "prompt": PROMPT}
    found = reads(asked, borders=True)
    places = [
        (one["author"], wide(documents[one["document"]], one["at"], one["end"]))
        for one in found["passages"]
        if one["document"] and not one["seam"]
    ]
    assert places == [
        ("anonymous", "Go 🦀."),
        ("module", "one 🦀"),
        ("argument", 'p="🦀 x"'),
        ("text", "So 🦀?"),
        ("module", "Two"),
    ]
    for one in found["passages"]:
        length = len(one["text"].encode("utf-16-le")) // 2
        assert all(0 <= border < length for border in one["borders"])
        assert {wide(one["text"], *place) for place in one["specials"]} <= {"<s>", "</s>"}


def test_a_module_has_the_tier_that_the_prompt_reads(asked: Asked) -> None:
    schema = SCHEMA.replace("Two", "Zwei").replace(
        '<module name="b"', '<module name="c">Three</module><module name="b"'
    )
    asked.parts.engine.schema(schema).encode(scope="preceding")
    sent = {"schema": schema, "settings": {"scope": "preceding"}}
    found = asked.ask("measure", {**sent, "prompt": "<prompt><a p='x'/><b/></prompt>"})
    pieces = {one["path"]: one["cached"] for one in found["strip"]["pieces"] if one["kind"] == "module"}
    tiers = {path: size["cached"] for path, size in found["sizes"].items()}
    assert pieces == {"a": "memory", "b": "none"}
    assert tiers == {**pieces, "c": "memory"}, "as with all modules for one that the prompt does not read"


def test_it_says_what_is_read_from_where(asked: Asked) -> None:
    before = {one["path"]: one for one in reads(asked)["passages"]}
    assert (before["b"]["cached"], before["b"]["borders"]) == ("none", None)
    asked.parts.engine.schema(SCHEMA).encode()
    after = {one["path"]: one for one in reads(asked)["passages"]}
    assert after["b"]["cached"] == "memory"
    assert after["b"]["bytes"] == after["b"]["tokens"] * asked.parts.engine.model.bytes_per_token
    assert after["b"]["sees"] > 0
    alone = {one["path"]: one for one in reads(asked, settings={"scope": "isolated"})["passages"]}
    assert (alone["b"]["sees"], alone["b"]["cached"]) == (0, "none")
    assert (after["a:p"]["cached"], after["a:p"]["bytes"], after["a:p"]["sees"]) == (None, 0, 0)


def test_where_parts_touch_it_says_so(asked: Asked) -> None:
    met = [one["meets"] for one in reads(asked)["passages"] if one["meets"]]
    assert met == ["words run together: 'So 🦀?Two'; put a line break between them"]


@pytest.mark.parametrize(
    ("schema", "prompt", "code"),
    [
        ("<schema", PROMPT, "E"),
        (SCHEMA, "<prompt", "E"),
        (SCHEMA, '<prompt schema="s"><c/></prompt>', "E402"),
        (SCHEMA, f'<prompt schema="s"><a p="{"x " * 99}"/></prompt>', "E501"),
    ],
)
def test_texts_with_an_error_are_answered_with_it(asked: Asked, schema: str, prompt: str, code: str) -> None:
    found = reads(asked, schema, prompt)
    assert found["passages"] is None
    assert found["fault"].startswith(code)
