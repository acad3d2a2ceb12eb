"""Binds a prompt to its schema: the sequence of parts in the model's reading order.

The rules of the order:

1. The schema is read in order. Its anonymous text and its roles are always included. 2. Places stay, contents
are permuted: within one schema, role or module, the imports fill the places of imported modules in the order
of the prompt. A union is one place. No module leaves its role. 3. Text of the prompt right after an import
follows that import's module. Text before the first import precedes that import's module. 4. Text and turns
after the last top-level import go to the end. Bare text there joins the last turn if that is a user turn and
nothing follows it. After another turn it becomes a new user turn. A role tag is a new turn. A schema without
roles has no turns, and the text just follows. 5. Text nested in an import follows the nested import before
it, or precedes the first nested import. Without nested imports it goes to the end of the module. 6. A
top-level import of a nested module also imports the enclosing modules. 7. A separator between two texts of
one turn is read (`engine.pml.whitespace.separators`). 8. A module of whole turns includes its turns. Such
modules are permuted among themselves (rule 2). Text next to their turns goes to the end (rule 4). 9. A turn
without any text is dropped, both in the schema and in the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.pml.diagnostics.diagnostic import Diagnostic, Reporter, Span, has_errors, quote
from engine.pml.parse.question import check_question
from engine.pml.tree.parts import (
    ArgumentText,
    ModuleEnd,
    ModuleSeam,
    ModuleStart,
    NewText,
    Part,
    RoleClose,
    RoleOpen,
    SchemaText,
    is_seam,
    part_text,
)
from engine.pml.tree.resolution import Resolution, Resolver
from engine.pml.tree.tree import AnswerFormat, Decide, Module, Param, Prompt, Role, Schema, Text, Union
from engine.pml.whitespace.joined_words_in_prompts import check_prompt
from engine.pml.whitespace.separators import Unsettled, own_seam, settled


@dataclass(frozen=True)
class Bound:
    """A prompt bound to a schema.

    Attributes:
        schema: the schema that owns the nodes in the parts.
        parts: in reading order.
        imports: paths of the imported modules in prompt order, including ancestors.
        diagnostics: in the order of the prompt's text.
        questions: the prompt's questions.
        format: the format of the prompt's answer; None for any text.
    """

    schema: Schema
    parts: tuple[Part, ...]
    imports: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    questions: tuple[Decide, ...] = ()
    format: AnswerFormat | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not has_errors(self.diagnostics)


def bind(schema: Schema, prompt: Prompt, earlier: Sequence[Schema] = ()) -> Bound:
    """Binds a prompt to a schema by the rules of this module; with errors, the parts are incomplete.

    Args:
        schema: the schema; its look-up tables are built at the first use.
        prompt: the prompt.
        earlier: earlier versions of the schema, the latest first, to resolve old names.
    """
    report = Reporter(prompt.lines, torn=prompt.torn)
    resolution = Resolver(schema, prompt, report, earlier).resolve()
    _advise(schema, resolution, report)
    read = list(_Emitter(schema, resolution).parts())
    parts = list(_with_words(settled(_add_tail(read, resolution.tail, turns=bool(schema.index.turns)))))
    check_prompt(parts, report, prompt, schema, resolution)
    check_question(parts, prompt, report)
    _check_format(prompt, report)
    picks, questions = tuple(resolution.picks), prompt.questions
    return Bound(schema, tuple(parts), picks, report.finish(), questions, prompt.format)


def _check_format(prompt: Prompt, report: Reporter) -> None:
    """Reports a format whose file was not read, because the prompt has no folder."""
    if prompt.format is not None and prompt.format.text is None:
        message = (
            f"src {quote(prompt.format.src or '')} cannot be read: the prompt has no folder; save it next to "
            "the file first, or write the schema here"
        )
        report.add("E209", message, prompt.format.place)


def _advise(schema: Schema, resolution: Resolution, report: Reporter) -> None:
    """Reports parameters without a value."""
    for path, node in resolution.picks.items():
        module = schema.module(path)
        arguments = resolution.arguments.get(path, {})
        for param in module.params() if module else ():
            if param.default is None and param.name not in arguments:
                message = (
                    f'{quote(param.name)} of {quote(path)} stays empty; give an argument, {param.name}="…"'
                )
                report.add("W604", message, node.name_span, f'{param.name}="…"')


class _Emitter:
    """Walks the schema iteratively, with the imports in their places."""

    def __init__(self, schema: Schema, resolution: Resolution) -> None:
        self._schema = schema
        self._resolution = resolution
        self._queues: dict[tuple[int, bool], list[Module]] = {}
        index = schema.index
        for path in resolution.picks:
            container, module = index.container_of[path], index.by_path[path]
            self._queues.setdefault((id(container), bool(module.turns())), []).append(module)
        for queue in self._queues.values():
            queue.reverse()

    def parts(self) -> Iterator[Unsettled]:
        """Yields the parts of the schema, with the prompt's text between them."""
        picks = self._resolution.picks
        pending: list[Unsettled | _Content] = []
        pending.extend(_Content(child, self._schema, "") for child in reversed(self._schema.children))
        while pending:
            item = pending.pop()
            if not isinstance(item, _Content):
                yield item
                continue
            node, path = item.node, item.path
            if isinstance(node, Text):
                yield SchemaText(node, path)
            elif isinstance(node, Param):
                yield self._argument(node, path)
            elif isinstance(node, Role):
                pending.append(RoleClose(node.role, node, False, path))
                pending.extend(_Content(child, node, path) for child in reversed(node.children))
                yield RoleOpen(node.role, node, False, path)
            elif picked := [member for member in _members(node) if member.path in picks]:
                module = self._queues[id(item.container), bool(picked[0].turns())].pop()
                pending.extend(reversed(list(self._import(module))))

    def _import(self, module: Module) -> Iterator[Unsettled | _Content]:
        resolution, path, seam = self._resolution, module.path, own_seam(module)
        if module.turns():
            for child in module.children:
                yield _Content(child, module, path)
            return
        yield from _new(resolution.before.get(path, ()))
        yield ModuleStart(path)
        for child in module.children[:-1] if seam else module.children:
            yield _Content(child, module, path)
        yield from _new(resolution.ending.get(path, ()))
        yield ModuleEnd(path)
        if seam:
            yield ModuleSeam(path, SchemaText(seam, path))
        yield from _new(resolution.after.get(path, ()))

    def _argument(self, param: Param, path: str) -> ArgumentText:
        argument = self._resolution.arguments.get(path, {}).get(param.name)
        if argument is None:
            return ArgumentText(param, path, param.default or "", False, None)
        return ArgumentText(param, path, argument.value, True, argument.span)


