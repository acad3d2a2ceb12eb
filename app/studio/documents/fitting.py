"""Checks whether a prompt belongs to a schema, and creates prompts for a schema."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from engine.pml import Argument, Import, Module, Param, Prompt, Schema, bind, parse_prompt
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_prompt

NEW_SCHEMA = """<schema name="untitled">
  <system>You are a helpful assistant.</system>
  <user>
    <module name="notes">
      Write here what several prompts have in common. It is computed once.
    </module>
  </user>
</schema>
"""
NEW_PROMPT = """<prompt schema="untitled">
  <notes/>
  Ask here what is new in each prompt.
</prompt>
"""


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


def _pick(module: Module) -> Import:
    names = [child.name for child in module.children if isinstance(child, Param) and child.default is None]
    arguments = tuple(Argument(name, f"[{name}]", NOWHERE) for name in dict.fromkeys(names))
    return Import(module.name, arguments, (), NOWHERE, NOWHERE)
