"""Builds a schema from data, such as files, table rows or service responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.base.errors import PromptCacheError
from engine.pml import NAME, RESERVED, Module, Param, Role, RoleName, Scaffold, Schema, Text, Union
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.writer import WriteError, write_schema
from engine.pml.parse.sources import SourceError, Sources
from engine.pml.parse.turn_checks import TURNS_RULE
from engine.pml.whitespace.rules import normalise
from engine.pml.whitespace.separators import SEAMS
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.names import NAME_RULE, ROLES
from engine.programs.compile.naming import legible, unique
from engine.programs.layout import set_apart, set_apart_inside
from engine.programs.source.parameters import MAX_LENGTH


class SchemaError(PromptCacheError):
    """The data does not form a valid schema.

    Attributes:
        faults: every error, as a sentence that begins with the code of the same error in a document.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(faults[0] + more)


@dataclass(frozen=True)
class Slot:
    """A parameter of a module: text of at most `length` tokens that a prompt provides.

    The same parameter again in its module repeats the argument.

    Attributes:
        name: its name.
        length: the maximum number of tokens of an argument.
        default: the text if a prompt provides none.
        scaffold: placeholder text while the module is encoded.
    """

    name: str
    length: int
    default: str | None = None
    scaffold: str | None = None


class Turn:
    """A whole turn in a top-level module or union member, which a prompt may leave out.

    Its content is as for a module; parameters belong to the module.
    """

    def __init__(self, role: RoleName, *content: Content) -> None:
        self.role, self.content = role, content


class Part:
    """A module for use inside another module or a union, with arguments as for `SchemaBuilder.module`."""

    def __init__(self, name: str, *content: Content, cache: bool = True, src: str | None = None) -> None:
        self.name, self.content, self.cache, self.src = name, content, cache, src


# members of a union: modules, or texts by module name
Choice = Mapping[str, str] | list[Part] | tuple[Part, ...]

Content = str | Slot | Part | Choice | Turn  # content of a module


