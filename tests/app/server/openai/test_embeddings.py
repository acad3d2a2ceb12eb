"""Embeddings over OpenAI's API, by OpenAI's own client."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import openai
import pytest

from tests.app.server.served import Served

TEXTS = ["It is cold.", "It is a cold day in April.", "Rome"]
PML = '<schema name="asked"><module name="m">Word: <param name="text" len="8"/>.</module></schema>'
PUT = "/v1/prompt_cache/schemas/asked"


def vectors(server: Served, **body: Any) -> Any:
    made = server.openai().embeddings.create(model="alias", **body)
    assert [one.index for one in made.data] == [*range(len(made.data))]
    return np.array([one.embedding for one in made.data], np.float32)


def test_each_form_of_input_gives_the_engines_embeddings(server: Served) -> None:
    tokens = [server.engine.model.tokenize(text) for text in TEXTS]
    want, read = server.engine.embed(TEXTS), server.engine.embed(tokens)
    for given, expected in ((TEXTS, want), (TEXTS[0], want[:1]), (tokens, read), (tokens[2], read[2:])):
        coded = vectors(server, input=given)  # the client asks for base64
        plain = vectors(server, input=given, encoding_format="float")
        assert coded.shape == plain.shape == expected.shape
        assert max(np.abs(coded - expected).max(), np.abs(plain - expected).max()) < 1e-5


def test_base64_has_little_endian_floats(server: Served) -> None:
    body = {"model": "alias", "input": TEXTS[0], "encoding_format": "base64"}
    (row,) = server.http.post("/v1/embeddings", json=body).json()["data"]
    found = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    assert np.abs(found - server.engine.embed(TEXTS[0])).max() < 1e-5


def test_usage_and_metrics_count_the_tokens(server: Served) -> None:
    made = server.openai().embeddings.create(model="alias", input=TEXTS[0])
    assert made.usage.prompt_tokens == len(TEXTS[0])
    assert made.usage.total_tokens == made.usage.prompt_tokens
    latest = server.service.figures.recent[-1]
    assert (latest.path, latest.outcome, latest.model) == ("/v1/embeddings", "done", "alias")
    assert latest.usage is not None
    assert latest.usage.prompt == made.usage.prompt_tokens


def test_dimensions_pooling_and_templates_reach_the_engine(server: Served) -> None:
    engine = server.engine
    server.http.put(PUT, json={"pml": PML}).raise_for_status()
    ways: list[dict[str, Any]] = [
        {"pooling": "mean", "normalize": False},
        {"template": "prompteol"},
        {"template": "echo", "pooling": "mean"},
        {"template": PML},
        {"template": "asked"},
    ]
    for more in ways:
        found = vectors(server, input=TEXTS, dimensions=8, extra_body={"cache_salt": "a", **more})
        if more == {"template": "asked"}:
            more = {"template": PML}
        assert np.abs(found - engine.embed(TEXTS, dimensions=8, **more)).max() < 1e-5, more
    server.http.delete(PUT).raise_for_status()


@pytest.mark.parametrize(
    ("body", "param", "code", "says"),
    [
        ({"input": ""}, "input", None, "input is empty"),
        ({"input": []}, "input", None, "has 0 texts; send 1 to 2,048"),
        ({"input": ["a"] * 2049}, "input", None, "has 2,049 texts"),
        ({"input": [[5], []]}, "input[1]", None, "is empty"),
        ({"input": ["a", ""]}, "input[1]", None, "is empty"),
        ({"input": [5, 10**6]}, "input", None, "has the token 1000000"),
        ({"input": ["a", 5]}, "input", None, "must be"),
        ({"input": ["a", "b" * 4000]}, "input[1]", "context_length_exceeded", "4000 tokens > 2048 maximum"),
        ({"input": "a", "dimensions": 65}, "dimensions", None, "from 1 to 64"),
        ({"input": "a", "dimensions": 0}, "dimensions", None, "from 1 to 64"),
        ({"input": "a", "encoding_format": "bytes"}, "encoding_format", None, "'float' or 'base64'"),
        ({"input": "a", "embd_normalize": 1}, "embd_normalize", "unsupported_parameter", "use normalize"),
        (
            {"input": "a", "truncate_prompt_tokens": 5},
            "truncate_prompt_tokens",
            "unsupported_parameter",
            "not truncated",
        ),
        (
            {"messages": [{"role": "user", "content": "a"}]},
            "messages",
            "unsupported_parameter",
            "send each text in input",
        ),
        ({"input": "a", "template": "none"}, "template", "schema_not_found", "no schema 'none'"),
        ({"input": "a", "template": "<schema"}, "template", None, "E"),
        ({"input": "a", "template": '<schema name="t">a</schema>'}, "template", None, "has no parameter"),
        ({"input": "a", "model": "gpt-9"}, "model", "model_not_found", "no model"),
    ],
)
def test_a_bad_request_says_where_and_why(
    server: Served, body: Any, param: str, code: str | None, says: str
) -> None:
    answer = server.http.post("/v1/embeddings", json={"model": "alias", **body})
    assert answer.status_code == (404 if code in ("schema_not_found", "model_not_found") else 400)
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    assert error["code"] == code
    assert says in error["message"]


def test_openais_client_raises_its_own_errors(server: Served) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().embeddings.create(model="alias", input=["a", ""])
    assert error.value.param == "input[1]"
