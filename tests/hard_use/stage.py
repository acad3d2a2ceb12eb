"""What scenes share: a scratch folder, the command line on it, documents, and small models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = """<schema name="trip">
  <system>You are a travel planner.</system>
  <user>
    <module name="plan">I want to be away for <param name="duration" len="5"/>.</module>
    <module name="tokyo">Tokyo has more bookshops than I can see, and its trains run until midnight.</module>
  </user>
</schema>
"""
PROMPT = '<prompt schema="trip"><plan duration="3 days"/><tokyo/>Where should I eat?</prompt>\n'
PATIENCE = 120.0  # seconds for one command; what takes longer counts as hanging


class BrokenError(Exception):
    """A scene did not hold; the message says what was seen."""


class UnplayableError(Exception):
    """A scene cannot be played here; the message says why."""


@dataclass(frozen=True)
class Ran:
    """One command that has ended.

    Attributes:
        status: its exit status; None where it was stopped for taking too long.
    """

    status: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err

    @property
    def crashed(self) -> bool:
        """Whether a fault of our own showed through, or the process died or hung."""
        return self.status is None or self.status < 0 or "Traceback" in self.said or "unexpected " in self.err


@dataclass(frozen=True)
class Stage:
    """A scratch folder with a schema and a prompt in it.

    Attributes:
        folder: of this scene alone.
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> Stage:
        """Makes the folder with its documents."""
        folder.mkdir(parents=True)
        (folder / "schema.pml").write_text(SCHEMA, encoding="utf-8")
        (folder / "prompt.pml").write_text(PROMPT, encoding="utf-8")
        return cls(folder)

    @property
    def cache(self) -> Path:
        """The folder of the store."""
        return self.folder / "cache"

    def pml(self, *words: str, before: Callable[[], None] | None = None, patience: float = PATIENCE) -> Ran:
        """Runs a command in the folder, on its own store.

        Args:
            words: after `pml`.
            before: called in the new process before it begins, to take something from it.
            patience: seconds.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PML_CACHE_DIR": str(self.cache),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "app", *words]
        try:
            ended = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=patience,
                check=False,
                preexec_fn=before,
            )
        except subprocess.TimeoutExpired:
            return Ran(None, "", f"it was still running after {patience:.0f} s")
        return Ran(
            ended.returncode, ended.stdout.decode("utf-8", "replace"), ended.stderr.decode("utf-8", "replace")
        )

    def run(self, *more: str, mode: str = "cached", **how: Any) -> Ran:
        """Answers the prompt from the store, eight tokens of it."""
        words = ("prompt.pml", "--schema", "schema.pml", "--mode", mode, "--max-new-tokens", "8", "--json")
        return self.pml("run", *words, *more, **how)

    def filled(self) -> None:
        """Fills the store by answering once."""
        answered(self.run())

    def model(self, **changes: Any) -> Path:
        """A copy of the bundled model; `changes` go into its configuration."""
        from engine.checkpoint.checkpoint import DEMO_FOLDER

        folder = self.folder / "model"
        shutil.copytree(DEMO_FOLDER, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
        return folder

    def template(self, folder: Path, source: str) -> None:
        """Gives a model another chat template."""
        (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config.pop("chat_template", None)
        path.write_text(json.dumps(config), encoding="utf-8")


def require(holds: bool, seen: str) -> None:
    """Ends a scene that does not hold.

    Raises:
        BrokenError: it does not.
    """
    if not holds:
        raise BrokenError(" ".join(seen.split())[-300:])


def answered(ran: Ran, side: str = "cached") -> dict[str, Any]:
    """The answer of a run.

    Raises:
        BrokenError: there is none.
    """
    require(ran.status == 0, f"no answer: status {ran.status}: {ran.err or ran.out}")
    found: dict[str, Any] = json.loads(ran.out)[side]
    return found


def refused(ran: Ran, *words: str) -> None:
    """Requires a refusal in words.

    Raises:
        BrokenError: it was none.
    """
    require(not ran.crashed and ran.status == 1, f"status {ran.status}: {ran.said}")
    for word in words:
        require(word in ran.said, f"{word!r} is not in: {ran.said}")
