"""The programs that the studio offers: run as they are copied, they give the engine's own answer."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.asked import HOTTEST
from app.server.openai_wire import MOST_STOPS
from app.studio import snippets
from engine.inference.params import RunSettings
from tests.app.asked import Asked
from tests.app.test_literals import NODE
from tests.server.served import Served, served

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
    """What the last command of a shell answers, as JSON."""
    done = subprocess.run(["bash", "-c", source], capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", ["openai-python", "anthropic-python"])
def test_python_prints_the_engines_answer(server: Served, page: Asked, client: str, way: str) -> None:
    assert printed(program(page, server, client, way)) == expected(server, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_shell_gets_the_engines_answer(server: Served, page: Asked, way: str) -> None:
    answer = shell(program(page, server, "curl", way))
    assert answer["choices"][0]["message"]["content"] == expected(server, way)


@pytest.mark.parametrize("way", WAYS)
def test_javascript_is_javascript(server: Served, page: Asked, way: str, tmp_path: Path) -> None:
    file = tmp_path / "ask.mjs"
    file.write_text(program(page, server, "openai-javascript", way), encoding="utf-8")
    subprocess.run([NODE, "--check", file], check=True, timeout=60)


def test_settings_of_the_page_are_asked_for(server: Served, page: Asked) -> None:
    drawn = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3, "repetition_penalty": 1.1}
    settings = {**SETTINGS, **drawn, "scope": "isolated", "stop": ["\n", '"']}
    answer = shell(program(page, server, "curl", "inline", settings=settings))
    prompt = server.engine.schema(SCHEMA).prompt(PROMPT)
    whole = prompt.answer(RunSettings.read(settings), mode="cached")
    assert answer["choices"][0]["message"]["content"] == whole.text
    assert printed(program(page, server, "openai-python", "inline", settings=settings)) == whole.text
    assert printed(program(page, server, "anthropic-python", "kept", settings=settings)) == whole.text


def test_what_a_request_cannot_say_is_said(server: Served, page: Asked) -> None:
    assert snippets.MOST_STOPS == MOST_STOPS
    assert {"openai": snippets.HOTTEST[0], "anthropic": snippets.HOTTEST[1]} == HOTTEST
    settings = {**SETTINGS, "repair": "link:2", "stop": list("abcdef"), "temperature": 1.5}
    texts = {"schema": SCHEMA, "prompt": PROMPT, "settings": settings, "address": server.url}
    found = page.ask("write_snippet", {"client": "curl", **texts})
    assert [note.split()[0] for note in found["notes"]] == ["Repair", "A"]
    assert '"f"' not in found["text"]
    notes = page.ask("write_snippet", {"client": "anthropic-python", **texts})["notes"]
    assert [note.split()[0] for note in notes] == ["Repair", "The"]


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
    assert "page Author" in found["fault"]
    conversation = server.openai().chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0
    )
    assert printed(found["text"]) == conversation.choices[0].message.content


def test_an_address_is_one(page: Asked) -> None:
    for address in ('http://a"b', "file:///etc/passwd", "http://a/b", "javascript:1", "http://a\n"):
        assert "no address" in page.ask("write_snippet", {"client": "curl", "address": address})["error"]


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
    from app.server.access import Access
    from app.studio.snippets import CLIENTS, KEY, Sought, snippet

    secret = "a secret of some length"
    monkeypatch.setenv(KEY, secret)
    with served(tmp_path, access=Access((secret,))) as keyed:
        sought = Sought(keyed.url, keyed.model, True, RunSettings(max_new_tokens=3), SCHEMA, PROMPT, "reise")
        texts = {client: snippet(client, sought) for client in CLIENTS}
        answer = keyed.engine.schema(SCHEMA).prompt(PROMPT).answer(RunSettings(max_new_tokens=3)).text
        assert printed(texts["openai-python"]) == answer
        assert printed(texts["anthropic-python"]) == answer
        assert shell(texts["curl"])["choices"][0]["message"]["content"] == answer
        assert httpx.get(f"{keyed.url}/v1/models").status_code == 401
    assert all(secret not in text for text in texts.values())
