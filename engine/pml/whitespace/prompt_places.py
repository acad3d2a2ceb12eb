"""Locates the parts of a bound prompt, and the place to write white space between two of them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from engine.pml.diagnostics.diagnostic import NOWHERE, Span, quote
from engine.pml.tree.parts import ArgumentText, NewText, Part, SchemaText, node_of, part_text
from engine.pml.tree.resolution import Resolution
from engine.pml.tree.tree import Prompt, Schema
from engine.pml.whitespace.schema_places import SchemaPlaces, first_words, last_words, module_ended

# follows the last text of an import, where white space is ignored
_ENDS_IMPORT: Final = re.compile(r"(?:\s|<!--.*?-->|<!\[CDATA\[\s*\]\]>)*</", re.DOTALL)


class PromptPlaces:
    """Locates two parts that meet, and the place to write white space between them."""

    def __init__(self, prompt: Prompt, schema: Schema, found: Resolution) -> None:
        self.schema = SchemaPlaces(schema)
        self._prompt = prompt
        self._lines = schema.lines
        self._found = found

    def ends_import(self, text: NewText) -> bool:
        """Whether a text is the last in its import."""
        return bool(_ENDS_IMPORT.match(self._prompt.source, text.span.end))

    def behind_import(self, left: NewText, right: Part, space: str) -> str:
        """Returns the fix if white space after a text is ignored; `space` names the white space to add."""
        where, path = self._of_texts.get(left.span, ("in", ""))
        module = path if where == "in" else path.rpartition("/")[0]
        nothing = "white space at the end of an import is ignored"
        ended = module_ended(module, path_of(right))
        if ended:
            return f"{nothing}, so write {space} {self.schema.behind_module(ended)} in the schema"
        name, single = module.rpartition("/")[2], space.split(" or ")[0]
        return f'{nothing}; write <{name} xml:space="preserve"> and {single} after the text'

    def one_text(self, left: NewText, right: NewText) -> bool:
        """Whether only an invalid tag, and no import, lies between two texts."""
        return self._of_texts.get(left.span) == self._of_texts.get(right.span)

    @cached_property
    def _of_texts(self) -> dict[Span, tuple[str, str]]:
        """The place of the prompt's texts by span: in, before or behind a module, and the module's path.

        Texts read at the end of the prompt are left out.
        """
        imports = self._found
        places = (("in", imports.ending), ("before", imports.before), ("behind", imports.after))
        return {
            text.span: (where, path)
            for where, texts_of in places
            for path, texts in texts_of.items()
            for text in texts
        }

    def import_of(self, left: Part, right: Part) -> Span:
        """Returns the import that makes two parts of the schema adjacent."""
        first, other = path_of(left), path_of(right)
        path = other if len(other.split("/")) >= len(first.split("/")) and other else first
        node = self._found.picks.get(path)
        return node.name_span if node is not None else self._prompt.schema_span

    def meeting(self, left: Part, right: Part) -> str:
        """Describes which parts of the schema meet, with their lines."""
        first, other = path_of(left), path_of(right)
        names = [f"module {quote(first)}", f"module {quote(other)}"]
        if first == other or not first:
            names[0] = f"text {quote(last_words(part_text(left)))}"
        if first == other or not other:
            names[1] = f"text {quote(first_words(part_text(right)))}"
        lines = [self.line(left), self.line(right)]
        return f"in this prompt {names[0]}{lines[0]} of the schema directly precedes {names[1]}{lines[1]}"

    def line(self, part: Part) -> str:
        """Returns the schema line of a part in parentheses, or ""."""
        node = node_of(part)
        return "" if node is None or node.span == NOWHERE else f" (line {self._lines.line(node.span.start)})"


def given(part: Part) -> Span | None:
    """Returns the span of an argument in the prompt, if any."""
    return part.span if isinstance(part, ArgumentText) and part.given else None


def path_of(part: Part) -> str:
    """Returns the path of a part's module, or ""."""
    return part.module if isinstance(part, ArgumentText | SchemaText) else ""
