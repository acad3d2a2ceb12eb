"""`pml export` and `pml import`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.commands.export import FORMS
from app.cli.commands.import_ import KINDS
from engine import exchange
from engine.pml import parse_prompt, parse_schema

SCHEMA = (
    '<schema name="trip"><system>Plan.</system><user><module name="days">For <param name="n" len="4"/>.'
    '</module> <module name="rome">Rome.</module></user></schema>'
)
PROMPT = '<prompt schema="trip"><days n="3 days"/><rome/> Food?</prompt>'
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


def test_the_commands_know_the_forms_of_the_engine() -> None:
    assert FORMS == exchange.FORMS
    assert KINDS == exchange.KINDS


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_printed_written_and_reported(
    run_pml: Pml, schema: Path, prompt: Path, tmp_path: Path, form: str
) -> None:
    prompt.write_text(PROMPT.replace("</prompt>", '<decide type="predicate">Is it far?</decide></prompt>'))
    printed = run_pml("export", schema, "--to", form, "--prompt", prompt)
    assert printed.status == 0, printed.err
    folder = tmp_path / "out"
    folder.mkdir()
    assert run_pml("export", schema, "--to", form, "--prompt", prompt, "-o", folder).status == 0
    (file,) = folder.iterdir()
    assert file.read_text(encoding="utf-8").rstrip("\n") == printed.out.rstrip("\n")
    report = json.loads(run_pml("export", schema, "--to", form, "--prompt", prompt, "--json").out)
    assert (report["form"], report["schema"], report["filename"]) == (form, "trip", file.name)
    assert report["text"] == file.read_text(encoding="utf-8")


def test_messages_hold_the_prompt(run_pml: Pml, schema: Path, prompt: Path) -> None:
    result = run_pml("export", schema, "--to", "openai", "--prompt", prompt)
    assert json.loads(result.out)["messages"] == [
        {"role": "system", "content": "Plan."},
        {"role": "user", "content": "For 3 days. Rome. Food?"},
    ]
    assert result.err.startswith("note: 9 of 28 characters stand before the first argument")


def test_nothing_is_replaced_unasked(run_pml: Pml, schema: Path) -> None:
    before = schema.read_text(encoding="utf-8")
    refused = run_pml("export", schema, "--to", "pml", "-o", schema)
    assert (refused.status, schema.read_text(encoding="utf-8")) == (1, before)
    assert "already exists. Use --force" in refused.err
    assert run_pml("export", schema, "--to", "pml", "-o", schema, "--force").status == 0
    assert schema.read_text(encoding="utf-8") != before
    assert not list(schema.parent.glob(".*"))


def test_a_faulty_prompt_is_shown_with_its_line(run_pml: Pml, schema: Path, tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.pml"
    faulty.write_text("<prompt>\n<tokyo/></prompt>", encoding="utf-8")
    result = run_pml("export", schema, "--to", "text", "--prompt", faulty)
    assert result.status == 1
    assert "E402" in result.err
    assert "faulty.pml:2:2" in result.err


def test_messages_are_imported_and_exported_alike(
    run_pml: Pml, schema: Path, prompt: Path, tmp_path: Path
) -> None:
    exported = run_pml("export", schema, "--to", "anthropic", "--prompt", prompt)
    (tmp_path / "chat.json").write_text(exported.out, encoding="utf-8")
    back, asked = tmp_path / "back.pml", tmp_path / "back.prompt.pml"
    result = run_pml("import", tmp_path / "chat.json", "-o", back, "--prompt-output", asked)
    assert result.status == 0, result.err
    assert "back.pml: written" in result.out
    assert parse_schema(back.read_text(encoding="utf-8")).ok
    assert parse_prompt(asked.read_text(encoding="utf-8")).ok
    again = run_pml("export", back, "--to", "text", "--prompt", asked).out
    assert again == run_pml("export", schema, "--to", "text", "--prompt", prompt).out


def test_a_folder_can_be_referred_to(run_pml: Pml, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n", encoding="utf-8")
    (tmp_path / "docs" / "b.bin").write_bytes(b"\xff")
    result = run_pml("import", tmp_path / "docs", "--refer", "-o", tmp_path / "docs.pml", "--json")
    report = json.loads(result.out)
    assert (report["name"], report["modules"], report["prompt"] is None) == ("docs", 1, False)
    assert 'src="docs/a.md"' in (tmp_path / "docs.pml").read_text(encoding="utf-8")
    assert report["notes"][0] == "1 file left out (not UTF-8): b.bin"
    assert run_pml("check", tmp_path / "docs.pml").status == 0
    assert run_pml("import", tmp_path / "docs", "--refer").status == 2


def test_the_last_turn_does_not_vanish(run_pml: Pml, tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(MESSAGES, encoding="utf-8")
    done = run_pml("import", chat, "-o", tmp_path / "a.pml")
    assert (
        "the last turn of the user ('Food?') belongs to the prompt; write it with --prompt-output" in done.err
    )
    assert "Food?" not in run_pml("import", chat, "--prompt-output", tmp_path / "p.pml").err
    assert "Food?" in json.loads(run_pml("import", chat, "--json").out)["prompt"]


def test_a_folder_is_chosen_from_and_cut(run_pml: Pml, tmp_path: Path, tiny_model: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "guide").mkdir(parents=True)
    (docs / "guide" / "long.md").write_text("word " * 200, encoding="utf-8")
    (docs / "draft.md").write_text("Later.", encoding="utf-8")
    (docs / "data.csv").write_text("1,2", encoding="utf-8")
    words = ("--include", "*.md", "--exclude", "draft*", "--split", "tokens:300", "--model", tiny_model)
    out = docs / "docs.pml"
    for _ in range(2):  # what the first import has written is no document of the second
        done = run_pml("import", docs, *words, "-o", out, "--force")
        assert done.status == 0, done.err
        tree = parse_schema(out.read_text(encoding="utf-8")).tree
        assert tree is not None
        paths = [module.path for module in tree.modules()]
        assert paths[:2] == ["guide", "guide/long"]
        assert len(paths) == 6
    for split in ("tokens:3", "tokens:", "pages", "tokens:-1"):
        assert run_pml("import", docs, "--split", split).status == 2


def test_nothing_is_written_where_one_file_is_in_the_way(run_pml: Pml, tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hi"}]', encoding="utf-8")
    (tmp_path / "there.pml").write_text("mine", encoding="utf-8")
    result = run_pml(
        "import",
        tmp_path / "chat.json",
        "-o",
        tmp_path / "new.pml",
        "--prompt-output",
        tmp_path / "there.pml",
    )
    assert result.status == 1
    assert not (tmp_path / "new.pml").exists()
    assert (tmp_path / "there.pml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("page.j2", "{% if %}", "not valid Jinja: line 1"),
        ("trip.py", "def f(p): pass", "there is no program"),
        ("chat.json", "{", "not valid JSON: line 1"),
        ("notes.prompt", "x", "its kind is unclear"),
        ("notes.txt", "Hi {{ name }}", "add --from jinja, or --from text"),
    ],
)
def test_a_faulty_source_is_refused(run_pml: Pml, tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    result = run_pml("import", tmp_path / name)
    assert (result.status, result.out) == (1, "")
    assert says in result.err
    assert "Traceback" not in result.err


def test_a_template_holds_no_prompt(run_pml: Pml, tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{% if a %}{{ b }}{% endif %}", encoding="utf-8")
    result = run_pml("import", tmp_path / "page.j2", "--prompt-output", tmp_path / "p.pml")
    assert result.status == 1
    assert "has no prompt to write" in result.err
    assert 'len="7"' in run_pml("import", tmp_path / "page.j2", "--param-length", "7").out


MESSAGES = json.dumps([{"role": "system", "content": "Plan."}, {"role": "user", "content": "Food?"}])


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("kind", ["alike", "dotted", "symbolic", "hard"])
def test_two_outputs_are_two_files(run_pml: Pml, tmp_path: Path, kind: str, force: tuple[str, ...]) -> None:
    source, one = tmp_path / "chat.json", tmp_path / "both.pml"
    source.write_text(MESSAGES, encoding="utf-8")
    other: Path | str = tmp_path / "other.pml"
    if kind in ("alike", "dotted"):
        other = one if kind == "alike" else f"{tmp_path}/./x/../both.pml"
        (tmp_path / "x").mkdir()
    elif kind == "symbolic":
        Path(other).symlink_to(one)
    else:
        one.write_text("mine", encoding="utf-8")
        Path(other).hardlink_to(one)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    refused = run_pml("import", source, "-o", one, "--prompt-output", other, *force)
    assert refused.status == 2
    assert "name the same file" in refused.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_the_source_is_no_output(run_pml: Pml, tmp_path: Path) -> None:
    source = tmp_path / "chat.json"
    source.write_text(MESSAGES, encoding="utf-8")
    for option in ("-o", "--prompt-output"):
        refused = run_pml("import", source, option, source, "--force")
        assert (refused.status, "names the source file" in refused.err) == (2, True)
    assert source.read_text(encoding="utf-8") == MESSAGES


@pytest.mark.parametrize("obstacle", ["missing/prompt.pml", "folder", "pipe"])
def test_every_output_is_looked_at_before_the_first_is_written(
    run_pml: Pml, tmp_path: Path, obstacle: str
) -> None:
    source, one = tmp_path / "chat.json", tmp_path / "one.pml"
    source.write_text(MESSAGES, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    refused = run_pml("import", source, "-o", one, "--prompt-output", tmp_path / obstacle, "--force")
    assert refused.status == 2
    assert obstacle.partition("/")[0] in refused.err
    assert not one.exists()


def test_only_plain_files_are_replaced(run_pml: Pml, schema: Path, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for target in (pipe, link):
        refused = run_pml("export", schema, "--to", "pml", "-o", target, "--force")
        assert refused.status == 2
        assert "is not a plain file (but a device, pipe or socket)" in refused.err
    assert pipe.is_fifo()


def test_links_in_a_circle_are_no_output(run_pml: Pml, schema: Path, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nText.\n", encoding="utf-8")
    (tmp_path / "loop1").symlink_to("loop2")
    (tmp_path / "loop2").symlink_to("loop1")
    loop = tmp_path / "loop1"
    says = run_pml("export", schema, "--to", "python", "-o", loop).err
    assert "cannot be written: " in says
    for option in ("-o", "--prompt-output"):
        refused = run_pml("import", tmp_path / "a.md", option, loop)
        assert (refused.status, refused.err) == (1, says)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "a.md",
            ["--row", "1"],
            ["--row has no effect here: it applies to files of several conversations or prompts"],
        ),
        (
            "a.md",
            ["--include", "*.md", "--exclude", "b", "--param-length", "32"],
            [
                "--include and --exclude have no effect here: they apply to folders",
                "--param-length has no effect here: it applies to templates",
            ],
        ),
        ("a.md", ["--refer", "-o", "out.pml"], ["--refer has no effect here: it applies to folders"]),
        ("a.md", ["--no-titles"], ["--no-titles has no effect here: it applies to folders"]),
        ("a.md", ["--split", "headings"], []),
        ("a.jinja", ["--split", "headings"], ["--split has no effect here: it applies to folders and texts"]),
        ("a.jinja", ["--param-length", "8"], []),
        ("a.json", ["--row", "1"], []),
        (".", ["--include", "*.md", "--no-titles", "--split", "headings"], []),
    ],
)
def test_options_that_change_nothing_are_told(
    run_pml: Pml,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: list[str],
    says: list[str],
) -> None:
    (tmp_path / "a.md").write_text("# A\n\nText.\n", encoding="utf-8")
    (tmp_path / "a.jinja").write_text("Hello {{ name }}\n", encoding="utf-8")
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "Hi"}]', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = run_pml("import", name, *options, "--json")
    assert done.status == 0, done.err
    notes = json.loads(done.out)["notes"]
    assert [note for note in notes if "no effect here" in note] == says
