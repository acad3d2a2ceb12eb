"""TypeSafe's own client asks questions about a state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.server.served import LONG, Served

typesafe_sdk: Any = pytest.importorskip("typesafe_sdk")
models: Any = pytest.importorskip("typesafe_sdk._schemas.models")

QUESTIONS = {
    "cold": {"type": "noul", "instructions": "Is it cold?", "criteria": {"true": "below 10 degrees"}},
    "month": {"type": "choice", "criteria": {"April": None, "May": {"days": 31}}},
    "bright": {"type": "score", "instructions": {"rate": "light"}, "criteria": ["dark", "grey", "bright"]},
}


def test_each_kind_of_question_gets_its_answer(server: Served) -> None:
    with typesafe_sdk.TypeSafeClient(api_key="none", base_url=server.url) as client:
        state = {"novel": LONG, "year": 1984}
        told = client.system_one(state=state, questions=QUESTIONS, model="alias")
        again = client.system_one(state=dict(reversed(state.items())), questions=QUESTIONS, model="alias")
    assert told.model == "alias"
    assert 0 < told.nouls["cold"].noul < 1
    month, bright = told.choices["month"], told.scores["bright"]
    assert month.confidence == month.probabilities[month.choice] == max(month.probabilities.values())
    assert bright.legend == {0: "dark", 1: "grey", 2: "bright"}
    assert bright.score == pytest.approx(sum(level * p for level, p in bright.probabilities.items()))
    assert told.usage.output_tokens == 0
    usage = again.raw_http_response.json()["usage"]
    assert usage["cached_tokens"] > len(LONG)


@pytest.mark.parametrize(
    ("changes", "place", "says"),
    [
        (
            {"questions": {"m": {"type": "choice", "criteria": {"May": None}}}},
            "questions m criteria",
            "1 option;",
        ),
        ({"questions": {"m": {"type": "score", "criteria": "high"}}}, "questions m criteria", "a list"),
        ({"questions": {"m": {"type": "noul"}}}, "questions m", "no instructions"),
        ({"questions": {"m": {"type": "box"}}}, "questions m type", "it must be"),
        ({"questions": {}}, "questions", "0 questions"),
        ({"state": ["", " "]}, "state", "no text"),
        ({"readout": {"permutations": 99}}, "readout permutations", "at most 64"),
        ({"stream": True}, "stream", "not supported"),
    ],
)
def test_an_invalid_request_is_unprocessable(server: Served, changes: Any, place: str, says: str) -> None:
    body = {"model": "alias", "state": "Snow.", "questions": QUESTIONS, **changes}
    answer = server.http.post("/v1/systemone", json=body)
    assert answer.status_code == 422, answer.text
    (detail,) = models.HTTPValidationError.model_validate(answer.json()).detail
    assert detail.loc == ["body", *place.split()]
    assert says in detail.msg


def test_the_client_lists_the_model(server: Served) -> None:
    with typesafe_sdk.TypeSafeClient(api_key="none", base_url=server.url) as client:
        names = [model.name for model in client.models.list().models]
    assert names == [model.id for model in server.openai().models.list()]
    assert "alias" in names


def test_the_client_reports_errors(server: Served) -> None:
    one = {"m": {"type": "choice", "criteria": {"May": None}}}
    with typesafe_sdk.TypeSafeClient(api_key="none", base_url=server.url) as client:
        with pytest.raises(
            typesafe_sdk.TypeSafeUnprocessableEntityError, match=r"questions\.m\.criteria: The"
        ):
            client.system_one(state="Snow.", questions=one, model="alias")
        with pytest.raises(typesafe_sdk.TypeSafeNotFoundError, match="other") as missing:
            client.system_one(state="Snow.", questions=QUESTIONS, model="other")
        assert missing.value.request_id
    broken = server.http.post("/v1/systemone", content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["detail"][0]["loc"]) == (422, ["body"])
