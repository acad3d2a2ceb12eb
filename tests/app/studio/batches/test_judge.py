"""Answers of a batch are graded by the loaded model, or by a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from app.studio.batches.judge import TEMPLATE, grade_of
from engine.engine import Engine
from engine.store import Store
from tests.app.conftest import PROMPT, SCHEMA
from tests.app.studio.asked import Asked
from tests.engine.cases import model_of

ROWS = "id,picks,text\na,tokyo,Where {answer}?\nb,oslo,\n"


class Server(HTTPServer):
    """Replies to each request with `reply` and records it."""

    reply: str = "I give 7 of 10."
    got: list[Any]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.respond({"data": [{"id": "judge"}]})

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.respond({"choices": [{"message": {"content": self.server.reply}}]})

    def respond(self, told: Any) -> None:
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as served:
        served.got = []
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("studio")
    with Engine(model_of("llama-gqa"), Store.open(folder / "cache")) as engine:
        asked = Asked(folder, engine=engine)
        texts = {"schema": SCHEMA, "prompt": PROMPT, "settings": {"max_new_tokens": 2}}
        assert "error" not in asked.ask(
            "batch_start", {**texts, "source": "table", "table": ROWS, "key": "b"}
        )
        asked.ended("b")
        yield asked


def grade(asked: Asked, job: str, **more: Any) -> dict[str, Any]:
    begun = asked.ask("batch_grade", {"key": "b", "job": job, "template": TEMPLATE, **more})
    assert "error" not in begun, begun
    return asked.ended(job)


def test_a_server_grades_each_answer_and_the_grade_is_stored(asked: Asked, server: Server) -> None:
    state = grade(asked, "one", url=server.url)
    assert (state["fault"], state["done"]) == ("", len(server.got))
    sent = server.got[0]
    assert sent["model"] == "judge"
    assert "Question: Where {answer}?" in sent["messages"][0]["content"], "answers are filled in once"
    again = Asked(asked.parts.database.folder.parent).ask("batch_state", {"key": "b", "only": True})["batch"]
    a, b = again["rows"]
    assert a["cached"]["grade"] == a["uncached"]["grade"] == {"score": 0.7, "reply": "I give 7 of 10."}
    assert "cached" not in b, "a failed row has no answer"
    assert (again["summary"]["graded"], again["summary"]["grade_cached"]) == (1, 0.7)
    (table,) = asked.ask("batch_files", {"key": "b", "form": "csv"})["files"]
    assert "cached grade" in table["text"]
    _, results = asked.ask("batch_files", {"key": "b", "form": "promptfoo"})["files"]
    assert json.loads(results["text"])["results"]["results"][0]["namedScores"] == {"judge": 0.7}


def test_the_loaded_model_is_a_judge(asked: Asked) -> None:
    state = grade(asked, "own", template="{prompt} {answer}")
    assert (state["fault"], state["done"]) == ("", state["total"])
    row = asked.ask("batch_row", {"key": "b", "number": 0})["row"]
    assert row["cached"]["grade"]["reply"] != "I give 7 of 10."


def test_a_judge_that_fails_is_named(asked: Asked, server: Server) -> None:
    server.reply = "Very good."
    grade(asked, "words", url=server.url, model="mine")
    assert server.got[0]["model"] == "mine"
    row = asked.ask("batch_row", {"key": "b", "number": 0})["row"]
    assert row["cached"]["grade"] == {"score": None, "reply": "Very good."}
    for url in ("https://127.0.0.1/v1", "http://example.com/v1", "http://127.0.0.1@example.com", "x"):
        refused = asked.ask("batch_grade", {"key": "b", "job": "no", "template": TEMPLATE, "url": url})
        assert "Only servers on this machine" in refused["error"]
    refused = asked.ask("batch_grade", {"key": "b", "job": "no", "template": "Grade."})
    assert "no {answer}" in refused["error"]


def test_a_judge_that_does_not_answer_ends_the_work(asked: Asked) -> None:
    assert "No server answers" in grade(asked, "off", url="http://127.0.0.1:9/v1")["fault"]


def test_a_judge_is_named_as_a_second_model_is(asked: Asked) -> None:
    assert "No server answers at 127.0.0.1:9." in grade(asked, "short", url="127.0.0.1:9")["fault"]
    wanted = {"key": "b", "job": "no", "template": TEMPLATE, "url": "http://127.0.0.1:9/é"}
    assert "printable ASCII" in asked.ask("batch_grade", wanted)["error"]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("8", 0.8),
        ("Grade: 8/10.", 0.8),
        ("<think>maybe 2 or 3</think> 10", 1.0),
        ("0", 0.0),
        ("11", None),
        ("-1", None),
        ("GPT4 says so", None),
        (ValueError("has 9 tokens"), None),
    ],
)
def test_a_grade_is_the_first_number(reply: str | Exception, score: float | None) -> None:
    assert grade_of(reply)["score"] == score
