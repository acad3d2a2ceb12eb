"""Where the documents of a workspace come from: the bundled samples, or the user's own folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sample_schemas
from app.studio.drafts import Workspace
from app.studio.folder import Folder
from engine.errors import PromptCacheError

FIRST_SAMPLE = "travel"


@dataclass(frozen=True)
class Library:
    """The bundled samples, and the documents of the user's folder if one was named.

    Attributes:
        folder: the one given to `pml studio --schemas`.
    """

    folder: Folder = field(default_factory=Folder)

    def gallery(self) -> list[dict[str, Any]]:
        """The samples as the Gallery shows them."""
        return [
            {
                "name": sample.name,
                "title": sample.title,
                "description": sample.description,
                "prompts": [path.read_text(encoding="utf-8") for path in sample.prompts],
            }
            for sample in sample_schemas.samples()
        ]

    def sample(self, name: str, prompt: int = 0) -> Workspace:
        """A sample with one of its prompts.

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

    def base_of(self, origin: str) -> Path | None:
        """The folder that `src` attributes of a schema of this origin are read from."""
        kind, _, name = origin.partition(":")
        if kind == "file":
            return self.folder.path if self.folder.owns(origin) else None
        if kind == "sample":
            return next((s.schema_path.parent for s in sample_schemas.samples() if s.name == name), None)
        return None
