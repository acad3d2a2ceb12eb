"""Ollama's API: its shapes, the engine's answers, and the fields that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import Block, Message
from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.run_settings import RunSettings
from engine.inference.sampler import Sampler
from engine.model.model import Model
from tests.app.server.raw import eventually
from tests.app.server.served import LONG, Served, served
from tests.engine.prompt.tool_templates import HERMES_ANSWERS, WITH_TOOLS
from tests.engine.tiny import tiny_network

SAID: list[Any] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "One day in April?"},
    {"role": "assistant", "content": "Cold.", "thinking": "Hm."},
    {"role": "user", "content": "And the clocks?"},
]
COLD = {"temperature": 0, "num_predict": 8}
CHAT: dict[str, Any] = {"model": "alias", "messages": SAID, "options": COLD}
PROMPT: dict[str, Any] = {"model": "alias", "prompt": "One day in April?", "options": COLD}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
LAST = {
    *("done", "done_reason", "total_duration", "load_duration"),
    *("prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"),
}


def plain(server: Served, *messages: Any, **changes: Any) -> Any:
    """The engine's own answer, computed without a cache."""
    turns = [Message(one["role"], (Block(one["content"]),)) for one in messages]
    settings = RunSettings(**{"max_new_tokens": 8, "temperature": 0, **changes})
    return server.engine.conversation(turns).answer(settings, mode="uncached")


def lines(server: Served, path: str, body: Any) -> list[Any]:
    """The objects of a stream."""
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(one) for one in answer.text.splitlines()]


def test_a_chat_is_the_engines_answer(server: Served) -> None:
    told = server.http.post("/api/chat", json={**CHAT, "stream": False}).json()
    expected = plain(server, *SAID)
    assert told["message"] == {"role": "assistant", "content": expected.text}
    assert told["prompt_eval_count"] == expected.tokens["prompt"]
    assert told["eval_count"] == expected.tokens["generated"]
    assert (told["model"], told["done"]) == ("alias", True)
    assert told["done_reason"] == {"eos": "stop", "length": "length"}[expected.stopped]
    assert told["total_duration"] >= told["prompt_eval_duration"] + told["eval_duration"] > 1000
    assert told["created_at"].endswith("Z")


def test_answers_are_streamed_by_default_as_lines(server: Served) -> None:
    for path, body, text in (
        ("/api/chat", CHAT, lambda one: one["message"]["content"]),
        ("/api/generate", PROMPT, lambda one: one["response"]),
    ):
        whole = server.http.post(path, json={**body, "stream": False}).json()
        *pieces, last = lines(server, path, body)
        assert len(pieces) > 1
        assert "".join(map(text, pieces)) == text(whole)
        assert not any(one["done"] or LAST & {*one} - {"done"} for one in pieces)
        assert {*last} >= LAST
        assert (last["done"], text(last)) == (True, "")
        assert last["eval_count"] == whole["eval_count"]


def test_a_prompt_has_a_system_text_or_no_template(server: Served) -> None:
    def ask(**body: Any) -> Any:
        return server.http.post("/api/generate", json={**PROMPT, "stream": False, **body}).json()

    user = {"role": "user", "content": PROMPT["prompt"]}
    assert ask()["response"] == plain(server, user).text
    system = {"role": "system", "content": "Be short."}
    assert ask(system="Be short.")["response"] == plain(server, system, user).text
    body = {"model": "alias", "prompt": PROMPT["prompt"], "temperature": 0, "max_tokens": 8}
    raw = server.http.post("/v1/completions", json=body).json()
    told = ask(raw=True)
    assert told["response"] == raw["choices"][0]["text"]
    assert told["prompt_eval_count"] == raw["usage"]["prompt_tokens"]


def test_options_are_settings_of_the_answer(server: Served) -> None:
    def ask(**options: Any) -> str:
        told = server.http.post("/api/chat", json={**CHAT, "stream": False, "options": {**COLD, **options}})
        return str(told.json()["message"]["content"])

    usual = plain(server, *SAID).text
    assert ask(num_ctx=1024, num_gpu=0, num_thread=2, use_mmap=True, repeat_last_n=-1) == usual
    assert ask(num_predict=-1) == plain(server, *SAID, max_new_tokens=16).text, "the server's longest answer"
    stop = usual[2:4]
    assert ask(stop=[stop]) == ask(stop=stop) == usual.split(stop)[0]
    for options, settings in (
        ({"repeat_penalty": 3.0}, {"repetition_penalty": 3.0}),
        ({"frequency_penalty": 2}, {"frequency_penalty": 2.0}),
        ({"presence_penalty": 2}, {"presence_penalty": 2.0}),
    ):
        assert ask(**options) == plain(server, *SAID, **settings).text != usual
    drawn = {ask(temperature=3, seed=seed) for seed in (1, 1, 2, 3)}
    assert len(drawn) > 1
    assert ask(temperature=3, seed=1) == ask(temperature=3, seed=1)
    assert ask(temperature=3, seed=1, top_k=1) == ask(temperature=3, min_p=1) == usual