@dataclass(frozen=True, slots=True)
class _Content:
    """A child of the schema that is not walked yet."""

    node: Text | Param | Module | Union | Role
    container: Schema | Role | Module
    path: str


def _members(node: Module | Union) -> tuple[Module, ...]:
    return node.members if isinstance(node, Union) else (node,)


def _new(texts: list[Text] | tuple[Text, ...]) -> Iterator[NewText]:
    for text in texts:
        yield NewText(text.text, text.span, text.seam, text.implied)


def _add_tail(parts: list[Unsettled], tail: list[Text | Role], *, turns: bool) -> list[Unsettled]:
    """Adds the text after the last import, in turns if the schema has turns."""
    for item in tail:
        if isinstance(item, Role):
            turns = True
            parts.append(RoleOpen(item.role, item, True))
            parts.extend(_new([child for child in item.children if isinstance(child, Text)]))
            parts.append(RoleClose(item.role, item, True))
            continue
        text = NewText(item.text, item.span, item.seam, item.implied)
        last = _last_turn(parts)
        if isinstance(last, RoleClose) and last.role == "user":
            parts.insert(len(parts) - 1, text)
        elif not turns:
            parts.append(text)
        elif not item.seam:
            turn = Role("user", (Text(text.text, item.span),), item.span)
            parts.extend((RoleOpen("user", turn, True), text, RoleClose("user", turn, True)))
    return parts


def _last_turn(parts: list[Unsettled]) -> Unsettled | None:
    """Returns the last part, after dropping empty non-user turns at the end."""
    while parts and isinstance(last := parts[-1], RoleClose) and last.role != "user":
        start = max(place for place, part in enumerate(parts) if isinstance(part, RoleOpen))
        if any(map(_says_something, parts[start:])) or _is_told_of(last):
            break
        del parts[start:]
    return parts[-1] if parts else None


def _is_told_of(part: RoleClose) -> bool:
    """Whether a turn counts without text: a tool's turn, or one with tool calls."""
    return part.role == "tool" or bool(part.node.fields)


def _says_something(part: Unsettled) -> bool:
    return (
        isinstance(part, (SchemaText, ArgumentText, NewText)) and not is_seam(part) and bool(part_text(part))
    )


def _with_words(parts: list[Part]) -> Iterator[Part]:
    """Yields the parts without empty turns; a line break replaces an empty turn between texts."""
    turn: list[Part] = []
    last: Part | None = None  # text outside turns
    gone: RoleClose | None = None
    for part in parts:
        if isinstance(part, RoleOpen) or turn:
            turn.append(part)
            if not isinstance(part, RoleClose):
                continue
            if any(map(part_text, turn)) or _is_told_of(part):
                yield from turn
                last = gone = None
            elif last is not None:
                gone = part
            turn = []
            continue
        text = part_text(part)
        if text:
            if gone and last and not (text[0].isspace() or part_text(last)[-1].isspace()):
                place = gone.node.span.end
                yield NewText("\n", Span(place, place), seam=True)
            last, gone = part, None
        yield part
