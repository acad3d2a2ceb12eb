"""Imports in the studio: looked at before anything is opened, and nothing of the files stays."""

from __future__ import annotations

import base64
import tempfile
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine.exchange.folder import folder_files
from tests.app.studio.asked import Asked

CHAT = '[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello?"}]'

PROGRAM = """from engine.programs import Arg, schema

raise SystemExit("it was run")


@schema("trip")
def trip(p, days: Arg[5], far: bool = False):
    p.text("I am away for ", days, ".")
    if far:
        p.text("I do not mind a long flight.")
"""


NUMBERS = count()


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return Asked(tmp_path)


def preview(asked: Asked, files: dict[str, str | bytes], **options: Any) -> Any:
    sent = [
        {"path": path, "data": base64.b64encode(text.encode() if isinstance(text, str) else text).decode()}
        for path, text in files.items()
    ]
    key = f"import {next(NUMBERS)}"
    answer = asked.ask("preview_import", {"key": key, "files": sent, **options})
    if "error" not in answer:
        ended = asked.ended(key)
        answer = ended["result"] or {"error": ended["fault"]}
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    return answer


def sound(asked: Asked, answer: Any) -> None:
    """What is shown can be opened and run."""
    checked = asked.ask("check", {"schema": answer["schema"], "prompt": answer["prompt"]})
    assert [one for one in checked["schema"]["diagnostics"] if one["severity"] == "error"] == []
    assert [one for one in checked["prompt"]["diagnostics"] if one["severity"] == "error"] == []


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("chat.json", CHAT, "messages"),
        ("page.jinja", "{% if a %}One{% endif %} {{ name }}", "jinja"),
        ("notes.md", "# Sea\n\n" + "Deep. " * 30 + "\n\n# Land\n\n" + "Wide. " * 30, "text"),
        ("plan.prompty", "---\nname: Plan\n---\nsystem:\nBe kind.\n\nuser:\n{{question}}\n", "prompty"),
        ("trip.py", PROGRAM, "python"),
    ],
)
def test_each_form_is_shown_with_a_prompt_that_fits(asked: Asked, name: str, text: str, kind: str) -> None:
    answer = preview(asked, {name: text})
    assert (answer["kind"], answer["prompt"].startswith("<prompt")) == (kind, True)
    sound(asked, answer)


def test_a_template_gets_a_prompt_that_picks_what_it_always_has(asked: Asked) -> None:
    template = "Be {{ tone | default('kind') }}.\n{% if far %}Far.{% endif %}\nI ask: {{ question }}\n"
    answer = preview(asked, {"page.jinja": template})
    assert answer["prompt"].split() == [
        "<prompt",
        'schema="page">',
        "<tone/>",
        "<question",
        'question="[question]"/>',
        "</prompt>",
    ]
    sound(asked, answer)


def test_a_program_that_cannot_be_compiled_says_where_and_names_no_other_folder(asked: Asked) -> None:
    refused = preview(asked, {"trip.py": PROGRAM.replace("if far:", "while far:")})["error"]
    assert "trip.py" in refused
    assert "temporary" not in refused


def test_a_folder_becomes_modules_and_what_is_left_out_is_said(asked: Asked) -> None:
    files: dict[str, str | bytes] = {
        "trips/sea.md": "# Sea\n\nDeep.",
        "trips/far/city.txt": "Bridges.",
        "trips/picture.png": b"\x89PNG\r\n\x1a\n\0\0",
    }
    answer = preview(asked, files)
    assert (answer["name"], answer["kind"], answer["modules"]) == ("trips", "folder", 3)
    assert "titles" in answer["options"]
    assert any("picture.png" in note for note in answer["notes"])
    sound(asked, answer)
    assert "Document: sea.md" not in preview(asked, files, titles=False)["schema"]
    loose = preview(asked, {"a.md": "One.", "b.md": "Two."})
    assert (loose["name"], loose["modules"]) == ("documents", 2)


