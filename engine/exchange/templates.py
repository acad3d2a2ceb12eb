"""Turns of templates as a schema: Jinja, Mustache, and the fields of Python's format strings."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError

from engine.exchange.errors import ExchangeError
from engine.exchange.imported import Imported
from engine.exchange.notes import Notes
from engine.exchange.template_reader import Place, TemplateReader
from engine.exchange.turns import ROLE_LINE, ROLES
from engine.pml import RoleName
from engine.programs.build import build_schema
from engine.programs.outline import Compiled, Node, Turn

Form = Literal["jinja", "mustache", "f-string", "plain"]
FORMS: Final = ("jinja", "mustache", "f-string", "plain")

_TAG: Final = re.compile(r"\{\{\{\s*([^{}]*?)\s*\}\}\}|\{\{\s*([#^/!>&]?)\s*([^{}]*?)\s*\}\}")
_PATH: Final = re.compile(r"[^\W\d]\w*(?:[.\[][^.\[\]]+\]?)*")
_BLOCKS: Final = re.compile(r"\{%-?\s*(?:block|extends)\b")


@dataclass(frozen=True)
class TemplateTurn:
    """A turn whose text is a template.

    Attributes:
        role: its role; None for text outside of turns.
        text: the template.
        form: what marks its variables.
        where: what messages call it; empty where lines are enough.
    """

    role: RoleName | None
    text: str
    form: Form = "jinja"
    where: str = ""


def role_turns(source: str, before: RoleName | None) -> tuple[TemplateTurn, ...]:
    """Cuts a template at lines that name a role; none where no such line stands in it.

    Args:
        source: the template.
        before: the role of text before the first such line; None where such a line has to be the first.
    """
    headers = list(ROLE_LINE.finditer(source))
    if not headers or _BLOCKS.search(source):
        return ()
    found = []
    first = source[: headers[0].start()].strip()
    if first and before is None:
        return ()
    if first:
        found.append(TemplateTurn(before, first, where="the text before the first role"))
    for place, header in enumerate(headers):
        end = headers[place + 1].start() if place + 1 < len(headers) else len(source)
        line = source.count("\n", 0, header.start()) + 1
        role = cast(RoleName, ROLES[header[1].lower()])
        body = source[header.end() : end].strip()
        if body:
            found.append(TemplateTurn(role, body, where=f"the turn of line {line}"))
    return tuple(found)


def from_turns(
    turns: Sequence[TemplateTurn],
    name: str,
    length: int,
    *,
    constants: Mapping[str, Any] | None = None,
    defaults: Mapping[str, str] | None = None,
    notes: Notes | None = None,
) -> Imported:
    """Makes a schema of turns.

    Args:
        turns: in their order.
        name: name of the schema.
        length: length of the parameters, in tokens.
        constants: values that variables have, whatever a prompt says.
        defaults: what parameters are where a prompt gives nothing.
        notes: what is to be told besides.

    Raises:
        ExchangeError: a turn is no valid template, or nothing in them has a counterpart.
    """
    reader = TemplateReader(length, constants, defaults)
    top = Place({}, False, True)
    body: list[Node] = []
    for turn in turns:
        try:
            place = top if turn.role is None else top.turn()
            inner = reader.anonymous(reader.body(parsed(turn.text, turn.form), place), top)
        except TemplateSyntaxError as error:
            where = f"{turn.where}, " if turn.where else ""
            raise ExchangeError(
                f"this is not valid Jinja: {where}line {error.lineno}: {error.message}"
            ) from None
        except RecursionError:
            raise ExchangeError("this template is nested too deep to be read; flatten it") from None
        body.extend(inner if turn.role is None else [Turn(turn.role, tuple(inner))] if inner else [])
    if not body:
        raise ExchangeError("; ".join(["nothing in this template can become a schema", *reader.notes[:3]]))
    try:
        schema = build_schema(Compiled(name, (), tuple(body), (), (), None, None))
    except RecursionError:
        raise ExchangeError("this template is nested too deep to be read; flatten it") from None
    told = (*reader.told(), *(notes.told() if notes else ()))
    return Imported(schema, None, told, always=tuple(reader.always))


def parsed(source: str, form: Form) -> list[nodes.Node]:
    """A template as nodes of Jinja.

    Raises:
        ExchangeError: it is no format string, or its sections do not fit together.
        TemplateSyntaxError: it is no Jinja.
    """
    if form == "jinja":
        return Environment(autoescape=False).parse(source).body
    if form == "mustache":
        return _mustache(source)
    if form == "f-string":
        return [nodes.Output(list(_fields(source)), lineno=1)]
    return [nodes.Output([nodes.TemplateData(source, lineno=1)], lineno=1)]


def _fields(source: str) -> Iterator[nodes.Expr]:
    line = 1
    try:
        for text, name, _, _ in string.Formatter().parse(source):
            if text:
                yield nodes.TemplateData(text, lineno=line)
            line += text.count("\n")
            if name is not None:
                yield _variable(name, line)
    except ValueError as error:
        raise ExchangeError(f"this is no format string: {error}; write {{{{ for a brace") from None


def _variable(words: str, line: int) -> nodes.Expr:
    """A variable by its name; what is none stays as an expression that nothing has a counterpart for."""
    if not _PATH.fullmatch(words):
        return nodes.Call(nodes.Name("f", "load", lineno=line), [], [], None, None, lineno=line)
    first, *others = re.split(r"[.\[]", words)
    found: nodes.Expr = nodes.Name(first, "load", lineno=line)
    for one in others:
        found = nodes.Getattr(found, one.rstrip("]").strip("'\""), "load", lineno=line)
    return found


def _mustache(source: str) -> list[nodes.Node]:
    """Variables, sections (what is there where they are true) and inverted sections."""
    bodies: list[list[nodes.Node]] = [[]]
    opened: list[tuple[str, str, int]] = []
    at, line = 0, 1

    def say(found: nodes.Expr) -> None:
        bodies[-1].append(nodes.Output([found], lineno=line))

    for tag in _TAG.finditer(source):
        text = source[at : tag.start()]
        if text:
            say(nodes.TemplateData(text, lineno=line))
        line += text.count("\n")
        sign, words = tag[2] or "", tag[1] or tag[3] or ""
        if sign in ("#", "^"):
            opened.append((sign, words, line))
            bodies.append([])
        elif sign == "/":
            if not opened or opened[-1][1] != words:
                how = f"open it with {{{{#{words}}}}}"
                raise ExchangeError(f"line {line}: {{{{/{words}}}}} ends no section; {how}")
            begun, name, where = opened.pop()
            test = _variable(name, where)
            inner = bodies.pop()
            bodies[-1].append(
                nodes.If(test if begun == "#" else nodes.Not(test, lineno=where), inner, [], [], lineno=where)
            )
        elif sign == ">":
            bodies[-1].append(nodes.Include(nodes.Const(words), False, False, lineno=line))
        elif sign != "!":
            say(_variable(words, line))
        line += tag[0].count("\n")
        at = tag.end()
    if opened:
        raise ExchangeError(f"line {opened[-1][2]}: the section {{{{#{opened[-1][1]}}}}} is never closed")
    if source[at:]:
        say(nodes.TemplateData(source[at:], lineno=line))
    return bodies[0]
