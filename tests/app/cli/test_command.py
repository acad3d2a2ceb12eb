"""The command line without a model: help, usage, checking documents, faults in words, statuses."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

from app.cli.command import main, pml
from app.cli.lazy_group import Commands
from app.studio.model.api import Offer
from engine.files.text_files import MAX_BYTES

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = """<schema name="trip">
  <system>You plan trips.</system>
  <user>
    <module name="plan">I am away for <param name="duration" len="5"/>.
      <union> <module name="tokyo">Tokyo.</module> <module name="rome">Rome.</module> </union>
    </module>
  </user>
</schema>
"""
PROMPT = (
    '<prompt schema="trip">\n  <plan duration="3 days"> <tokyo/> </plan>\n  Where should I eat?\n</prompt>\n'
)

Pml = Callable[..., SimpleNamespace]


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "trip.pml"
    path.write_text(SCHEMA, encoding="utf-8")
    return path


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    path = tmp_path / "trip.prompt.pml"
    path.write_text(PROMPT, encoding="utf-8")
    return path


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        yield (*path, name), command


ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in commands(pml)]


COMMANDS = """
studio serve ask check format export import run decide embed fidelity layout encode lsp watch cache
models maps why
"""
CACHE = "stats list misses next clear verify prune budget scheme pin unpin export import"
FOLDERS = ("models get", "models remove", "maps build", "maps list", "maps remove")


def test_every_promised_command_is_there() -> None:
    cache = {f"cache {name}" for name in CACHE.split()}
    assert {" ".join(path) for path, _ in commands(pml)} == {*COMMANDS.split(), *cache, *FOLDERS}


@pytest.mark.parametrize(("path", "command"), ALL)
def test_help_explains_the_command_and_each_option(
    path: tuple[str, ...], command: click.Command, run_pml: Pml
) -> None:
    result = run_pml(*path, "--help")
    assert result.status == 0
    assert result.out.startswith(f"Usage: pml {' '.join(path)}")
    assert [o.name for o in command.params if isinstance(o, click.Option) and not o.help] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["check"],
        ["run", "prompt.pml"],
        ["run", "p.pml", "--schema", "s.pml", "--mode", "fast"],
        ["run", "p.pml", "--schema", "s.pml", "--max-new-tokens", "0"],
        ["run", "p.pml", "--schema", "s.pml", "--temperature", "-1"],
        ["layout", "s.pml", "--dtype", "int3"],
        ["studio", "--port", "0"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], run_pml: Pml) -> None:
    result = run_pml(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert "Error:" in result.err


def test_sound_files_pass(schema: Path, prompt: Path, run_pml: Pml) -> None:
    result = run_pml("check", schema, prompt, "--schema", schema)
    assert result.status == 0
    assert result.err == ""
    assert result.out.splitlines() == [f"{schema}: schema, ok", f"{prompt}: prompt, ok"]


def test_a_prompt_alone_is_said_to_be_unbound(prompt: Path, run_pml: Pml) -> None:
    result = run_pml("check", prompt)
    assert result.status == 0
    assert "by itself" in result.out
    assert "--schema" in result.out
    assert json.loads(run_pml("check", prompt, "--json").out)["files"][0]["schema"] is None


def test_a_prompt_finds_its_schema_among_the_files(schema: Path, prompt: Path, run_pml: Pml) -> None:
    assert run_pml("check", prompt, schema).out.splitlines() == [
        f"{prompt}: prompt, ok",
        f"{schema}: schema, ok",
    ]
    prompt.write_text(PROMPT.replace("<tokyo/>", "<tokio/>"), encoding="utf-8")
    result = run_pml("check", prompt, schema, "--json")
    assert result.status == 1
    assert [file["ok"] for file in json.loads(result.out)["files"]] == [False, True]
    assert json.loads(result.out)["files"][0]["schema"] == "trip"


def test_the_samples_have_no_fault(run_pml: Pml) -> None:
    files = sorted((ROOT / "sample_schemas").glob("*.pml"))
    assert len(files) >= 12
    listed = json.loads(run_pml("check", *files, "--json").out)["files"]
    assert {entry["path"]: entry["diagnostics"] for entry in listed if entry["diagnostics"]} == {}
    assert {entry["schema"] for entry in listed if entry["kind"] == "prompt"} == {
        entry["path"].removesuffix(".pml").rpartition("/")[2] for entry in listed if entry["kind"] == "schema"
    }


def test_a_mistake_is_shown_with_its_line_and_a_caret(schema: Path, run_pml: Pml) -> None:
    schema.write_text(SCHEMA.replace('name="rome"', 'name="tokyo"'), encoding="utf-8")
    result = run_pml("check", schema)
    assert result.status == 1
    assert f"{schema}:5:" in result.out
    assert '<module name="tokyo">Rome.' in result.out
    assert "^" in result.out
    assert result.out.splitlines()[-1] == f"{schema}: schema, 1 error"


def test_json_has_the_place_of_every_fault(schema: Path, prompt: Path, run_pml: Pml) -> None:
    prompt.write_text(PROMPT.replace("<tokyo/>", "<tokio/>"), encoding="utf-8")
    result = run_pml("check", schema, prompt, "--schema", schema, "--json")
    assert result.status == 1
    first, second = json.loads(result.out)["files"]
    assert first == {"path": str(schema), "kind": "schema", "ok": True, "diagnostics": []}
    assert (second["path"], second["kind"], second["ok"]) == (str(prompt), "prompt", False)
    (fault,) = [found for found in second["diagnostics"] if found["severity"] == "error"]
    assert set(fault) == {"code", "severity", "message", "line", "column", "end_line", "end_column", "hint"}
    assert fault["line"] == 2
    assert "tokio" in fault["message"]
    assert "tokyo" in fault["message"] + fault["hint"]


def test_a_faulty_schema_stops_a_run_before_the_model_loads(schema: Path, prompt: Path, run_pml: Pml) -> None:
    schema.write_text(SCHEMA.replace("</union>", ""), encoding="utf-8")
    result = run_pml("run", prompt, "--schema", schema, "--model", "no/such/model/anywhere")
    assert result.status == 1
    assert result.out == ""
    assert f"{schema}:" in result.err
    assert "nothing was computed" in result.err


def test_a_prompt_that_does_not_fit_stops_a_run_before_the_model_loads(
    schema: Path, prompt: Path, run_pml: Pml
) -> None:
    prompt.write_text(PROMPT.replace("<tokyo/>", "<tokyo/><rome/>"), encoding="utf-8")
    result = run_pml("run", prompt, "--schema", schema, "--model", "no/such/model/anywhere", "--json")
    assert result.status == 1
    report = json.loads(result.out)
    assert report["files"][0]["path"] == str(prompt)
    assert report["files"][0]["diagnostics"][0]["code"].startswith("E4")
    assert "^" in result.err


def test_standard_input(prompt: Path, run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"<prompt>hello</prompt>")))
    result = run_pml("check", "-", "--json")
    assert result.status == 0
    assert json.loads(result.out)["files"][0]["kind"] == "prompt"


def test_a_file_that_is_too_large_gets_its_sentence(tmp_path: Path, run_pml: Pml) -> None:
    path = tmp_path / "huge.pml"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    checked = run_pml("check", path)
    assert (checked.status, "larger than 5 MB" in checked.err) == (1, True)
    listed = json.loads(run_pml("check", path, "--json").out)["files"][0]
    assert (listed["ok"], "larger than 5 MB" in listed["error"]) == (False, True)
    stopped = run_pml("layout", path)
    assert (stopped.status, "larger than 5 MB" in stopped.err) == (1, True)
    assert len(stopped.err.splitlines()) <= 2


def test_interrupting_is_status_130(schema: Path, run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.commands.check.read_text", interrupt)
    result = run_pml("check", schema)
    assert (result.status, result.err.strip()) == (130, "pml: interrupted")


def test_tracebacks_come_with_debug_only(schema: Path, run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the sky fell")

    monkeypatch.setattr("app.cli.commands.check.read_text", fail)
    plain, debug = run_pml("check", schema), run_pml("check", schema, "--debug")
    assert plain.status == debug.status == 1
    assert plain.err.splitlines()[0] == "pml: unexpected RuntimeError: the sky fell"
    assert "--debug" in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err


def test_python_m_app_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "pml, version 0.1.0\n")


def test_the_studio_gets_its_options(tmp_path: Path, run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    module = ModuleType("app.studio")

    def launch(progress: Any, **how: Any) -> None:
        asked.update(how)
        for done in (3 << 30, 5 << 30):
            progress(done, 5 << 30, "reading model.safetensors")

    import app.studio.model

    module.__dict__.update(launch=launch, model=app.studio.model, __path__=[])
    monkeypatch.setitem(sys.modules, "app.studio", module)
    monkeypatch.setenv("PML_MODEL", "random:llama-100m")
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "cache"))
    result = run_pml("studio", "--port", "7999", "--no-browser", "--schemas", tmp_path)
    assert result.status == 0, result.err
    assert "http://127.0.0.1:7999" in result.out
    assert result.out.count("Reading 5.0 GiB of a model, once") == 1
    assert asked == {
        "model": "random:llama-100m",
        "device": "auto",
        "dtype": "auto",
        "weights": "auto",
        "quantize": "none",
        "date": None,
        "verify": "first",
        "cache_dir": tmp_path / "cache",
        "port": 7999,
        "open_browser": False,
        "schemas_dir": tmp_path,
        "offer": Offer(promise={"reuse": "off", "max_kl": 0.02}),
    }


def test_a_port_in_use_gets_its_sentence(run_pml: Pml) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_pml("studio", "--no-browser", "--port", str(port))
    assert result.status == 1
    assert f"Port {port}" in result.err
    assert "--port" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "does_nothing"),
    [
        ("check", {"device", "dtype", "verify", "memory"}),
        ("models", {"cache_dir", "verify", "memory"}),
        ("layout", {"verify", "memory"}),
    ],
)
def test_no_command_offers_what_does_nothing_there(name: str, does_nothing: set[str]) -> None:
    command = pml.commands[name]
    assert {parameter.name for parameter in command.params} & does_nothing == set()


def test_checking_with_a_model_leaves_the_users_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("PML_CACHE_DIR", str(store))
    schema = tmp_path / "a.pml"
    schema.write_text('<schema name="a"><module name="m">text</module></schema>', encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["check", "--model", "demo", str(schema)])
    assert left.value.code == 0
    assert not store.exists()


def test_a_fault_of_a_commands_module_is_told_as_it_is(
    run_pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_a_fault.py").write_text("{}['lost key']")
    monkeypatch.syspath_prepend(tmp_path)
    places = Commands({"odd": "module_with_a_fault:odd"})
    monkeypatch.setattr(pml, "commands", places)
    assert "odd" in places
    found = run_pml("odd")
    assert found.status == 1
    assert "unexpected KeyError: 'lost key'" in found.err
