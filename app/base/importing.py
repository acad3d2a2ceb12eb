"""Imports as the command line and the studio make them: what can be chosen, and the two texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.exchange import Imported
    from engine.exchange.folder.folder_files import Progress

KINDS = ("messages", "jinja", "folder", "python", "text", "prompty", "langchain", "langfuse", "promptfoo")
DEFAULT_LENGTH = 32  # tokens of a template's parameters
LEAST_TOKENS, MOST_TOKENS = 16, 1_000_000  # of the parts that a text is cut into
OPTIONS_FOR = {
    ("include", "exclude", "titles", "refer"): (("folder",), "folders"),
    ("split",): (("folder", "text"), "folders and texts"),
    ("row",): (("messages", "langfuse", "promptfoo"), "files of several conversations or prompts"),
    ("param_length",): (("jinja", "prompty", "langchain", "langfuse", "promptfoo"), "templates"),
}
"""Options, the kinds that they change, and these in words."""


@dataclass(frozen=True)
class ImportedTexts:
    """An import as documents.

    Attributes:
        found: what was imported.
        schema: the schema's text.
        prompt: the prompt's text; None where the source holds none.
    """

    found: Imported
    schema: str
    prompt: str | None

    @property
    def modules(self) -> int:
        """How many modules the schema has."""
        return len(self.found.schema.modules())


def as_texts(found: Imported, progress: Progress | None = None) -> ImportedTexts:
    """Writes what was imported as documents; `progress` is told, for with many modules it takes a while."""
    from engine.pml.edit.writer import write_prompt, write_schema

    told = progress or _untold
    told(0, 2, "writing the schema")
    schema = write_schema(found.schema)
    told(1, 2, "writing the prompt")
    prompt = write_prompt(found.prompt) if found.prompt is not None else None
    told(2, 2, "")
    return ImportedTexts(found, schema, prompt)


def _untold(_done: int, _total: int, _what: str) -> None:
    """The progress that nobody wants to know."""


def options_of(kind: str) -> list[str]:
    """The options that change something for sources of a kind."""
    return [option for options, (kinds, _) in OPTIONS_FOR.items() if kind in kinds for option in options]
