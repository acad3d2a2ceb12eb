"""Where the documents of a workspace come from: the bundled samples, and the user's own folder of schemas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sample_schemas
from app.atomic import write_text
from app.studio.drafts import Workspace
from engine.errors import StudioError

FIRST_SAMPLE = "travel"
LARGEST_FILE = 5_000_000
ENDINGS = (".pml", ".xml")


@dataclass(frozen=True)
class Library:
    """The bundled samples, and the schemas in the user's folder if one was named.

    Attributes:
        folder: the folder given to `pml studio --schemas`, or None.
    """

    folder: Path | None = None

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
            StudioError: there is no such sample.
        """
        for sample in sample_schemas.samples():
            if sample.name == name and 0 <= prompt < len(sample.prompts):
                return Workspace(
                    name=sample.title,
                    schema=sample.schema_path.read_text(encoding="utf-8"),
                    prompt=sample.prompts[prompt].read_text(encoding="utf-8"),
                    origin=f"sample:{name}",
                )
        raise StudioError(
            f"There is no sample {name!r} with a prompt {prompt + 1}. Choose one from the gallery."
        )

    def files(self) -> list[str]:
        """Names of the documents in the user's folder."""
        if self.folder is None or not self.folder.is_dir():
            return []
        return sorted(p.name for p in self.folder.iterdir() if p.suffix.lower() in ENDINGS and p.is_file())

    def read(self, name: str) -> str:
        """The text of one document of the user's folder.

        Raises:
            StudioError: it is gone, too large, or not UTF-8.
        """
        path = self._path(name)
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise StudioError(f"{name!r} is larger than 5 MB. Open a smaller file.")
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise StudioError(
                f"{name!r} is not UTF-8 text (byte {error.start}). Convert it first."
            ) from error
        except OSError as error:
            raise StudioError(f"{name!r} cannot be read: {error.strerror}. Choose another file.") from error

    def write(self, name: str, text: str) -> None:
        """Replace one document of the user's folder.

        Raises:
            StudioError: it cannot be written; the old text is still there.
        """
        path = self._path(name)
        try:
            write_text(path, text)
        except OSError as error:
            raise StudioError(
                f"{name!r} cannot be written: {error.strerror}. The text is kept in your draft; download it."
            ) from error

    def base_of(self, origin: str) -> Path | None:
        """The folder that `src` attributes of a schema of this origin are read from."""
        kind, _, name = origin.partition(":")
        if kind == "file" and self.folder is not None:
            return self.folder
        if kind == "sample":
            return next((s.schema_path.parent for s in sample_schemas.samples() if s.name == name), None)
        return None

    def _path(self, name: str) -> Path:
        if self.folder is None or name not in self.files():
            raise StudioError(
                f"There is no document {name!r} in the studio's folder. Choose one from the list."
            )
        return self.folder / name
