"""Checks whether a prompt belongs to a schema, and creates prompts for a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from app.studio.documents.starting_points import POINTS
from engine.pml import (
    Argument,
    Import,
    Module,
    Param,
    Prompt,
    Schema,
    bind,
    parse_prompt,
    parse_schema,
    read_picks,
    set_pick,
)
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_prompt
from engine.pml.xml.escaping import escaped_text, escaped_value

_SCHEMA_OF_PROMPT = re.compile(r"""(<prompt\b[^>]*?\bschema\s*=\s*)(["'])(.*?)\2""", re.DOTALL)
_IMPORT = re.compile(r"(<[\w.-]+/>)")


def fits(schema: Schema, prompt: str) -> bool:
    """Whether a prompt belongs to a schema, with or without errors.

    It does not if it names another schema, has imports that all fail, or is empty. A prompt that cannot be
    parsed is assumed to belong.
    """
    if not prompt.strip():
        return False
    tree = parse_prompt(prompt).tree
    if tree is None:
        return True
    if tree.schema and schema.name and tree.schema != schema.name:
        return False
    imports = any(isinstance(child, Import) for child in tree.children)
    return not imports or bool(bind(schema, tree).imports)


def fresh_prompt(schema: Schema) -> str:
    """Returns a prompt for a schema without imports."""
    named = f" schema={quoteattr(schema.name)}" if schema.name else ""
    return f"<prompt{named}>\n</prompt>\n"


def prompt_of(schema: Schema, names: Sequence[str]) -> str:
    """Returns a prompt that imports modules at the top of a schema.

    Parameters keep their defaults. One without a default gets its name in brackets as a placeholder.
    """
    picked = [module for name in names if (module := schema.module(name)) is not None]
    if not picked:
        return fresh_prompt(schema)
    return write_prompt(Prompt(schema.name, tuple(map(_pick, picked)), NOWHERE))


def followed(schema: Schema, prompt: str, former: str) -> str:
    """Returns a prompt of a schema's former text under the schema's new name.

    Imports of a starting point that the schema lacks now are removed. Other prompts stay.
    """
    old, tree = parse_schema(former).tree, parse_prompt(prompt).tree
    if old is None or tree is None or not schema.name or tree.schema != old.name:
        return prompt
    if any(point.schema == former for point in POINTS):
        for path in reversed(read_picks(prompt, old).paths):
            if schema.module(path) is None:
                prompt = set_pick(prompt, old, path, False)

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{escaped_value(schema.name or '', found[2])}{found[2]}"

    result = _SCHEMA_OF_PROMPT.sub(renamed, prompt, count=1)
    after = parse_prompt(result).tree
    return result if after is not None and after.schema == schema.name else prompt


def wrapped(schema: Schema | None, text: str) -> str:
    """Returns plain text as a prompt; imports of the schema's modules stay imports."""
    imports = {f"<{module.name}/>" for module in schema.modules()} if schema is not None else set()
    pieces = _IMPORT.split(text.strip())
    words = "".join(piece if piece in imports else escaped_text(piece) for piece in pieces)
    named = f" schema={quoteattr(schema.name)}" if schema is not None and schema.name else ""
    return f"<prompt{named}>\n  {words}\n</prompt>\n" if words else f"<prompt{named}>\n</prompt>\n"


def _pick(module: Module) -> Import:
    names = [child.name for child in module.children if isinstance(child, Param) and child.default is None]
    arguments = tuple(Argument(name, f"[{name}]", NOWHERE) for name in dict.fromkeys(names))
    return Import(module.name, arguments, (), NOWHERE, NOWHERE)