def test_what_is_chosen_is_what_comes_of_it(asked: Asked) -> None:
    rows = f'{{"messages": {CHAT}}}\n{{"messages": {CHAT.replace("Hello", "Again")}}}\n'
    first, second = (preview(asked, {"rows.jsonl": rows}, row=row) for row in (1, 2))
    assert ("Hello" in first["prompt"], "Again" in second["prompt"]) == (True, True)
    assert any("--" not in note and "2 conversations" in note for note in first["notes"])
    assert "there is no conversation 3" in preview(asked, {"rows.jsonl": rows}, row=3)["error"]
    named = preview(asked, {"notes.txt": "Hello {{ you }}"}, kind="text", name="mine")
    assert (named["name"], "{{ you }}" in named["schema"]) == ("mine", True)
    refused = preview(asked, {"notes.txt": "Hello {{ you }}"})["error"]
    assert refused.startswith("notes.txt: it has template markup")
    assert "--" not in refused


def test_another_encoding_is_asked_about_and_read_when_it_is_confirmed(asked: Asked) -> None:
    latin = "Café.".encode("latin-1")
    answer = preview(asked, {"notes.txt": latin})
    assert (answer["encoding"], "not UTF-8" in answer["message"]) == ("windows-1252", True)
    assert "Café." in preview(asked, {"notes.txt": latin}, encoding="windows-1252")["schema"]


@pytest.mark.parametrize("path", ["../a.md", "/etc/a.md", "a\\b.md", "x/../../a.md", "", "a\0.md"])
def test_no_path_leads_out_of_the_import(asked: Asked, tmp_path: Path, path: str) -> None:
    assert "cannot be imported" in preview(asked, {path: "One."})["error"]
    assert not (tmp_path / "a.md").exists()


def test_an_import_tells_how_far_it_is_and_stops_where_it_is_told_to(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, stopped = threading.Event(), threading.Event()

    def slowly(folder: Path, path: str) -> int:
        if path == "b.md":
            reading.set()
            assert stopped.wait(60)
        return opened(folder, path)

    opened = folder_files.open_beneath
    monkeypatch.setattr(folder_files, "open_beneath", slowly)
    files = [{"path": f"notes/{name}.md", "data": base64.b64encode(b"One.").decode()} for name in "abc"]
    asked.ask("preview_import", {"key": "k", "files": files})
    assert reading.wait(60)
    state = asked.ask("job_state", {"key": "k"})
    assert (state["what"], state["done"], state["total"]) == ("reading the texts", 1, 3)
    asked.ask("stop_job", {"key": "k"})
    stopped.set()
    ended = asked.ended("k")
    assert (ended["fault"], ended["result"]) == ("Stopped.", None)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_bytes_that_are_no_text_are_no_text_in_another_encoding(asked: Asked) -> None:
    refused = preview(asked, {"notes.md": b"\xff\0\x92\1" * 9})
    assert "is a binary file" in refused["error"]


def test_too_much_and_nothing_are_refused_in_words(asked: Asked) -> None:
    assert "no file to import" in preview(asked, {})["error"]
    assert "exceed the limits of this page" in preview(asked, {"a.md": b"x" * (21 << 20)})["error"]
    assert "no kind 'x'" in preview(asked, {"a.md": "x"}, kind="x")["error"]
    assert "16 to 1,000,000 tokens" in preview(asked, {"a.md": "x"}, split="tokens", tokens=3)["error"]
    assert "empty" in preview(asked, {"a.md": ""})["error"]


def test_what_was_looked_at_is_opened_only_when_it_is_wanted(asked: Asked) -> None:
    before = asked.ask("open_workspace")["workspace"]
    answer = preview(asked, {"chat.json": CHAT})
    assert asked.ask("open_workspace")["workspace"] == before
    page = {"schema": before["schema"], "prompt": "mine", "base": before["revision"]}
    texts = {name: answer[name] for name in ("name", "schema", "prompt")}
    assert asked.ask("open_imported", {**texts, "page": page})["workspace"]["schema"] == answer["schema"]
    assert asked.ask("shelf")["shelf"][0]["prompt"] == "mine"