class SchemaBuilder:
    """Builds a schema step by step; each method returns the builder.

    The text of a module is used verbatim, including white space. A separator is added between modules and the
    texts next to them. White space at the ends of such texts is ignored, as in a document. After a call of
    `system`,
    `user` or `assistant`, additions belong to that turn until the next turn or module of turns.

    Args:
        name: name of the schema.
        base: the folder of `src` files.
        seam: the separator between additions: a line break, two for a blank line, a space, or "". With "",
            texts next to modules are verbatim too.
    """

    def __init__(self, name: str, *, base: Path | None = None, seam: str = "\n") -> None:
        self._name, self._base, self._seam = name, base, seam
        self._files = Sources()
        self._children: list[Any] = []
        self._turn: list[Any] | None = None
        self._scaffolds: list[Scaffold] = []
        self._faults: list[str] = []
        if seam not in SEAMS:
            self._faults.append(
                f"{seam!r} is not a separator; use a line break, two for a blank line, a space, or "
            )

    def system(self, text: str = "") -> SchemaBuilder:
        """Begins the system turn, with this text."""
        return self._begin("system", text)

    def user(self, text: str = "") -> SchemaBuilder:
        """Begins a user turn, with this text."""
        return self._begin("user", text)

    def assistant(self, text: str = "") -> SchemaBuilder:
        """Begins an assistant turn, with this text."""
        return self._begin("assistant", text)

    def text(self, text: str) -> SchemaBuilder:
        """Adds text that is part of every prompt."""
        return self._add(self._line(text))

    def module(
        self, name: str, *content: Content, cache: bool = True, src: str | None = None
    ) -> SchemaBuilder:
        """Adds a module.

        Args:
            name: its name.
            content: its texts, parameters, modules, and unions (lists of `Part`, or mappings to texts); or
                only whole turns.
            cache: False if it is computed in every prompt and never stored.
            src: a file with its text; then it has no other content.
        """
        module = self._module(Part(name, *content, cache=cache, src=src), "")
        return self._add([module], outside=bool(module.turns()))

    def union(self, *members: Part | Mapping[str, str]) -> SchemaBuilder:
        """Adds modules, or texts by module name, of which a prompt imports at most one."""
        parts: list[Part] = []
        for member in members:
            parts.extend([member] if isinstance(member, Part) else _parts(member))
        union = self._union(parts, "")
        return self._add([union], outside=any(member.turns() for member in union.members))

    def scaffold(self, *paths: str) -> SchemaBuilder:
        """Lists modules, by their paths, that are also encoded together."""
        self._scaffolds.append(Scaffold(paths, NOWHERE))
        return self

    def name(self, words: str) -> str:
        """Returns a valid, unused name for a top-level module, made of a title or file name."""
        return unique(legible(words), dict.fromkeys(self._top(), 0), 0)

    def pml(self) -> str:
        """Returns the schema as a document.

        Raises:
            SchemaError: the document would have errors; the exception lists all of them.
        """
        return self._checked()[1]

    def schema(self) -> Schema:
        """Returns the schema as `parse_schema` does, but its nodes have no spans.

        Raises:
            SchemaError: the document would have errors; the exception lists all of them.
        """
        return self._checked()[0]

    def _checked(self) -> tuple[Schema, str]:
        turns = (
            Role(child[0], set_apart(child[1], self._seam), NOWHERE) if isinstance(child, tuple) else child
            for child in self._children
        )
        children = set_apart(list(turns), self._seam)
        schema = Schema(self._name, children, tuple(self._scaffolds), NOWHERE)
        faults = (*self._faults, *faults_of(schema))
        if faults:
            raise SchemaError(faults)
        try:
            return schema, write_schema(schema)
        except WriteError as error:
            raise SchemaError((str(error),)) from None

    def _top(self) -> Iterator[str]:
        for child in self._children:
            for node in child[1] if isinstance(child, tuple) else (child,):
                yield from (module.name for module in _modules(node))

    def _begin(self, role: RoleName, text: str) -> SchemaBuilder:
        self._turn = []
        self._children.append((role, self._turn))
        return self._add(self._line(text))

    def _line(self, text: str) -> list[Any]:
        """Returns text next to modules."""
        return _text(normalise(text) if self._seam else text)

    def _add(self, nodes: list[Any], *, outside: bool = False) -> SchemaBuilder:
        """Adds to the open turn; content outside of turns closes it."""
        if outside:
            self._turn = None
        (self._children if self._turn is None else self._turn).extend(nodes)
        return self

    def _module(self, part: Part, above: str) -> Module:
        path = f"{above}/{part.name}" if above else part.name
        children = tuple(node for content in part.content for node in self._nodes(content, path))
        if part.src is not None:
            if children:
                self._faults.append(f"E210, {path} has the text of {part.src}; give it no other content")
            try:
                children = tuple(_text(self._files.read(part.src, self._base)))
            except SourceError as error:
                self._faults.append(f"{error.code}, {path}: {error}")
        inside = set_apart_inside(list(children), self._seam)
        return Module(part.name, path, _repeating(inside), part.cache, part.src, NOWHERE, NOWHERE)

    def _union(self, parts: list[Part], above: str) -> Union:
        return Union(tuple(self._module(part, above) for part in parts), None, NOWHERE)

    def _nodes(self, content: Content, path: str) -> list[Any]:
        match content:
            case str():
                return _text(content)
            case Slot(name, length, default, scaffold):
                return [Param(name, length, default, scaffold, NOWHERE)]
            case Part():
                return [self._module(content, path)]
            case Turn():
                inside = [node for inner in content.content for node in self._nodes(inner, path)]
                return [Role(content.role, set_apart_inside(inside, self._seam), NOWHERE)]
        return [self._union(_parts(content), path)]


def _parts(choice: Choice) -> list[Part]:
    if isinstance(choice, Mapping):
        return [Part(name, text) for name, text in choice.items()]
    return list(choice)


