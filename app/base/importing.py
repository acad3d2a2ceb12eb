"""Imports for the command line and the studio: options and resulting texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.exchange import Imported
    from engine.exchange.folder.folder_files import Progress

KINDS = ("messages", "jinja", "folder", "python", "text", "prompty", "langchain", "langfuse", "promptfoo")
DEFAULT_LENGTH = 32  # tokens of a template parameter
LEAST_TOKENS, MOST_TOKENS = 16, 1_000_000  # of the parts of a split text
OPTIONS_FOR = {
    ("include", "exclude", "titles", "refer"): (("folder",), "folders"),
    ("split",): (("folder", "text"), "folders and texts"),
    ("row",): (("messages", "langfuse", "promptfoo"), "files of several conversations or prompts"),
    ("param_length",): (("jinja", "prompty", "langchain", "langfuse", "promptfoo"), "templates"),
}
"""Options, the kinds they apply to, and a description of these."""


@dataclass(frozen=True)
class ImportedTexts:
    """The texts of an import."""

    found: Imported  # the imported document
    schema: str
    prompt: str | None  # text of the prompt; None without a prompt

    @property
    def modules(self) -> int:
        """Returns the number of modules of the schema."""
        return len(self.found.schema.modules())


def as_texts(found: Imported, progress: Progress | None = None) -> ImportedTexts:
    """Writes an import as texts, and reports progress, because many modules take a while."""
    from engine.pml.edit.writer import write_prompt, write_schema

    report = progress or _untold
    report(0, 2, "writing the schema")
    schema = write_schema(found.schema)
    report(1, 2, "writing the prompt")
    prompt = write_prompt(found.prompt) if found.prompt is not None else None
    report(2, 2, "")
    return ImportedTexts(found, schema, prompt)


def _untold(_done: int, _total: int, _what: str) -> None:
    pass


def options_of(kind: str) -> list[str]:
    """Returns the options that apply to a kind of source."""
    return [option for options, (kinds, _) in OPTIONS_FOR.items() if kind in kinds for option in options]
