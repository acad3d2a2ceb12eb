"""Folders of documents as schemas: every text page is in, and what is not is said, with a count by reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.exchange import ExchangeError, FolderOptions, Imported, import_from
from engine.exchange.folder.folder_files import Choice
from engine.exchange.folder.sections import LONG, Split, by_headings, by_tokens
from engine.files.text_files import MAX_BYTES
from engine.pml import Prompt, Schema, bind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema
from engine.pml.tree.conversation import conversation
from tests.drawing import draws

PLAIN = FolderOptions(titles=False)


def write(root: Path, **files: str) -> Path:
    """Writes files below a folder; __ stands for / in their names, and _ before the ending for a dot."""
    for name, text in files.items():
        stem, _, ending = name.replace("__", "/").rpartition("_")
        path = root / f"{stem}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def paths(found: Imported) -> list[str]:
    return [module.path for module in found.schema.modules()]


def documents(found: Imported, base: Path | None = None) -> tuple[Schema, Prompt]:
    """The schema and the prompt, written and read again."""
    assert found.prompt is not None
    schema = parse_schema(write_schema(found.schema), base=base)
    prompt = parse_prompt(write_prompt(found.prompt))
    assert schema.tree is not None
    assert schema.ok, schema.diagnostics[:3]
    assert prompt.tree is not None
    assert prompt.ok, prompt.diagnostics[:3]
    return schema.tree, prompt.tree


def spelled(found: Imported, base: Path | None = None) -> str:
    bound = bind(*documents(found, base))
    assert bound.ok, bound.diagnostics
    return "".join(one.text for one in conversation(bound.parts))


def told(found: Imported, what: str) -> str:
    (note,) = [note for note in found.notes if what in note]
    return note


def mixed(tmp_path: Path) -> Path:
    root = tmp_path / "my docs"
    (root / "sub").mkdir(parents=True)
    (root / "b.md").write_text("# B\n", encoding="utf-8")
    (root / "a b.txt").write_text("A & <b>", encoding="utf-8")
    (root / "sub" / "unit.py").write_text("x = 1\n", encoding="utf-8")
    (root / "empty.txt").write_text(" \n", encoding="utf-8")
    (root / "photo.png").write_bytes(b"\x89PNG\x00")
    (root / "old.txt").write_bytes(b"caf\xe9")
    (root / "bell.txt").write_text("\x07", encoding="utf-8")
    (root / ".hidden").write_text("secret", encoding="utf-8")
    outside = tmp_path / "outside.txt"
    outside.write_text("outside", encoding="utf-8")
    (root / "link.txt").symlink_to(outside)
    (root / "away").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    return root


def test_every_text_of_a_folder_is_a_module_and_each_folder_one_round_its_own(tmp_path: Path) -> None:
    found = import_from(mixed(tmp_path), folder=PLAIN)
    assert found.schema.name == "my-docs"
    assert paths(found) == ["a-b", "b", "sub", "sub/unit.py"]
    assert [line for line in spelled(found).splitlines() if line] == ["A & <b>", "# B", "x = 1"]


def test_what_is_left_out_is_counted_by_reason(tmp_path: Path) -> None:
    found = import_from(mixed(tmp_path))
    reasons = {note.partition("(")[2].partition(")")[0]: note for note in found.notes}
    assert set(reasons) == {
        *("empty", "binary", "not UTF-8", "control characters", "hidden", "links out of the folder"),
        *("links to folders", "not regular files"),
    }
    assert reasons["hidden"] == "1 file left out (hidden): .hidden"


def test_a_kind_is_told_in_one_line_with_a_few_examples(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"p{number}.png").write_bytes(b"\x89PNG\x00")
    write(tmp_path, a_md="A")
    assert import_from(tmp_path).notes == ("7 files left out (binary): p0.png, p1.png, p2.png and 4 more",)


def test_each_document_says_which_it_is(tmp_path: Path) -> None:
    write(tmp_path, guide__install_md="Run it.\n", guide__use_md="Use it.")
    text = spelled(import_from(tmp_path))
    assert text.startswith("Document: guide/install.md\n\nRun it.\n\n")
    assert "Run it.\n\nDocument: guide/use.md\n\nUse it." in text


def test_pictures_written_as_text_are_no_pages(tmp_path: Path) -> None:
    write(tmp_path, a_md="A", drawing_svg="<svg/>", b_xml='<?xml version="1.0"?>\n<!-- x -->\n<svg ></svg>')
    write(tmp_path, app_map="{}", yarn_lock="x", note_ipynb="{}")
    found = import_from(tmp_path)
    assert paths(found) == ["a"]
    assert told(found, "drawings").startswith("5 files left out")
    assert paths(import_from(tmp_path, folder=FolderOptions(Choice(include=("*.svg",))))) == ["drawing.svg"]


def test_globs_choose(tmp_path: Path) -> None:
    write(tmp_path, a_md="A", b_txt="B", drafts__c_md="C", deep__drafts__d_md="D", deep__e_md="E")
    chosen = Choice(include=("*.md",), exclude=("drafts/",))
    found = import_from(tmp_path, folder=FolderOptions(chosen))
    assert paths(found) == ["a", "deep", "deep/e"]
    assert told(found, "--include") == "1 file left out (not in --include): b.txt"
    assert told(found, "--exclude").startswith("2 folders left out (--exclude)")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "is empty"),
        ("!a", "begins with !"),
        ("a*b*c*d*e", "more than 3 stars"),
        ("**/**/**/**/a", "stars"),
    ],
)
def test_patterns_that_are_none(tmp_path: Path, pattern: str, says: str) -> None:
    write(tmp_path, a_md="A")
    with pytest.raises(ExchangeError, match=f"--exclude.*{says}"):
        import_from(tmp_path, folder=FolderOptions(Choice(exclude=(pattern,))))


def test_ignore_rules_count_as_in_git(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/docs/build/\nnotes.md\n", encoding="utf-8")
    docs = write(
        tmp_path / "docs", a_md="A", b_log="B", build__c_md="C", sub__notes_md="N", sub__keep_log="K"
    )
    (docs / "sub" / ".gitignore").write_text("!keep.log\n", encoding="utf-8")
    found = import_from(docs)
    assert paths(found) == ["a", "sub", "sub/keep.log"]
    assert "b.log" in told(found, "files left out (.gitignore)")
    assert told(found, "folder left out (.gitignore)").endswith("build/")


def test_ignore_rules_end_with_their_lines_alone(tmp_path: Path) -> None:
    rules = "x\x0cb.md\ny\u2028c.md\nz\x85d.md\ne.md\r\nf.md\r"
    (tmp_path / ".gitignore").write_bytes(rules.encode())
    found = import_from(write(tmp_path, b_md="B", c_md="C", d_md="D", e_md="E", f_md="F"))
    assert paths(found) == ["b", "c", "d"]


def test_a_folder_that_was_named_is_read_though_rules_round_it_leave_it_out(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n", encoding="utf-8")
    assert paths(import_from(write(tmp_path / "build", a_md="A"))) == ["a"]


def test_secrets_stay_where_they_are(tmp_path: Path) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMII\n"
    write(tmp_path, a_md="A", server_key="k", prod_env="X=1", credentials_json="{}", deploy_txt=key)
    write(tmp_path, secrets_md="How to keep secrets.", keys_md=f"An example:\n{key}")
    found = import_from(tmp_path)
    assert paths(found) == ["a", "keys", "secrets"]
    assert told(found, "secrets").startswith("4 files left out (may contain secrets)")


def test_a_path_that_is_named_is_read_whatever_it_is(tmp_path: Path) -> None:
    write(tmp_path, a_md="A", server_key="k")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "ci.yml").write_text("on: push", encoding="utf-8")
    chosen = Choice(include=("server.key", ".github/ci.yml", "*.md"))
    found = import_from(tmp_path, folder=FolderOptions(chosen))
    assert paths(found) == ["github", "github/ci.yml", "a", "server.key"]


def test_a_second_import_does_not_read_what_the_first_has_written(tmp_path: Path) -> None:
    write(tmp_path, a_md="A")
    first = import_from(tmp_path)
    assert first.prompt is not None
    (tmp_path / "all.pml").write_text(write_schema(first.schema), encoding="utf-8")
    (tmp_path / "all.prompt.txt").write_text(write_prompt(first.prompt), encoding="utf-8")
    again = import_from(tmp_path)
    assert again.schema == first.schema
    assert told(again, "schemas and prompts").startswith("2 files left out")
    (tmp_path / "kept.md").write_text("An older output.", encoding="utf-8")
    chosen = Choice(outputs=(tmp_path / "kept.md",))
    assert import_from(tmp_path, folder=FolderOptions(chosen)).schema == first.schema


def test_names_are_unique_where_they_stand(tmp_path: Path) -> None:
    write(tmp_path, guide_md="1", guide_rst="2", guide__a_md="3", user_md="4", other__guide_md="5")
    found = import_from(tmp_path)
    assert paths(found) == ["guide", "guide-2", "guide-3", "guide-3/a", "other", "other/guide", "user-part"]
    assert spelled(found)


def test_names_beyond_ascii_are_kept_apart(tmp_path: Path) -> None:
    for name in ("東京", "大阪", "Überblick", "a\nb"):
        (tmp_path / f"{name}.md").write_text(name, encoding="utf-8")
    found = import_from(tmp_path)
    assert paths(found) == ["a-b", "Überblick", "大阪", "東京"]
    text = spelled(found)
    assert all(f"Document: {name}.md" in text for name in ("東京", "大阪", "Überblick", "a b"))


def test_modules_can_refer_to_the_files(tmp_path: Path) -> None:
    found = import_from(mixed(tmp_path), folder=FolderOptions(refer=True, beside=tmp_path))
    assert [module.src for module in found.schema.modules() if module.src] == [
        *("my docs/a b.txt", "my docs/b.md", "my docs/sub/unit.py")
    ]
    assert parse_schema(write_schema(found.schema), base=tmp_path).ok
    with pytest.raises(ExchangeError, match="is outside the folder"):
        import_from(tmp_path, folder=FolderOptions(refer=True, beside=tmp_path / "my docs"))


def large(tmp_path: Path, files: int = 8, size: int = 800_000) -> Path:
    for number in range(files):
        (tmp_path / f"page{number}.md").write_text("word " * (size // 5) + f"{number}\n", encoding="utf-8")
    write(tmp_path, small_md="A small page.")
    return tmp_path


def test_texts_beyond_the_size_of_a_document_are_referred_to(tmp_path: Path) -> None:
    found = import_from(large(tmp_path), folder=FolderOptions(beside=tmp_path))
    assert len(paths(found)) == 9
    referred = [module.src for module in found.schema.modules() if module.src]
    assert 0 < len(referred) < 8
    assert "small.md" not in referred
    source = write_schema(found.schema)
    assert len(source.encode()) <= MAX_BYTES
    assert parse_schema(source, base=tmp_path).ok
    assert told(found, "referred to by src").startswith(f"{len(referred)} texts")


@pytest.mark.parametrize("beside", [None, "elsewhere"])
def test_texts_that_cannot_be_referred_to_are_refused_with_what_to_do(
    tmp_path: Path, beside: str | None
) -> None:
    place = None if beside is None else tmp_path / beside
    (tmp_path / "docs").mkdir()
    folder = large(tmp_path / "docs")
    with pytest.raises(ExchangeError, match=r"6\.1 MB of text, and a document holds 5 MB; save .*--include"):
        import_from(folder, folder=FolderOptions(beside=place))


def test_more_than_a_schema_reads_is_refused(tmp_path: Path) -> None:
    folder = large(tmp_path, files=11, size=4_200_000)
    with pytest.raises(ExchangeError, match=r"4\d\.\d MB of text, and a schema reads at most 40 MB"):
        import_from(folder, folder=FolderOptions(beside=folder))


def test_a_text_larger_than_any_file_may_be_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, a_md="A")
    (tmp_path / "dump.sql").write_text("x" * (MAX_BYTES + 1), encoding="utf-8")
    assert told(import_from(tmp_path), "larger than 5 MB").endswith("dump.sql")


def test_more_modules_than_a_document_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.exchange.folder.from_folder.MAX_MODULES", 10)
    for number in range(12):
        (tmp_path / f"{number}.md").write_text("x", encoding="utf-8")
    with pytest.raises(
        ExchangeError, match=r"more than 10 documents, and a schema of a folder holds .*; choose"
    ):
        import_from(tmp_path)


def test_parts_count_as_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.exchange.folder.from_folder.MAX_MODULES", 10)
    write(tmp_path, a_md="word " * 400)
    with pytest.raises(ExchangeError, match="would give 14 modules"):
        import_from(tmp_path, folder=FolderOptions(split=Split(32, lambda text: len(text.split()))))


def test_more_text_than_can_be_held_is_refused_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.exchange.folder.from_folder.MAX_TOTAL", 0)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("word " * 700_000, encoding="utf-8")
    with pytest.raises(ExchangeError, match="has more than 5 MB of text"):
        import_from(tmp_path)


def test_more_files_than_can_be_looked_at_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.exchange.folder.folder_files.MOST_SEEN", 10)
    for number in range(12):
        (tmp_path / f"{number}.png").write_bytes(b"\0")
    with pytest.raises(ExchangeError, match="more than 10 files, too many to look at"):
        import_from(tmp_path)


def test_deep_folders_become_a_schema(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(letter * 100 for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"))
    deep.mkdir(parents=True)
    (deep / "page.md").write_text("Deep.", encoding="utf-8")
    found = import_from(tmp_path)
    assert "Deep." in spelled(found)
    assert max(path.count("/") for path in paths(found)) < 30


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\xff\0")
    with pytest.raises(ExchangeError, match=r"has no text.*left out \(binary\): x\.bin"):
        import_from(tmp_path)


# Parts

PIECES = st.lists(
    st.sampled_from(
        [
            "# One\n",
            "## Two words\n",
            "Title\n=====\n",
            "text ",
            "more text\n",
            "\n",
            "```\n",
            "# code\n",
            "é" * 90,
        ]
    ),
    max_size=60,
).map(lambda pieces: "".join(pieces) * 12)


@settings(max_examples=draws(60), deadline=None)
@given(PIECES)
def test_parts_joined_are_the_text(text: str) -> None:
    assert "".join(one.text for one in by_headings(text)) == text
    parts = by_tokens(text, 20, lambda part: len(part.split()) + len(part) // 40)
    assert "".join(one.text for one in parts) == text


@settings(max_examples=draws(60), deadline=None)
@given(PIECES, st.integers(16, 60))
def test_no_part_has_more_tokens(text: str, most: int) -> None:
    assert all(len(one.text) <= most for one in by_tokens(text, most, len))


def test_long_texts_are_cut_at_headings(tmp_path: Path) -> None:
    body = "Words about it. " * 100
    source = (
        f"# Install\n\n{body}\n\n## Linux\n\n{body}\n```sh\n# no heading\n```\n\nSetup\n=====\n\n{body}\n"
    )
    assert len(source) > LONG
    write(tmp_path, install_md=source, short_md="# Short\n\n## Two\n", code_py=f"# x\n{body * 3}\n# y\n")
    found = import_from(tmp_path, folder=FolderOptions(split=Split()))
    assert paths(found) == [
        "code.py",
        "install",
        "install/Install",
        "install/Linux",
        "install/Setup",
        "short",
    ]
    whole = spelled(found)
    assert "Document: install.md\n\n# Install" in whole
    assert [line for line in source.splitlines() if line and line not in whole] == []


def test_parts_by_tokens_need_something_that_counts(tmp_path: Path) -> None:
    write(tmp_path, a_md="word " * 100)
    with pytest.raises(ExchangeError, match="needs a tokenizer"):
        import_from(tmp_path, folder=FolderOptions(split=Split(64)))
    found = import_from(tmp_path, folder=FolderOptions(split=Split(32, lambda text: len(text.split()))))
    assert len(paths(found)) == 5
    assert spelled(found).split() == ["Document:", "a.md", *["word"] * 100]


def test_no_part_is_empty(tmp_path: Path) -> None:
    write(tmp_path, a_md="\n\n" + "word " * 50 + "\n\n \n\n" + "more " * 50)
    found = import_from(tmp_path, folder=FolderOptions(split=Split(16, lambda text: len(text.split()) or 1)))
    assert [module.path for module in found.schema.modules() if not module.children] == []
    assert spelled(found).split() == ["Document:", "a.md", *["word"] * 50, *["more"] * 50]


def test_a_text_that_was_cut_and_does_not_fit_says_so(tmp_path: Path) -> None:
    section = "## Part\n\n" + "word " * 2000 + "\n\n"
    for number in range(3):
        (tmp_path / f"page{number}.md").write_text(section * 200, encoding="utf-8")
    found = import_from(tmp_path, folder=FolderOptions(beside=tmp_path, split=Split()))
    assert told(found, "not cut").startswith("1 text not cut (referred to by src)")
    assert json.dumps(paths(found)).count("Part") == 400


def test_short_lines_fill_a_document_as_long_ones_do(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(4):  # 3.2 MB in 360,000 lines, and none of them is indented
        (folder / f"page-{number}.txt").write_text("abcdefgh\n" * 90_000, encoding="utf-8")
    found = import_from(folder)
    assert not any("referred" in note for note in found.notes)
    assert parse_schema(write_schema(found.schema)).ok
