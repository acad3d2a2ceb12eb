"""Relevance of texts to queries, and scores of given tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.app.server.served import LONG, Served

TEXTS = [f"{LONG} {name}." for name in ("One", "Two", "Three")]


def post(server: Served, path: str, **body: Any) -> Any:
    answer = server.http.post(f"/v1/{path}", json={"model": "alias", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_documents_are_ordered_by_relevance_and_read_again(server: Served) -> None:
    told = post(server, "rerank", query="Two?", documents=TEXTS)
    scores = {one["index"]: one["relevance_score"] for one in told["results"]}
    assert sorted(scores) == [0, 1, 2]
    assert [*scores.values()] == sorted(scores.values(), reverse=True)
    assert all(one["document"]["text"] == TEXTS[one["index"]] for one in told["results"])
    again = post(server, "rerank", query="Two?", documents=TEXTS[::-1], top_n=2, return_documents=False)
    assert [(2 - one["index"], one["document"]) for one in again["results"]] == [
        (index, None) for index in [*scores][:2]
    ]
    assert again["usage"]["cached_tokens"] >= sum(map(len, TEXTS))
    pairs = post(server, "score", text_1="Two?", text_2=TEXTS)["data"]
    assert [one["score"] for one in pairs] == pytest.approx([scores[index] for index in range(3)], abs=1e-5)
    apart = post(server, "score", text_1=["One?", "Two?"], text_2=TEXTS[:2])["data"]
    assert apart[1]["score"] == pytest.approx(scores[1], abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/v2/rerank", {"query": "a", "documents": ["b"]}),
        ("/score/", {"text_1": "a", "text_2": "b"}),
        ("/generative_scoring", {"query": "a", "items": ["b"], "label_token_ids": [65]}),
    ],
)
def test_the_paths_of_vllm_without_v1_give_the_same_answers(server: Served, path: str, body: Any) -> None:
    own = path.removeprefix("/v2").strip("/")
    told = server.http.post(path, json={"model": "alias", **body}).json()
    again = post(server, own, **body)
    given = "results" if "rerank" in path else "data"
    assert told[given] == again[given]


def test_given_tokens_are_scored_by_the_next_row(server: Served) -> None:
    network, labels = server.engine.model.network, [70, 71, 72]
    tokens = server.engine.model.tokenize("Hello you")
    row = network.forward(tokens, range(len(tokens)), network.kv_cache((), len(tokens)), keep=1)[0]
    table = torch.softmax(row.float(), -1)[labels].tolist()
    ask = {"query": "Hello", "items": [" you"], "label_token_ids": labels}
    share = post(server, "generative_scoring", **ask)["data"][0]["score"]
    plain = post(server, "generative_scoring", **ask, apply_softmax=False)["data"][0]["score"]
    turned = {"query": tokens[5:], "items": [tokens[:5]], "label_token_ids": labels, "item_first": True}
    assert share == pytest.approx(table[0] / sum(table), abs=1e-5)
    assert plain == pytest.approx(table[0], abs=1e-5)
    assert post(server, "generative_scoring", **turned)["data"][0]["score"] == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("item_first", [False, True])
def test_the_first_text_begins_as_the_tokenizer_says(
    server: Served, monkeypatch: pytest.MonkeyPatch, item_first: bool
) -> None:
    monkeypatch.setattr(server.engine.model.chat, "text_bos", 0)
    texts = {"query": "Hello", "items": [" you"]}
    first, last = (" you", "Hello") if item_first else ("Hello", " you")
    labels = {"label_token_ids": [70, 71, 72], "item_first": item_first}

    def score(**body: Any) -> float:
        found: float = post(server, "generative_scoring", **labels, **body)["data"][0]["score"]
        return found

    read = server.engine.model.tokenize
    plain, begun = ([[*start, *read(first)], read(last)] for start in ([], [0]))
    as_tokens = [
        score(**dict(zip(("query", "items"), (b, [a]) if item_first else (a, [b]), strict=True)))
        for a, b in (plain, begun)
    ]
    assert score(**texts, add_special_tokens=False) == pytest.approx(as_tokens[0], abs=1e-6)
    assert score(**texts) == pytest.approx(as_tokens[1], abs=1e-6)
    assert as_tokens[0] != pytest.approx(as_tokens[1], abs=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("rerank", {"query": "a", "documents": []}, "documents", "0 texts"),
        ("rerank", {"query": " ", "documents": ["a"]}, "query", "no text"),
        ("rerank", {"query": "a" * 5000, "documents": ["a"]}, "query", "query is too long"),
        ("rerank", {"query": "a", "documents": ["a" * 5000]}, "documents[0]", "prompt is too long"),
        ("rerank", {"query": "a", "documents": ["a", ""]}, "documents[1]", "no text"),
        ("rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n", "at least 1"),
        ("score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1", "2 queries for 1 texts"),
        (
            "generative_scoring",
            {"query": "a", "items": ["b"], "label_token_ids": []},
            "label_token_ids",
            "empty",
        ),
        (
            "generative_scoring",
            {"query": "a", "items": ["b"], "label_token_ids": [10**6]},
            "label_token_ids",
            "labels",
        ),
    ],
)
def test_a_bad_request_says_where_and_why(
    server: Served, path: str, body: Any, param: str, says: str
) -> None:
    answer = server.http.post(f"/v1/{path}", json={"model": "alias", **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert says in answer.json()["error"]["message"]
