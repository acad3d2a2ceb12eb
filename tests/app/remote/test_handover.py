"""`pml run` hands its work to a running studio: the same answer, and a run of its own where none fits."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.cli.base.options import ModelOptions
from app.cli.base.run_answers import Outcome, follow
from app.remote import client
from app.remote.client import LostError
from app.remote.lines import checking
from app.remote.presence import Presence, folder, present
from app.remote.terms import Held, Terms, endings, folder_stamp
from app.studio.model.remote_runs import Handed
from engine import Engine
from engine.base.events import ReuseTaken
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt
from tests.app.studio.studio_server import Served

ROOT = Path(__file__).parents[3]
SCHEMA, PROMPT = ROOT / "sample_schemas" / "travel.pml", ROOT / "sample_schemas" / "travel.prompt.1.pml"
RUN = ("run", PROMPT, "--schema", SCHEMA, "--mode", "cached", "--max-new-tokens", "6")
TIMES = {"ttft_ms", "tpot_ms", "timeline_ms", "waited_ms"}
Run = Callable[..., SimpleNamespace]


class LoadedError(Exception):
    """The command would load the model itself."""


@pytest.fixture
def cache(served: Served) -> Path:
    """The cache folder of the running studio."""
    return served.documents.parent / "cache"


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command must not load a model."""

    def refuse(_: ModelOptions) -> Engine:
        raise LoadedError

    monkeypatch.setattr(ModelOptions, "open", refuse)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No studio of other tests tells that it is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def told(text: str) -> str:
    """What a run prints, without its times and without the widths of columns, which go by them."""
    return re.sub(r" +", " ", re.sub(r" +[\d.]+ m?s\b", " T", text))


def terms(cache_dir: Path, **changes: Any) -> Terms:
    return Terms.of("demo", **{"cache_dir": cache_dir, **changes})


def held(wanted: Terms) -> Held:
    from engine.checkpoint.checkpoint import DEMO_FOLDER

    return Held(
        *(wanted, "cpu", "fp32", demo_fingerprint()),
        *(endings(str(DEMO_FOLDER)), folder_stamp(wanted.cache_dir)),
    )


def demo_fingerprint() -> str:
    from engine.checkpoint.checkpoint import DEMO_FOLDER, Checkpoint
    from engine.checkpoint.fingerprint import fingerprint

    return fingerprint(Checkpoint.of("demo", DEMO_FOLDER))


@pytest.mark.long
def test_a_run_in_the_studio_says_what_a_run_of_its_own_says(run_pml: Run, cache: Path) -> None:
    run_pml(*RUN, "--cache-dir", cache)  # which encodes the segments
    own = run_pml(*RUN, "--cache-dir", cache, "--server", "never")
    handed = run_pml(*RUN, "--cache-dir", cache)
    assert (handed.status, handed.err, own.status) == (0, "", 0)
    by = re.compile(r"Computed by the studio at http://127.0.0.1:\d+/?\.?\n")
    assert by.search(handed.out)
    (*words, reuse), (*own_words, own_reuse) = (
        told(by.sub("", text)).splitlines() for text in (handed.out, own.out)
    )
    assert words == own_words
    assert all(line.startswith("Reused as stored: mean KL ") for line in (reuse, own_reuse))
    assert "first token after" in handed.out


@pytest.mark.usefixtures("light")
def test_the_json_of_a_run_in_the_studio_has_the_same_fields(
    run_pml: Run, cache: Path, served: Served
) -> None:
    run_pml(*RUN, "--cache-dir", cache)
    handed = run_pml(*RUN, "--cache-dir", cache, "--json", "--server", served.url)
    assert (handed.status, handed.err) == (0, "")
    object_ = json.loads(handed.out)
    fields = {"schema", "model", "scope", "repair", "reuse", "placement", "probe", "studio", "cached"}
    assert set(object_) == fields
    assert object_["studio"] == served.url.rstrip("/")
    assert object_["model"] == "demo"
    assert set(object_["cached"]) > TIMES
    assert object_["cached"]["tokens"]["encoded"] == 0


