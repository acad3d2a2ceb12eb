"""Small workspaces to begin with, and the user's own text as one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, cast

from app.studio.documents.drafts import Workspace
from engine.base.errors import PromptCacheError
from engine.exchange.folder.from_text import from_text as sections_of
from engine.pml import NAME, Module, Param, Role, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import write_schema

_LENGTH: Final = 10  # tokens of a parameter
_CODE_OR_NAME: Final = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*?(?:^ {0,3}(?P=fence)|\Z)|"
    r"(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|"
    r"\{\{[ \t]*(?P<name>[\w-]+)[ \t]*\}\}",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class StartingPoint:
    """A schema with a prompt.

    Attributes:
        name: the schema's name.
        title: its name on the page.
        about: one sentence on it.
        schema: the schema's source.
        prompt: the prompt's source.
    """

    name: str
    title: str
    about: str
    schema: str
    prompt: str


def _point(name: str, title: str, about: str, schema: str, prompt: str) -> StartingPoint:
    opened, closed = f'<schema name="{name}">\n', "</schema>\n"
    own = f'<prompt schema="{name}">\n{prompt}</prompt>\n'
    return StartingPoint(name, title, about, f"{opened}{schema}{closed}", own)


SUPPORT = """  <system>
    You answer the customers of a shop. Be brief and friendly. Say so if the rules give no answer.
    <module name="returns">
      Returns: customers can return goods within 30 days. The refund arrives within a week.
    </module>
    <module name="shipping">
      Shipping: parcels arrive after three to five days. Orders above 50 euros ship for free.
    </module>
  </system>
  <user>
    <module name="customer">
      My name is <param name="name" len="8"/>.
    </module>
  </user>
"""
DOCUMENTS = """  <system>Answer only from the documents. Say so if they do not have the answer.</system>
  <user>
    <module name="report">
      Replace this text by your first document.
    </module>
    <module name="minutes">
      Replace this text by your second document.
    </module>
  </user>
"""
EXAMPLES = """  <system>Say whether a review is positive or negative. Answer with one word.</system>
  <module name="praise">
    <user>The room was bright and quiet.</user>
    <assistant>positive</assistant>
  </module>
  <module name="complaint">
    <user>Nobody answered the phone for two days.</user>
    <assistant>negative</assistant>
  </module>
"""
AGENT = """  <system>
    You solve tasks with tools. To call a tool, answer with JSON only:
    {"tool": "its name", "arguments": {}}
    <module name="search">
      Tool "search" finds pages. Arguments: {"query": "words to find"}
    </module>
    <module name="calendar">
      Tool "calendar" lists the events of a day. Arguments: {"day": "2026-01-31"}
    </module>
    <module name="mail">
      Tool "mail" sends a message. Arguments: {"to": "address", "text": "the message"}
    </module>
  </system>
"""
POINTS = (
    _point(
        *(
            "support-bot",
            "Support bot",
            "Rules of a shop and the customer's name: pick what a question needs.",
        ),
        *(SUPPORT, '  <returns/>\n  <customer name="Ada"/>\n  Can I send the lamp back?\n'),
    ),
    _point(
        *("my-documents", "Documents", "Questions about long texts: the cache computes each text once."),
        *(DOCUMENTS, "  <report/>\n  What is new in the report?\n"),
    ),
    _point(
        *("reviews", "Few-shot examples", "Solved examples before the task: try them in any choice."),
        *(EXAMPLES, "  <praise/>\n  <complaint/>\n  <user>The soup was cold.</user>\n"),
    ),
    _point(
        *("agent", "Agent with tools", "Descriptions of tools: pick those that a task needs."),
        *(AGENT, "  <search/>\n  <calendar/>\n  <user>When am I free on Friday?</user>\n"),
    ),
)
"""The starting points in the order of the page."""


def starting_point(name: str) -> Workspace:
    """Returns the workspace of a starting point.

    Raises:
        PromptCacheError: there is no such starting point.
    """
    for point in POINTS:
        if point.name == name:
            return Workspace(name, point.schema, point.prompt)
    raise PromptCacheError(f"There is no starting point {name!r}. Choose one from the list.")


def from_text(text: str) -> Workspace:
    """Returns a workspace with a module for each section of the user's text, and parameters for {{names}}.

    Raises:
        PromptCacheError: the text has a character that a document forbids.
    """
    found = sections_of(text.strip(), "text", least=0).schema
    (turn,) = cast("tuple[Role, ...]", found.children)
    children = tuple(_with_parameters(one) if isinstance(one, Module) else one for one in turn.children)
    schema = write_schema(replace(found, name="my-text", children=(replace(turn, children=children),)))
    imports = "".join(f"  <{one.name}/>\n" for one in found.modules())
    return Workspace("my-text", schema, f'<prompt schema="my-text">\n{imports}  Sum it up.\n</prompt>\n')


def _with_parameters(module: Module) -> Module:
    """The module with a parameter instead of each {{name}} outside code."""
    children: list[Text | Param] = []
    text, *seam = cast("tuple[Text, ...]", module.children)
    at = 0
    for found in _CODE_OR_NAME.finditer(text.text):
        name = found["name"]
        if name is not None and NAME.fullmatch(name):
            repeats = any(isinstance(one, Param) and one.name == name for one in children)
            children += (
                Text(text.text[at : found.start()], NOWHERE),
                Param(name, _LENGTH, None, None, NOWHERE, repeats=repeats),
            )
            at = found.end()
    return replace(module, children=(*children, Text(text.text[at:], NOWHERE), *seam))