def test_the_defaults_are_ollamas(server: Served) -> None:
    def ask(**options: Any) -> str:
        body = {**CHAT, "stream": False, "options": {"num_predict": 8, "seed": 7, **options}}
        return str(server.http.post("/api/chat", json=body).json()["message"]["content"])

    assert ask() == ask(temperature=0.8, top_p=0.9, top_k=40)
    hot = [ask(temperature=2, top_k=0, top_p=1, seed=seed) for seed in range(4)]
    assert hot != [ask(temperature=2, seed=seed) for seed in range(4)]


def test_a_format_is_kept(server: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for path, body in (("/api/chat", CHAT), ("/api/generate", PROMPT)):
        long = {**body, "stream": False, "options": {"num_predict": 40}}
        told = server.http.post(path, json={**long, "format": schema}).json()
        assert json.loads(told.get("response") or told["message"]["content"]) in ({"a": 1}, {"a": 2})
        body = {**body, "format": "json", "options": {**COLD, "num_predict": 3}, "stream": False}
        told = server.http.post(path, json=body).json()
        assert (told.get("response") or told["message"]["content"]).startswith("{")


def test_log_probabilities_are_those_of_openais_api(server: Served) -> None:
    ask = {**CHAT, "logprobs": True, "top_logprobs": 2}
    whole = server.http.post("/api/chat", json={**ask, "stream": False}).json()["logprobs"]
    body = {"model": "alias", "messages": SAID, "max_tokens": 8, "temperature": 0}
    same = server.http.post("/v1/chat/completions", json={**body, "logprobs": True, "top_logprobs": 2})
    expected = same.json()["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in whole] == [one["token"] for one in expected]
    streamed = [one for piece in lines(server, "/api/chat", ask) for one in piece.get("logprobs", ())]
    assert [one["token"] for one in streamed] == [one["token"] for one in whole]
    assert all(len(one["top_logprobs"]) == 2 for one in streamed)


def test_calls_of_tools_arrive_and_their_results_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = WITH_TOOLS["hermes"].template
    tokenizer.response_template = HERMES_ANSWERS
    model = Model("agent", tiny_network(), tokenizer, "agent")
    said = 'Let me see.<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    script: list[int] = []
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: script.pop(0))
    body: dict[str, Any] = {"model": "agent", "messages": SAID[1:2], "tools": [TOOL]}
    with served(tmp_path, model=model, longest=200) as running:
        script[:] = [*model.tokenize(said), 1]
        whole = running.http.post("/api/chat", json={**body, "stream": False}).json()["message"]
        script[:] = [*model.tokenize(said), 1]
        piece, last = lines(running, "/api/chat", body)
        assert piece["message"] == whole
        assert (last["message"]["content"], last["done"]) == ("", True)
        assert whole["content"] == "Let me see."
        assert whole["tool_calls"] == [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]
        script[:] = [*model.tokenize("Sunny."), 1]
        result = {"role": "tool", "tool_name": "weather", "content": "24 degrees"}
        turns = [*SAID[1:2], whole, result]
        told = running.http.post("/api/chat", json={**body, "messages": turns, "stream": False}).json()
        assert told["message"]["content"] == "Sunny."
        assert running.http.post("/api/show", json={"model": "agent"}).json()["capabilities"] == [
            "completion",
            "tools",
            "embedding",
        ]


def test_a_request_without_a_prompt_loads_the_model(server: Served) -> None:
    for path in ("/api/chat", "/api/generate"):
        told = server.http.post(path, json={"model": "alias:latest", "keep_alive": "5m"}).json()
        assert (told["done"], told["done_reason"], told["model"]) == (True, "load", "alias:latest")
    assert server.http.post("/api/generate", json={"model": "other"}).status_code == 404


def test_texts_are_embedded(server: Served) -> None:
    body = {"model": "alias", "input": ["A cold day", "April"], "truncate": True}
    told = server.http.post("/api/embed", json=body).json()
    same = server.http.post("/v1/embeddings", json=body).json()
    assert told["embeddings"] == [one["embedding"] for one in same["data"]]
    assert told["prompt_eval_count"] == same["usage"]["prompt_tokens"]
    short = server.http.post("/api/embed", json={**body, "input": "April", "dimensions": 4}).json()
    assert len(short["embeddings"][0]) == 4
    wrong = server.http.post("/api/embed", json={**body, "input": ["a", LONG * 30]})
    assert wrong.status_code == 400
    assert "input[1] is too long" in wrong.json()["error"]


def test_the_model_is_described(server: Served) -> None:
    tags = server.http.get("/api/tags").json()["models"]
    assert [one["name"] for one in tags] == [server.model, "alias"]
    assert tags[0]["digest"] == server.engine.model.fingerprint
    for body in ({"model": "alias"}, {"name": f"{server.model}:latest"}):
        told = server.http.post("/api/show", json=body).json()
        assert told["model_info"]["llama.context_length"] == server.engine.model.context_length
        assert told["details"]["family"] == "llama"
    (loaded,) = server.http.get("/api/ps").json()["models"]
    assert loaded["context_length"] == server.engine.model.context_length
    assert server.http.get("/api/version/").json()["version"].count(".") == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"think": True}, "think: It is not supported here: the model does not think. Remove the field."),
        ({"think": "high"}, "think: It is not"),
        ({"temperature": 1}, "temperature: It is not supported here: put it into options."),
        ({"max_tokens": 5}, "use num_predict of options"),
        ({"options": {"mirostat": 2}}, "options.mirostat: It is not supported here: tokens are drawn by"),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z: It is"),
        ({"options": {"repeat_last_n": 64}}, "options.repeat_last_n: It is not supported here: the penalty"),
        ({"options": {"num_ctx": 4096}}, "options.num_ctx: It is not supported here: the context length is"),
        ({"options": {"max_tokens": 5}}, "options.max_tokens: It is not supported here: it is called num_pr"),
        ({"options": {"temperature": 11}}, "options.temperature: It is 11.0; it must be"),
        ({"options": {"temperature": "1"}}, "options.temperature"),
        ({"options": {"seed": 2**63}}, "seed: It is"),
        ({"format": {"type": "object", "not": {}}}, "format: "),
        ({"format": "xml"}, "format"),
        ({"top_logprobs": 2}, "top_logprobs: It requires logprobs"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images: It is"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, "messages[0].role"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"messages": "x"}, "messages must be a list"),
    ],
)
def test_what_is_not_supported_is_named_with_what_to_use(server: Served, changes: Any, says: str) -> None:
    answer = server.http.post("/api/chat", json={**CHAT, **changes})
    assert answer.status_code == 400
    assert says in answer.json()["error"].replace("messages: It must", "messages must")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"suffix": "end"}, "suffix: It is not"),
        ({"template": "{{ .Prompt }}"}, "raw omits it"),
        ({"context": [1, 2]}, "send the conversation to /api/chat"),
        ({"images": ["aGk="]}, "images: It is not supported here: the model reads text."),
        ({"raw": True, "system": "x"}, "system: A raw prompt has no chat template"),
        ({"prompt": LONG * 60}, "prompt is too long: "),
    ],
)
def test_fields_of_a_prompt_are_refused_by_name(server: Served, changes: Any, says: str) -> None:
    answer = server.http.post("/api/generate", json={**PROMPT, **changes})
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_curl_needs_no_header(server: Served) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path, status in (("/api/chat", 200), ("/v1/chat/completions", 415)):
        assert server.http.post(path, content=json.dumps(CHAT), headers=form).status_code == status
    sent = {**form, "origin": "http://evil.example"}
    assert server.http.post("/api/chat", content=json.dumps(CHAT), headers=sent).status_code == 403


