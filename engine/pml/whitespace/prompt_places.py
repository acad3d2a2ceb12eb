"""Where the parts of a bound prompt come from, and where the white space between two of them is written."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from engine.pml.diagnostics.diagnostic import NOWHERE, Span, quote
from engine.pml.tree.parts import ArgumentText, NewText, Part, SchemaText, node_of, part_text
from engine.pml.tree.resolution import Resolution
from engine.pml.tree.tree import Prompt, Schema
from engine.pml.whitespace.schema_places import SchemaPlaces, first_words, last_words, module_ended

_ENDS_IMPORT: Final = re.compile(r"(?:\s|<!--.*?-->|<!\[CDATA\[\s*\]\]>)*</", re.DOTALL)
"""What stands behind a text that is the last in its import: white space is nothing there."""


class PromptPlaces:
    """Says of two parts that meet where they stand, and what can be written between them."""

    def __init__(self, prompt: Prompt, schema: Schema, found: Resolution) -> None:
        self.schema = SchemaPlaces(schema)
        self._prompt = prompt
        self._lines = schema.lines
        self._found = found

    def ends_import(self, text: NewText) -> bool:
        """Whether a text is the last in its import."""
        return bool(_ENDS_IMPORT.match(self._prompt.source, text.span.end))

    def behind_import(self, left: NewText, right: Part, space: str) -> str:
        """What to do where white space behind a text is nothing; `space` names what is wanted."""
        where, path = self._of_texts.get(left.span, ("in", ""))
        module = path if where == "in" else path.rpartition("/")[0]
        nothing = "white space at the end of an import is nothing"
        ended = module_ended(module, path_of(right))
        if ended:
            return f"{nothing}, so write {space} {self.schema.behind_module(ended)} in the schema"
        name, one = module.rpartition("/")[2], space.split(" or ")[0]
        return f'{nothing}; write <{name} xml:space="preserve"> and {one} behind the text'

    def one_text(self, left: NewText, right: NewText) -> bool:
        """Whether no import stands between two texts, but a tag that is a fault."""
        return self._of_texts.get(left.span) == self._of_texts.get(right.span)

    @cached_property
    def _of_texts(self) -> dict[Span, tuple[str, str]]:
        """Where texts of the prompt are read, by their spans: in, before or behind a module, and its path.

        Those that are read at the end of the prompt are left out.
        """
        found = self._found
        places = (("in", found.ending), ("before", found.before), ("behind", found.after))
        return {
            text.span: (where, path)
            for where, texts_of in places
            for path, texts in texts_of.items()
            for text in texts
        }

    def import_of(self, left: Part, right: Part) -> Span:
        """The import that brings two parts of the schema together."""
        one, other = path_of(left), path_of(right)
        path = other if len(other.split("/")) >= len(one.split("/")) and other else one
        node = self._found.picks.get(path)
        return node.name_span if node is not None else self._prompt.schema_span

    def meeting(self, left: Part, right: Part) -> str:
        """Which parts of the schema meet, each with its line."""
        one, other = path_of(left), path_of(right)
        names = [f"module {quote(one)}", f"module {quote(other)}"]
        if one == other or not one:
            names[0] = f"text {quote(last_words(part_text(left)))}"
        if one == other or not other:
            names[1] = f"text {quote(first_words(part_text(right)))}"
        lines = [self.line(left), self.line(right)]
        return f"in this prompt {names[0]}{lines[0]} of the schema stands right before {names[1]}{lines[1]}"

    def line(self, part: Part) -> str:
        """The line of the schema that a part stands in, in brackets; empty where it stands in none."""
        node = node_of(part)
        return "" if node is None or node.span == NOWHERE else f" (line {self._lines.line(node.span.start)})"


def given(part: Part) -> Span | None:
    """The place of an argument that the prompt gives."""
    return part.span if isinstance(part, ArgumentText) and part.given else None


def path_of(part: Part) -> str:
    """The path of the module that a part comes from; empty where it comes from none."""
    return part.module if isinstance(part, ArgumentText | SchemaText) else ""
