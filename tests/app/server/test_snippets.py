"""The programs that the studio offers: run as they are copied, they give the engine's own answer."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.core.request import HOTTEST
from app.server.core.usage import Usage
from app.server.openai.wire import MOST_STOPS
from app.studio.pages import snippets
from engine.inference.run_settings import RunSettings
from tests.app.server.raw import eventually
from tests.app.server.served import Served, served
from tests.app.studio.asked import Asked
from tests.app.studio.web.test_literals import NODE

HARD = 'It\'s "hard" \\n \\ $HOME `id` ${x} """ \'\'\' !! %s\n&lt;b&gt;JSON\nJSON\n東京 naïve\ttab\n'
SCHEMA = f"""<schema name="reise">
  <system>Plan short journeys.</system>
  <user>
    <module name="rome">{HARD}Rome is best on foot. </module>
    <module name="town">I like <param name="what" len="20" default="boats"/>. </module>
  </user>
</schema>"""
PROMPT = (
    '<prompt schema="reise"><town what="&quot;\'trains$\\"/><rome/><user>Where to, "Ünï"?\\</user></prompt>'
)
SETTINGS = {"max_new_tokens": 8, "temperature": 0.0}
WAYS = ("inline", "kept", "messages")
FEW = ("kept", *(pytest.param(way, marks=pytest.mark.long) for way in ("inline", "messages")))
CLIENT = """export default class {
  constructor({ baseURL }) { this.baseURL = baseURL }
  chat = { completions: { create: async body => (await fetch(`${this.baseURL}/chat/completions`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json() } }
}"""
"""Of the client for JavaScript, what the programs use of it."""


