"""Named blocks: modules over either dialect, read in any order; and salts, which share nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from app.server.http.access import Access
from tests.app.server.served import LONG, Served, served

TEXTS = {"a": f"A. {LONG}", "b": f"B. {LONG} And more.", "c": f"C. {LONG} And still more."}


def parts(order: str, **more: Any) -> list[Any]:
    return [{"type": "text", "text": TEXTS[name], "module": name, **more} for name in order]


def counts(server: Served, dialect: str, content: list[Any], **more: Any) -> tuple[int, int, int]:
    """What a request read, wrote, and computed besides."""
    ask: dict[str, Any] = {"model": server.model, "max_tokens": 2, **more}
    question = {"role": "user", "content": [*content, {"type": "text", "text": "What of it?"}]}
    if dialect == "openai":
        usage = server.openai().chat.completions.create(messages=[question], temperature=0, **ask).usage
        details = usage.prompt_tokens_details
        read, written = details.cached_tokens, details.cache_write_tokens
        return read, written, usage.prompt_tokens - read - written
    body = {"temperature": 0, **ask.pop("extra_body", {})}
    usage = server.anthropic().messages.create(messages=[question], extra_body=body, **ask).usage
    return usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.input_tokens


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_modules_are_read_in_any_order_where_marks_are_not(tmp_path: Path, dialect: str) -> None:
    with served(tmp_path) as server:
        sizes = sum(server.engine.count_tokens(text) for text in TEXTS.values())
        read, written, rest = counts(server, dialect, parts("abc"))
        assert (read, written) == (0, sizes)
        read, written, again = counts(server, dialect, parts("cab"))
        assert (read, written, again) == (sizes, 0, rest)


@pytest.mark.parametrize(
    ("module", "param"),
    [
        ("not a name", "messages[0].content[0].module"),
        ({"names": "a"}, "messages[0].content[0].module"),
        (7, "messages[0].content[0].module"),
    ],
)
def test_a_name_that_is_none_is_refused(server: Served, module: Any, param: str) -> None:
    content: Any = [{"type": "text", "text": "x", "module": module}]
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": content}]
        )
    assert error.value.param == param


def test_a_name_beside_the_content_names_nothing(server: Served) -> None:
    turns: Any = [{"role": "user", "content": "x", "module": "a"}]
    with pytest.raises(openai.BadRequestError, match="Put it in a content block") as refused:
        server.openai().chat.completions.create(model=server.model, messages=turns)
    assert refused.value.param == "messages[0].module"
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0\.module: Put it in a content block"):
        server.anthropic().messages.create(model=server.model, max_tokens=1, messages=turns)


def test_an_item_has_no_module(server: Served) -> None:
    item = {"role": "user", "content": "Hello", "module": "a"}
    with pytest.raises(openai.BadRequestError, match="Put it in a content block") as refused:
        server.openai().responses.create(model=server.model, input=[item])  # type: ignore[list-item]
    assert refused.value.param == "input[0].module"


def test_the_assistant_has_no_modules(server: Served) -> None:
    turns: Any = [{"role": "user", "content": "x"}, {"role": "assistant", "content": parts("a")}]
    turns.append({"role": "user", "content": "y"})
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.1\.content\.0\.module"):
        server.anthropic().messages.create(model=server.model, messages=turns, max_tokens=1)


@pytest.mark.parametrize("modules", [True, False])
def test_salts_share_nothing(tmp_path: Path, modules: bool) -> None:
    content = parts("abc")
    if not modules:
        for part in content:
            del part["module"]
    with served(tmp_path) as server:
        counts(server, "openai", content, extra_body={"cache_salt": "mine"})
        assert counts(server, "openai", content, extra_body={"cache_salt": "yours"})[0] == 0
        assert counts(server, "openai", content)[0] == 0
        assert counts(server, "openai", content, extra_body={"cache_salt": "mine"})[0] > 400


def test_keys_share_nothing_where_they_are_isolated(tmp_path: Path) -> None:
    def read(server: Served, key: str) -> int:
        client = server.openai(api_key=key)
        asked: Any = [{"role": "user", "content": LONG}]
        usage = client.chat.completions.create(model=server.model, messages=asked, max_tokens=1).usage
        return int(usage.prompt_tokens_details.cached_tokens)

    with served(tmp_path, access=Access(keys=("one", "two")), isolate=True) as server:
        assert (read(server, "one"), read(server, "two")) == (0, 0)
        assert read(server, "one") > 64