@pytest.mark.usefixtures("light")
def test_a_run_of_both_sides_in_the_studio_is_checked_too(
    run_pml: Run, cache: Path, served: Served, tmp_path: Path
) -> None:
    schema, prompt = tmp_path / "schema.pml", tmp_path / "prompt.pml"
    schema.write_text(
        '<schema name="s">Read. <module name="a">One</module><module name="b">Two</module></schema>'
    )
    prompt.write_text('<prompt schema="s"><a/><b/><user>Which?</user></prompt>')
    given = ("run", prompt, "--schema", schema, "--max-new-tokens", "4", "--max-kl", "0")
    given = (*given, "--cache-dir", cache, "--server", served.url)
    handed = run_pml(*given, "--json")
    assert (handed.status, handed.err) == (0, "")
    found = json.loads(handed.out)["reuse"]
    assert found["checked"]
    assert "exceeds the limit of 0" in found["why"]
    words = run_pml(*given).out.splitlines()
    assert words[-2].startswith("Computed by the studio at "), "the figures come before the check"
    assert words[-1] != ""


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), LostError("it is gone")])
@pytest.mark.usefixtures("light")
def test_nothing_in_a_check_of_the_studio_costs_the_answer(
    run_pml: Run, cache: Path, served: Served, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    plain = client.asked

    def cut(*given: Any) -> Iterator[Any]:
        for line in plain(*given):
            yield line
            if line["event"] == "answered":
                raise fault

    monkeypatch.setattr(client, "asked", cut)
    handed = run_pml(*RUN, "--cache-dir", cache, "--server", served.url, "--json")
    assert handed.status == 0, handed.err
    assert json.loads(handed.out)["cached"]["token_ids"]
    assert "The answer is complete" in handed.err


def test_a_check_that_fails_in_the_studio_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of luck")

    prompt = cast("PreparedPrompt", SimpleNamespace(check_answer=fail))
    told = [
        {"event": "reuse", "taken": asdict(ReuseTaken(0, "anchored", "none", (), "", 0.02))},
        {"event": "finished", "side": "cached", "answer": {"token_ids": [1]}},
    ]
    follow(checking(prompt, RunSettings(), told), lambda *_: None, Outcome(), aloud=False)
    assert (
        capsys.readouterr().err == "pml: The answer is complete, but it could not be checked: out of luck\n"
    )
    assert not list(checking(prompt, RunSettings(), told[1:])), "without a promise there is no check"


def test_faults_are_told_alike(run_pml: Run, cache: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "long.pml"
    prompt.write_text(f'<prompt schema="travel"><user>{"word " * 9000}</user></prompt>')
    words = ("run", prompt, "--schema", SCHEMA, "--cache-dir", cache, "--mode", "cached")
    own, handed = run_pml(*words, "--server", "never"), run_pml(*words)
    assert own.status == handed.status == 1
    assert own.err == handed.err
    assert "E502" in own.err


@pytest.mark.usefixtures("light")
def test_the_studio_reads_no_file_for_a_run(run_pml: Run, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "city.txt").write_text("  Lisbon lies by the sea.\n\n  It has trams. ")
    schema, prompt = tmp_path / "s.pml", tmp_path / "p.pml"
    schema.write_text('<schema name="s"><module name="city" src="city.txt"/></schema>')
    prompt.write_text('<prompt schema="s"><city/>What has it?</prompt>')
    words = ("run", prompt, "--schema", schema, "--cache-dir", cache, "--max-new-tokens", "2")
    found = run_pml(*words, "--json")
    assert found.status == 0, found.err
    assert json.loads(found.out)["cached"]["tokens"]["prompt"] > 15


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--cache-dir", "elsewhere"), ""),
        (("--model", "random:llama-100m"), ""),
        (("--verify", "always"), "it was started with --verify first"),
        (("--dtype", "bf16"), "it computes in fp32"),
        (("--quantize", "int8"), "it was started with --quantize none"),
        (("--weights", "plain"), "it was started with --weights auto"),
        (("--date", "2020-01-01"), "its date is today"),
        (("--memory", "1GB"), "it was started with another --memory"),
        (("--server", "never"), ""),
    ],
)
def test_what_the_studio_cannot_do_is_done_here(
    run_pml: Run, cache: Path, words: tuple[str, ...], why: str
) -> None:
    found = run_pml(*RUN, "--cache-dir", cache, *words)
    assert "Loaded" in found.err
    assert (why in found.err) if why else "studio" not in found.err