@pytest.fixture(scope="module")
def page(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """The studio's page over the server's engine."""
    return Asked(tmp_path_factory.mktemp("page"), engine=server.engine)


def program(page: Asked, server: Served, client: str, way: str, **more: Any) -> str:
    """The program as it is copied."""
    texts = {"schema": SCHEMA, "prompt": PROMPT, "settings": SETTINGS, **more}
    found = page.ask("write_snippet", {"client": client, "way": way, "address": server.url, **texts})
    assert found.get("error") is None, found
    assert found.get("fault") is None, found
    return str(found["text"])


def expected(server: Served, way: str) -> str:
    """The engine's answer; messages are read from their beginning, which changes no answer."""
    prompt = server.engine.schema(SCHEMA).prompt(PROMPT)
    settings = RunSettings(**{**SETTINGS, "scope": "anchored"})
    return prompt.answer(settings, mode="uncached" if way == "messages" else "cached").text


def printed(source: str) -> str:
    """What a program of Python prints, without the end of its last line."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(source, "copied.py", "exec"), {"__name__": "__main__"})
    assert said.getvalue().endswith("\n")
    return said.getvalue()[:-1]


def shell(source: str) -> Any:
    """What the last command of a shell answers, as JSON; its tokens stand in a line of their own."""
    done = subprocess.run(["bash", "-c", source], capture_output=True, timeout=60, check=True)
    *_, answer, usage = done.stdout.decode().splitlines()
    assert usage.startswith('"usage":{')
    return json.loads(f"{answer}\n{usage}")


def node(source: str, folder: Path) -> str:
    """What a program of JavaScript prints, without the end of its last line."""
    package = folder / "node_modules" / "openai"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"type": "module", "exports": "./index.js"}', encoding="utf-8")
    (package / "index.js").write_text(CLIENT, encoding="utf-8")
    file = folder / "ask.mjs"
    file.write_text(source, encoding="utf-8")
    done = subprocess.run([NODE, file], capture_output=True, timeout=60, check=True)
    return done.stdout.decode()[:-1]


def told(said: str) -> tuple[str, list[int]]:
    """What a program has printed: the answer, and the numbers of the line below it."""
    answer, _, line = said.rpartition("\n")
    assert re.fullmatch(r"\d+ (of \d+ )?tokens read, \d+ written(, \d+ computed)?", line), line
    return answer, [int(number) for number in re.findall(r"\d+", line)]


def latest(server: Served) -> Usage:
    """The tokens of the latest request, as the server counted them."""
    one = server.service.figures.recent[-1]
    eventually(lambda: one.outcome == "done", "the answer is complete")
    assert one.usage is not None
    return one.usage


@pytest.mark.parametrize("way", WAYS)
def test_openais_python_prints_the_engines_answer_and_what_was_read(
    server: Served, page: Asked, way: str
) -> None:
    for first in (True, False):
        answer, numbers = told(printed(program(page, server, "openai-python", way)))
        used = latest(server)
        assert answer == expected(server, way)
        assert numbers == [used.read, used.prompt, used.written]
        assert first or used.read > 0


@pytest.mark.parametrize("way", WAYS)
def test_anthropics_python_prints_the_engines_answer_and_what_was_read(
    server: Served, page: Asked, way: str
) -> None:
    for first in (True, False):
        answer, numbers = told(printed(program(page, server, "anthropic-python", way)))
        used = latest(server)
        assert answer == expected(server, way)
        assert numbers == [used.read, used.written, used.rest]
        assert first or used.read > 0


@pytest.mark.parametrize("way", FEW)
def test_a_shell_gets_the_engines_answer_and_what_was_read(server: Served, page: Asked, way: str) -> None:
    answer = shell(program(page, server, "curl", way))
    assert answer["choices"][0]["message"]["content"] == expected(server, way)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == latest(server).read


@pytest.mark.parametrize("way", FEW)
def test_javascript_prints_the_engines_answer_and_what_was_read(
    server: Served, page: Asked, way: str, tmp_path: Path
) -> None:
    answer, numbers = told(node(program(page, server, "openai-javascript", way), tmp_path))
    used = latest(server)
    assert answer == expected(server, way)
    assert numbers == [used.read, used.prompt, used.written]


def test_a_shell_shows_what_is_refused(server: Served, page: Asked) -> None:
    source = program(page, server, "curl", "inline").replace(f'"{server.model}"', '"nobody"')
    done = subprocess.run(["bash", "-c", source], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", snippets.CLIENTS)
def test_all_but_the_long_texts_of_a_program_is_short(
    server: Served, page: Asked, client: str, way: str
) -> None:
    long = "\n".join(f"Line {number} of a long text." for number in range(40))
    schema = f'<schema name="reise"><module name="rome">{long} """ `</module></schema>'
    given = {"schema": schema, "prompt": '<prompt schema="reise"><rome/>Where to?</prompt>'}
    found = page.ask(
        "write_snippet",
        {"client": client, "way": way, "address": server.url, "settings": SETTINGS, **given},
    )
    lines = found["text"].split("\n")
    hidden = [line for one in found["folded"] for line in lines[one["first"] : one["last"] + 1]]
    assert len(lines) - len(hidden) <= 42
    if client != "curl":
        assert hidden == [f"Line {number} of a long text." for number in range(1, 39)]


def test_settings_of_the_page_are_asked_for(server: Served, page: Asked) -> None:
    drawn = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3, "repetition_penalty": 1.1}
    settings = {**SETTINGS, **drawn, "scope": "isolated", "stop": ["\n", '"']}
    answer = shell(program(page, server, "curl", "inline", settings=settings))
    prompt = server.engine.schema(SCHEMA).prompt(PROMPT)
    whole = prompt.answer(RunSettings.read(settings), mode="cached")
    assert answer["choices"][0]["message"]["content"] == whole.text
    assert told(printed(program(page, server, "openai-python", "inline", settings=settings)))[0] == whole.text
    assert (
        told(printed(program(page, server, "anthropic-python", "kept", settings=settings)))[0] == whole.text
    )


def test_what_a_request_cannot_say_is_said(server: Served, page: Asked) -> None:
    assert snippets.MOST_STOPS == MOST_STOPS
    assert (HOTTEST["openai"], HOTTEST["anthropic"]) == snippets.HOTTEST
    settings = {**SETTINGS, "repair": "link:2", "stop": list("abcdef"), "temperature": 1.5}
    texts = {"schema": SCHEMA, "prompt": PROMPT, "settings": settings, "address": server.url}
    found = page.ask("write_snippet", {"client": "curl", **texts})
    assert [note.split()[0] for note in found["notes"]] == ["Repair", "A"]
    assert '"f"' not in found["text"]
    notes = page.ask("write_snippet", {"client": "anthropic-python", **texts})["notes"]
    assert [note.split()[0] for note in notes] == ["Repair", "A"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"schema": " \n"}, "No schema is open."),
        ({"schema": SCHEMA.replace("</user>", "")}, "The schema has an error in line"),
        ({"prompt": '<prompt schema="reise"><oslo/></prompt>'}, "The prompt has an error in line 1: "),
        (
            {"prompt": f'<prompt schema="reise"><town what="{"long " * 20}"/></prompt>'},
            "The prompt has an error",
        ),
    ],
)
def test_faulty_documents_give_a_plain_program_and_say_why(
    server: Served, page: Asked, texts: dict[str, str], words: str
) -> None:
    given = {"schema": SCHEMA, "prompt": PROMPT, **texts, "settings": SETTINGS, "address": server.url}
    found = page.ask("write_snippet", {"client": "openai-python", **given})
    assert words in found["fault"]
    assert "Author page" in found["fault"]
    conversation = server.openai().chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0
    )
    assert told(printed(found["text"]))[0] == conversation.choices[0].message.content
    assert found["folded"] == []


def test_an_address_is_one(page: Asked) -> None:
    for address in ('http://a"b', "file:///etc/passwd", "http://a/b", "javascript:1", "http://a\n"):
        assert "not the address" in page.ask("write_snippet", {"client": "curl", "address": address})["error"]


def test_files_of_a_schema_are_copied_into_it(server: Served, page: Asked) -> None:
    sample = page.ask("list_samples")["samples"]
    assert any(one["name"] == "documents" for one in sample)
    workspace = page.parts.library.sample("documents")
    texts = {"schema": workspace.schema, "prompt": workspace.prompt, "origin": workspace.origin}
    found = page.ask("write_snippet", {"client": "curl", "address": server.url, **texts})
    assert ("src=" in workspace.schema) == bool(found["notes"])


def test_a_key_is_read_from_the_environment(
    tmp_path: Path, page: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.server.http.access import Access
    from app.studio.pages.snippets import CLIENTS, KEY, Sought, snippet

    secret = "a secret of some length"
    monkeypatch.setenv(KEY, secret)
    with served(tmp_path, access=Access((secret,))) as keyed:
        sought = Sought(keyed.url, keyed.model, True, RunSettings(max_new_tokens=3), SCHEMA, PROMPT, "reise")
        texts = {client: snippet(client, sought) for client in CLIENTS}
        answer = keyed.engine.schema(SCHEMA).prompt(PROMPT).answer(RunSettings(max_new_tokens=3)).text
        assert told(printed(texts["openai-python"]))[0] == answer
        assert told(printed(texts["anthropic-python"]))[0] == answer
        assert shell(texts["curl"])["choices"][0]["message"]["content"] == answer
        assert httpx.get(f"{keyed.url}/v1/models").status_code == 401
    assert all(secret not in text for text in texts.values())