def test_other_endpoints_say_what_to_use(server: Served) -> None:
    for method, path, says in (
        ("POST", "/api/pull", "Choose the model with `pml serve MODEL`"),
        ("DELETE", "/api/delete", "Choose the model with `pml serve MODEL`"),
        ("POST", "/api/embeddings", "Use POST /api/embed"),
        ("GET", "/api/chat", "Use POST /api/chat"),
        ("POST", "/v1/api/chat", "Use POST /api/chat"),
    ):
        answer = server.http.request(method, path, json={"model": "alias"})
        assert answer.status_code in (404, 405)
        error = answer.json()["error"]
        assert says in (error if isinstance(error, str) else error["message"])


def test_an_error_in_a_stream_is_its_last_line(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Sampler, logits: Any, allowed: Any = None) -> int:
        if getattr(self, "chosen", 0) == 2:
            raise ValueError("a secret")
        self.chosen = getattr(self, "chosen", 0) + 1  # type: ignore[attr-defined]
        return 70

    monkeypatch.setattr(Sampler, "choose", broken)
    *pieces, last = lines(server, "/api/generate", PROMPT)
    assert pieces
    assert [*last] == ["error"]
    assert "see its log under req_" in last["error"]


def test_requests_are_counted(server: Served) -> None:
    server.http.post("/api/chat", json={**CHAT, "think": True})
    noted = server.service.figures.recent[-1]
    eventually(lambda: noted.seconds > 0, "it ended")
    assert (noted.path, noted.dialect, noted.status) == ("/api/chat", "ollama", 400)
    assert "think: It is not supported here" in noted.sentence
    server.http.post("/api/chat", json=CHAT)
    noted = server.service.figures.recent[-1]
    eventually(lambda: noted.outcome == "done", "it was answered")
