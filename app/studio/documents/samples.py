"""Sources of documents: the bundled samples and the user's folder."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import TypedDict

import sample_schemas
from app.studio.documents.drafts import Workspace
from app.studio.documents.folder import Folder
from engine.base.errors import PromptCacheError
from engine.pml import Import, Role, Text, parse_prompt

FIRST_SAMPLE = "travel"
GIST_LENGTH = 150


class SampleTitle(TypedDict):
    """A sample of the File menu."""

    name: str
    title: str


class SamplePrompt(TypedDict):
    """A summary of a sample's prompt: its modules, and its text without markup."""

    picked: list[str]
    words: str


class Sample(TypedDict):
    """A sample in the Gallery; `program` is the source code that its schema was made from, or ""."""

    name: str
    title: str
    description: str
    prompts: list[SamplePrompt]
    program: str


@dataclass(frozen=True)
class Library:
    """The bundled samples, and the user's folder if given.

    Attributes:
        folder: the folder of `pml studio --schemas`.
    """

    folder: Folder = field(default_factory=Folder)

    def titles(self) -> list[SampleTitle]:
        """Returns the samples for the File menu."""
        return [{"name": sample.name, "title": sample.title} for sample in sample_schemas.samples()]

    def gallery(self) -> list[Sample]:
        """Returns the samples for the Gallery."""
        return [
            {
                "name": sample.name,
                "title": sample.title,
                "description": sample.description,
                "prompts": [gist(path.read_text(encoding="utf-8")) for path in sample.prompts],
                "program": sample.program_path.read_text(encoding="utf-8") if sample.program_path else "",
            }
            for sample in sample_schemas.samples()
        ]

    def sample(self, name: str, prompt: int = 0) -> Workspace:
        """Returns a sample with one of its prompts.

        Raises:
            PromptCacheError: there is no such sample.
        """
        for sample in sample_schemas.samples():
            if sample.name == name and 0 <= prompt < len(sample.prompts):
                return Workspace(
                    name=sample.title,
                    schema=sample.schema_path.read_text(encoding="utf-8"),
                    prompt=sample.prompts[prompt].read_text(encoding="utf-8"),
                    origin=f"sample:{name}",
                    prompt_origin=f"sample:{name}",
                )
        raise PromptCacheError(
            f"There is no sample {name!r} with a prompt {prompt + 1}. Choose one from the gallery."
        )

    def is_sample(self, name: str, workspace: Workspace) -> bool:
        """Whether a workspace has the unchanged texts of a sample."""
        with contextlib.suppress(PromptCacheError):
            for prompt in itertools.count():
                if self.sample(name, prompt).same_text(workspace):
                    return True
        return False

    def base_of(self, origin: str) -> Path | None:
        """Returns the folder for `src` attributes of a schema with this origin."""
        kind, _, name = origin.partition(":")
        if kind == "file":
            return Path(name).parent if self.folder.owns(origin) else None
        if kind == "sample":
            return next((s.schema_path.parent for s in sample_schemas.samples() if s.name == name), None)
        return None


def gist(prompt: str) -> SamplePrompt:
    """Returns a readable summary of a prompt."""
    picked: list[str] = []
    words: list[str] = []
    tree = parse_prompt(prompt).tree
    pending: list[object] = list(reversed(tree.children)) if tree is not None else []
    while pending:
        node = pending.pop()
        match node:
            case Text():
                words += node.text.split()
            case Import():
                picked.append(node.name)
                pending.extend(reversed(node.children))
            case Role():
                pending.extend(reversed(node.children))
    line = " ".join(words)
    return {
        "picked": picked,
        "words": line if len(line) <= GIST_LENGTH else f"{line[: GIST_LENGTH - 1].rstrip()}…",
    }