def test_a_device_and_a_dtype_that_came_of_auto_are_served_by_name(cache: Path) -> None:
    from engine.checkpoint.fingerprint import quantized_fingerprint

    here = held(terms(cache))
    assert here.refusal(terms(cache, device="cpu", dtype="fp32")) == ""
    explicit = held(terms(cache, dtype="fp32"))
    assert explicit.refusal(terms(cache)) == "it computes in fp32"
    rounded = replace(held(terms(cache, quantize="int8")), dtype="bf16")
    rounded = replace(rounded, fingerprint=quantized_fingerprint(rounded.fingerprint, "int8"))
    assert rounded.refusal(terms(cache, quantize="int8")) == ""
    assert rounded.refusal(terms(cache, quantize="int4")) == "it was started with --quantize int8"
    other = replace(here, terms=replace(here.terms, code="other"))
    assert other.refusal(terms(cache)) == "it runs another version of this program"
    changed = replace(here, fingerprint="0" * 32)
    assert "were changed" in changed.refusal(terms(cache))


@pytest.mark.usefixtures("light", "alone")
def test_a_studio_that_is_gone_is_forgotten(run_pml: Run, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
        port = free.server_port
    gone = Presence(port, held(terms(tmp_path / "cache")))
    with gone.told():
        assert present() == [gone]
        found = run_pml(*RUN, "--cache-dir", tmp_path / "cache")
        assert "Loaded" in found.err
        assert "studio" not in found.err
        assert present() == []


@pytest.mark.usefixtures("alone")
def test_only_a_private_file_of_this_machine_is_believed(tmp_path: Path) -> None:
    studio = Presence(7860, held(terms(tmp_path)))
    with studio.told():
        (path,) = folder().iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert folder().stat().st_mode & 0o777 == 0o700
        assert studio.secret not in repr(studio)
        path.chmod(0o644)
        assert present() == []
        path.chmod(0o600)
        assert present() == [studio]
        row = json.loads(path.read_text())
        for change in ({"host": "other"}, {"format": 0}, {"port": 0}, {"secret": ""}, {"held": {}}):
            path.write_text(json.dumps({**row, **change}))
            assert present() == []
        path.write_text("{")
        assert present() == []
        path.write_text(json.dumps(row))
    assert list(folder().iterdir()) == []


@contextmanager
def impostor(
    lines: list[dict[str, Any]], proof: Callable[[str], str], status: int = 200
) -> Iterator[tuple[int, list[Any]]]:
    """Somebody on a port who answers greetings and runs: the port, and the paths and headers that came."""
    heard: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            heard.append((self.path, dict(self.headers)))
            self.send_response(200 if self.path == "/runs/greeting" else status)
            if self.path == "/runs/greeting":
                body = json.dumps({"proof": proof(sent["challenge"])}).encode()
                self.send_header("content-length", str(len(body)))
            else:
                body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = self.path != "/runs/greeting"

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port, heard
        server.shutdown()


@pytest.mark.usefixtures("light", "alone")
def test_who_does_not_know_the_secret_learns_nothing(run_pml: Run, tmp_path: Path) -> None:
    wanted = held(terms(tmp_path))
    with impostor([], lambda challenge: challenge) as (port, heard), Presence(port, wanted).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
    assert "does not know the studio's secret" in found.err
    assert "Loaded" in found.err
    assert [path for path, _ in heard] == ["/runs/greeting"]
    assert not any("authorization" in {name.lower() for name in headers} for _, headers in heard)


BEGUN = {"event": "begun", "placement": "compact", "probe": {}, "keeps": True}
FIRST = {"event": "first token", "side": "cached", "ttft_ms": 1.0, "timeline_ms": {}, "tokens": {}}


@pytest.mark.usefixtures("light", "alone")
@pytest.mark.parametrize("lines", [[], [BEGUN], [BEGUN, FIRST], [{"no": "event"}], [{"event": None}]])
def test_a_studio_that_dies_midway(run_pml: Run, tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    wanted = held(terms(tmp_path))
    secret = "s" * 64
    proof = Presence(1, wanted, secret).proof
    with impostor(lines, proof) as (port, _), Presence(port, wanted, secret).told():
        found = run_pml(*RUN, "--cache-dir", tmp_path)
        as_json = run_pml(*RUN, "--cache-dir", tmp_path, "--json")
    assert found.status == as_json.status == 1
    assert "Loaded" in as_json.err  # nothing was printed, so it can begin anew
    if FIRST in lines:
        assert "gave no complete answer" in found.err
        assert "Loaded" not in found.err
    else:
        assert "does not answer" in found.err
        assert "Loaded" in found.err


def test_a_command_that_hands_over_loads_no_tensors(cache: Path, served: Served) -> None:
    words = [str(word) for word in (*RUN, "--cache-dir", cache, "--server", served.url)]
    code = (
        "import sys, atexit, json\n"
        "atexit.register(lambda: sys.stderr.write(json.dumps(sorted(sys.modules))))\n"
        f"from app.cli import main\nmain({words!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert "first token after" in done.stdout
    heavy = {"torch", "transformers", "numpy", "safetensors", "gradio", "fastapi", "pydantic", "tokenizers"}
    assert not heavy & set(json.loads(done.stderr))


def test_an_answer_stops_when_nobody_listens_any_more() -> None:
    closed, begun = threading.Event(), threading.Event()

    def stream(*_: Any, **__: Any) -> Iterator[Any]:
        from engine.base.events import Delta

        try:
            while True:
                begun.set()
                yield Delta("cached", "more ")
        finally:
            closed.set()

    prompt = SimpleNamespace(stream=stream)
    engine = SimpleNamespace(
        schema=lambda _: SimpleNamespace(prompt=lambda _: prompt),
        placement=lambda wanted: wanted,
        model=SimpleNamespace(probe=SimpleNamespace(to_json=dict)),
        store=SimpleNamespace(settings=SimpleNamespace(budget=1)),
    )
    presence = Presence(1, cast(Held, None))
    handed = Handed()
    handed.open(cast(Engine, engine), presence)
    body = json.dumps({"schema": "", "prompt": "", "settings": {}, "mode": "cached"}).encode()
    said: list[Any] = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if said:
            return said.pop()
        while not begun.is_set():
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    headers = [(b"authorization", f"Bearer {presence.secret}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/runs/answer", "headers": headers}
    asyncio.run(handed.answer(scope, receive, send))
    assert closed.is_set()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"authorization": "Bearer guess"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"sec-fetch-site": "same-origin"}, 403),
        ({"cookie": "a=b"}, 403),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_without_the_secret_no_run_is_answered(served: Served, headers: dict[str, str], status: int) -> None:
    given = {"content-type": "application/json", **headers}
    assert served.send("POST", "/runs/answer", "{}", given).status == status
    assert served.send("GET", "/runs/answer").status == 404
    assert served.send("GET", "/runs/greeting").status == 404


def test_a_wrong_server_is_wrong_usage(run_pml: Run) -> None:
    found = run_pml(*RUN, "--server", "http://example.org:80")
    assert found.status == 2
    assert "must be auto, never or the URL" in found.err
