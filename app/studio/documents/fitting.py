"""Whether a prompt is one of a schema, and a prompt to begin with. Pure functions of the texts."""

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
    """Whether a prompt is meant for a schema, faults or not.

    It is for another one if it names another, or if it has imports and none of them is a module of this one.
    A prompt that cannot be read at all is never taken for another's, and an empty text is for none.
    """
    if not prompt.strip():
        return False
    tree = parse_prompt(prompt).tree
    if tree is None:
        return True
    if tree.schema and schema.name and tree.schema != schema.name:
        return False
    wanted = any(isinstance(child, Import) for child in tree.children)
    return not wanted or bool(bind(schema, tree).imports)


def fresh_prompt(schema: Schema) -> str:
    """A prompt of a schema that imports nothing yet."""
    named = f" schema={quoteattr(schema.name)}" if schema.name else ""
    return f"<prompt{named}>\n</prompt>\n"


def prompt_of(schema: Schema, names: Sequence[str]) -> str:
    """A prompt that picks modules at the top of a schema.

    A parameter keeps its default; one without has its name in brackets, which is to be written over.
    """
    picked = [module for name in names if (module := schema.module(name)) is not None]
    if not picked:
        return fresh_prompt(schema)
    return write_prompt(Prompt(schema.name, tuple(map(_pick, picked)), NOWHERE))


def _pick(module: Module) -> Import:
    wanted = [one.name for one in module.children if isinstance(one, Param) and one.default is None]
    arguments = tuple(Argument(name, f"[{name}]", NOWHERE) for name in dict.fromkeys(wanted))
    return Import(module.name, arguments, (), NOWHERE, NOWHERE)