def _text(text: str) -> list[Any]:
    return [Text(text, NOWHERE)] if text else []


def _repeating(children: Iterable[Any], firsts: dict[str, Param] | None = None) -> tuple[Any, ...]:
    """Returns the children of a module, with repeated parameters marked."""
    firsts = {} if firsts is None else firsts
    result: list[Any] = []
    for child in children:
        if isinstance(child, Role):
            child = replace(child, children=_repeating(child.children, firsts))
        elif isinstance(child, Param):
            first = firsts.setdefault(child.name, child)
            child = replace(child, repeats=True) if first is not child and first == child else child
        result.append(child)
    return tuple(result)


def _modules(node: Any) -> tuple[Module, ...]:
    if isinstance(node, Module):
        return (node,)
    return node.members if isinstance(node, Union) else ()


def faults_of(schema: Schema) -> list[str]:
    """Returns the errors that a document of this schema would have in names, parameters and characters."""
    faults: list[str] = []
    if not NAME.fullmatch(schema.name):
        faults.append(f"E301, {schema.name!r} cannot name a schema: {NAME_RULE}")
    pending: list[tuple[Any, str, set[str], set[str], bool]] = [(schema, "", set(), set(), True)]
    while pending:
        node, path, taken, params, outermost = pending.pop()
        for child in node.members if isinstance(node, Union) else node.children:
            match child:
                case Text(text):
                    faults.extend(_of_text(text, path or "the schema"))
                case Param():
                    faults.extend(_of_slot(child, path))
                    if child.repeats:
                        continue
                    if child.name in params:
                        remedy = "rename one, or repeat it as it is"
                        faults.append(f"E304, {child.name} is defined twice in {path}; {remedy}")
                    params.add(child.name)
                case Module():
                    faults.extend(_of_name(child, taken))
                    faults.extend(_of_turns(child, outermost))
                    taken.add(child.name)
                    pending.append((child, child.path, set(), set(), False))
                case Role() if child.role not in ROLES:
                    faults.append(f"E205, {child.role!r} is not a turn; use one of {', '.join(ROLES)}")
                case Role() if isinstance(node, Role):
                    faults.append(f"E206, {path} has a turn inside a turn; {TURNS_RULE}")
                case _:
                    pending.append((child, path, taken, params, outermost and isinstance(child, Union)))
    return faults


def _of_turns(module: Module, outermost: bool) -> Iterator[str]:
    turns = len(module.turns())
    if turns and not outermost:
        yield f"E206, {module.path} has turns; {TURNS_RULE}"
    elif turns and turns < len(module.children):
        yield f"E212, {module.path} mixes whole turns with other content; put that content into turns too"


def _of_text(text: str, place: str) -> Iterator[str]:
    bad = forbidden_character(text)
    if bad is not None:
        yield f"E103, {place} contains {bad!r}, which documents cannot contain; remove it"


def _of_name(module: Module, taken: set[str]) -> Iterator[str]:
    name, path = module.name, module.path
    if not NAME.fullmatch(name):
        yield f"E301, {name!r} cannot name a module: {NAME_RULE}; the builder's name({name!r}) makes one"
    elif name in RESERVED:
        yield f"E303, {path} is an element of PML, so modules cannot have that name; rename it"
    elif name in taken:
        yield f"E302, two modules have the name {path}; rename one, or nest it"


def _of_slot(param: Param, path: str) -> Iterator[str]:
    if not NAME.fullmatch(param.name):
        yield f"E301, {param.name!r} in {path} cannot name a parameter: {NAME_RULE}"
    if type(param.length) is not int or not 1 <= param.length <= MAX_LENGTH:
        limits = f"a whole number of tokens from 1 to {MAX_LENGTH}"
        yield f"E204, the length of {param.name} in {path} must be {limits}"
    for text in (param.default, param.scaffold):
        yield from _of_text(text or "", f"{param.name} in {path}")
