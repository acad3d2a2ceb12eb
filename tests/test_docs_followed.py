"""The pages are followed as a reader follows them: in their order, in one folder, every command for real."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.cli.command import main, pml
from benchmarks.__main__ import NAME, bench

ROOT = Path(__file__).resolve().parent.parent
ORDER = (
    "README.md",
    "docs/tutorial.md",
    "docs/schemas.md",
    "docs/programs.md",
    "docs/exchange.md",
    "docs/batch.md",
    "docs/decisions.md",
    "docs/embeddings.md",
    "docs/maps.md",
    "docs/editors.md",
    "docs/reuse.md",
    "docs/models.md",
    "docs/troubleshooting.md",
    "docs/store.md",
    "docs/server.md",
    "docs/privacy.md",
)
FENCE = re.compile(r"(?:[Ss]ave (?:this|it)\s+as `([\w./-]+)`[^\n]*:\n\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
THEIRS = {"path/to/model": "model", "PATH_OR_HF_ID": "model", "OWNER/NAME": "model"}
"""What stands for a model of the reader's own: here a copy of the bundled one in another folder."""
FIRST_ANSWER = "In Tokyo, try ramen, tempura and grilled squid."
"""What a newcomer reads first, from either side."""
LONG = (
    "quality\n",
    "quality --suite demo",
    "embed stsb-test.csv",
    "models get",
    "serve",
    "studio",
    "watch",
    "why",
)
"""Minutes long, without an end, or in need of a network or data: another test parses them."""
SHORTER = {"quality sample_schemas": ("--limit", "2")}
"""What is added to a command that would take a minute."""


@dataclass(frozen=True)
class Step:
    """A file to save, or a command to run.

    Attributes:
        page: where it stands.
        saves: name of the file, "" for a command.
        text: of the file, or the command line.
    """

    page: str
    saves: str
    text: str


def steps(page: str) -> list[Step]:
    found = []
    for name, language, text in FENCE.findall((ROOT / page).read_text(encoding="utf-8")):
        if name:
            found.append(Step(page, name, text))
        elif language == "sh":
            lines = (line for line in text.splitlines() if line.startswith(("pml ", f"{NAME} ")))
            found += [Step(page, "", line) for line in lines]
    return found


def words_of(line: str) -> list[str]:
    words = [THEIRS.get(word, word) for word in shlex.split(line.removeprefix(NAME), comments=True)]
    words = words if line.startswith(NAME) else words[1:]
    return [*words, *SHORTER.get(" ".join(words), ())]


def what_a_reader_has(folder: Path) -> None:
    """A clone's samples, notes and questions of their own, and a model of their own."""
    shutil.copytree(ROOT / "sample_schemas", folder / "sample_schemas")
    shutil.copytree(ROOT / "assets" / "demo_model", folder / "model")
    (folder / "notes").mkdir()
    (folder / "notes" / "harbour.md").write_text("# Harbour\n\nThe ferry leaves at nine.\n", encoding="utf-8")
    (folder / "notes" / "market.md").write_text("# Market\n\nIt ends at two.\n", encoding="utf-8")
    question = {"input": "When does the ferry leave?", "context": "It leaves at nine.", "answers": ["nine"]}
    line = json.dumps({**question, "dataset": "hotpotqa", "all_classes": None, "length": 4})
    (folder / "hotpotqa.jsonl").write_text(line + "\n", encoding="utf-8")


def test_every_page_with_commands_is_followed() -> None:
    others = {"benchmarks/RESULTS.md", "CONTRIBUTING.md", "training/README.md"}
    with_commands = {
        str(path.relative_to(ROOT))
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
        if any(not step.saves for step in steps(str(path.relative_to(ROOT))))
    }
    assert with_commands - others <= set(ORDER)


@pytest.mark.parametrize(
    ("pages", "commands"),
    [pytest.param(ORDER, 40, marks=pytest.mark.long), (("docs/tutorial.md", "docs/exchange.md"), 12)],
    ids=["all", "two"],
)
def test_the_pages_can_be_followed_in_one_folder(
    pages: tuple[str, ...],
    commands: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    what_a_reader_has(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "segments"))
    ran = []
    for step in (step for page in pages for step in steps(page)):
        if step.saves:
            Path(step.saves).write_text(step.text, encoding="utf-8")
            continue
        words = words_of(step.text)
        if any(f"{' '.join(words)}\n".startswith(long) for long in LONG) or words[-1].endswith(".gguf"):
            continue
        with pytest.raises(SystemExit) as left:
            main(words, bench if step.text.startswith(NAME) else pml)
        said = capsys.readouterr()
        assert left.value.code == 0, f"{step.page}: {step.text}\n{said.out[-2000:]}{said.err[-2000:]}"
        if step.page == "docs/tutorial.md" and words[0] == "run" and "--json" not in words:
            assert said.out.count(FIRST_ANSWER) == 2, said.out
        ran.append(" ".join(words[:2]))
    assert len(ran) >= commands
