"""What the figures know of each request: its tokens, its times, who asked, and why it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.server.core.metrics import Figures, Request
from app.server.http.access import Access, name_of
from engine.base.errors import PromptCacheError
from tests.app.server.raw import eventually
from tests.app.server.served import LONG, Served, served

KEY = "a key of some length"
FAULTY = '<schema name="x"><b/></schema>'


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for a key."""
    with served(tmp_path_factory.mktemp("keyed"), access=Access(("other", KEY))) as running:
        yield running


class Noted:
    """The requests that have come since, in their order."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._before = figures.since(0)[0]

    def all(self) -> list[Request]:
        """Each when it is over."""
        eventually(lambda: all(one.seconds for one in self._now()), "all requests are over")
        return self._now()

    def _now(self) -> list[Request]:
        return self._figures.since(self._before)[1]


@pytest.fixture
def noted(keyed: Served) -> Noted:
    return Noted(keyed.service.figures)


def ask(server: Served, **more: Any) -> Any:
    body = {"model": server.model, "messages": [{"role": "user", "content": LONG}], "max_tokens": 3, **more}
    return server.openai(api_key=KEY).chat.completions.create(**body, temperature=0)


def test_an_answer_is_told_with_its_tokens_and_who_asked(keyed: Served, noted: Noted) -> None:
    usage = ask(keyed).usage
    first = noted.all()[0]
    assert (first.path, first.dialect, first.model) == ("/v1/chat/completions", "openai", keyed.model)
    assert (first.status, first.outcome, first.sentence) == (200, "done", "")
    assert first.client == name_of(KEY) != KEY
    assert first.usage is not None
    assert (first.usage.prompt, first.usage.generated) == (usage.prompt_tokens, usage.completion_tokens)
    assert first.ttft_ms is not None
    assert 0 < first.ttft_ms <= first.seconds * 1000
    list(ask(keyed, stream=True))
    second = noted.all()[1]
    assert (second.status, second.outcome, second.number) == (200, "done", first.number + 1)
    assert second.usage is not None
    assert second.usage.read > 0


def test_what_is_refused_is_told_with_its_sentence(keyed: Served, noted: Noted) -> None:
    with pytest.raises(openai.AuthenticationError):
        keyed.openai(api_key="wrong").chat.completions.create(model="m", messages=[])
    with pytest.raises(openai.NotFoundError):
        ask(keyed, model="nobody")
    with pytest.raises(openai.BadRequestError):
        ask(keyed, extra_body={"prompt_cache": {"schema": FAULTY}})
    with pytest.raises(anthropic.BadRequestError):
        keyed.anthropic(api_key=KEY).messages.create(model=keyed.model, messages=[], max_tokens=1)
    with pytest.raises(openai.BadRequestError):
        ask(keyed, max_tokens="many")
    found = noted.all()
    assert [(one.status, one.outcome) for one in found] == [
        (401, "refused"),
        (404, "refused"),
        (400, "refused"),
        (400, "refused"),
        (400, "refused"),
    ]
    said = [one.sentence for one in found]
    assert "API key is missing or unknown" in said[0]
    assert (found[0].client, found[1].model) == ("", "nobody")
    assert "There is no model 'nobody' here" in said[1]
    assert "E205" in said[2]
    assert "There are no messages" in said[3]
    assert said[4] == "max_tokens must be a whole number, not the text 'many'."
    assert found[3].dialect == "anthropic"


@pytest.mark.parametrize(
    ("path", "changes", "sentence"),
    [
        (
            "messages",
            {"thinking": {"type": "enabled"}},
            "thinking: It is not supported here: the model does not think",
        ),
        ("messages", {"max_tokens": "5"}, "max_tokens: It must be a whole number, not the text '5'."),
        (
            "systemone",
            {"state": "Hi", "questions": {"a": {"type": "noul"}}},
            "questions.a: The question has no",
        ),
        ("chat/completions", {"best_of": 2}, "best_of is not supported here: a request has one answer"),
        ("chat/completions", {"stop": ["a"] * 5}, "stop: There are 5 texts; the maximum is 4."),
        (
            "chat/completions",
            {"max_tokens": "5"},
            "max_tokens must be a whole number, not the text '5'.",
        ),
    ],
)
def test_a_field_is_named_once(
    keyed: Served, noted: Noted, path: str, changes: dict[str, Any], sentence: str
) -> None:
    body = {"model": keyed.model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, **changes}
    assert httpx.post(f"{keyed.url}/v1/{path}", json=body, headers={"x-api-key": KEY}).status_code >= 400
    assert noted.all()[0].sentence.startswith(sentence)


def test_of_all_else_only_what_is_refused_is_listed(keyed: Served, noted: Noted) -> None:
    with httpx.Client(base_url=keyed.url, headers={"x-api-key": KEY}) as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/health").status_code == 200
        assert client.post("/v1/v1/chat/completions", json={}).status_code == 404
        assert client.get("/v1/completions").status_code == 405
    eventually(lambda: len(noted.all()) == 2, "both are listed")
    assert [(one.path, one.status) for one in noted.all()] == [
        ("/v1/v1/chat/completions", 404),
        ("/v1/completions", 405),
    ]


def test_a_stream_that_breaks_off_says_why(
    keyed: Served, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise PromptCacheError("The disk is full.")

    monkeypatch.setattr(Request, "first", broken)
    with pytest.raises(openai.APIError):
        list(ask(keyed, stream=True))
    one = noted.all()[0]
    assert (one.status, one.outcome, one.sentence) == (200, "ended", "The disk is full.")


def test_a_list_of_changes_is_bounded_and_tells_each_once() -> None:
    figures = Figures()
    assert figures.since(0) == (0, [])
    for _ in range(600):
        figures.listed(figures.came("/v1/completions" * 100, "openai"))
    last, all_of_them = figures.since(0)
    assert len(all_of_them) == 500
    assert [one.number for one in all_of_them] == list(range(101, 601))
    assert len(all_of_them[0].path) == 200
    assert figures.since(last) == (last, [])
    all_of_them[7].asks("m" * 1000)
    after, (changed,) = figures.since(last)
    assert (changed, after > last, len(changed.model)) == (all_of_them[7], True, 200)
