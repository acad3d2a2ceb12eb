"""A schema that is put together from data: texts of files, rows of a table, what a service answers."""

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
    """What was put together is no schema.

    Attributes:
        faults: every fault, as a sentence that begins with the code that a document would have it under.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(faults[0] + more)


@dataclass(frozen=True)
class Slot:
    """A parameter of a module: text of at most `length` tokens, which a prompt gives.

    The same one again in its module repeats the argument.

    Attributes:
        name: its name.
        length: the most tokens that an argument may have.
        default: the text where a prompt gives none.
        scaffold: text that stands in for the argument while the module is encoded.
    """

    name: str
    length: int
    default: str | None = None
    scaffold: str | None = None


class Turn:
    """A whole turn in a module at the top, or in a member of a union there: a prompt may leave it out.

    Args:
        role: `system`, `user` or `assistant`.
        content: what stands in it, as in a module; parameters are those of the module.
    """

    def __init__(self, role: RoleName, *content: Content) -> None:
        self.role, self.content = role, content


class Part:
    """A module on its own, for a place within another module or in a union.

    Args:
        name: its name.
        content: its texts, parameters, modules, and unions (lists of `Part`, or mappings to texts); or
            whole turns alone.
        cache: False where it is computed in every prompt and never stored.
        src: a file whose text it holds; then it has no other content.
    """

    def __init__(self, name: str, *content: Content, cache: bool = True, src: str | None = None) -> None:
        self.name, self.content, self.cache, self.src = name, content, cache, src


Choice = Mapping[str, str] | list[Part] | tuple[Part, ...]
"""The members of a union: modules, or texts by the names of their modules."""

Content = str | Slot | Part | Choice | Turn
"""What stands in a module."""


class SchemaBuilder:
    """Puts a schema together, one piece after another; each method gives the builder back.

    The text of a module is taken as it is, to the character, white space too. Modules, and texts beside them,
    are set apart by a seam, and white space at the ends of such texts is nothing, as in a document. After
    `system`, `user` or `assistant` all that follows stands in that turn, up to the next or a module of turns.

    Args:
        name: name of the schema.
        base: the folder of the files that `src` names.
        seam: what sets apart what is added: a line break, two for a blank line, a space, or nothing; with
            nothing the texts beside modules are taken as they are too.
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
                f"{seam!r} is no seam; give a line break, two for a blank line, a space, or nothing"
            )

    def system(self, text: str = "") -> SchemaBuilder:
        """Begins the turn that instructs the model, with this text."""
        return self._begin("system", text)

    def user(self, text: str = "") -> SchemaBuilder:
        """Begins a turn of the user, with this text."""
        return self._begin("user", text)

    def assistant(self, text: str = "") -> SchemaBuilder:
        """Begins a turn of the model, with this text."""
        return self._begin("assistant", text)

    def text(self, text: str) -> SchemaBuilder:
        """Adds text that every prompt has."""
        return self._add(self._line(text))

    def module(
        self, name: str, *content: Content, cache: bool = True, src: str | None = None
    ) -> SchemaBuilder:
        """Adds a module.

        Args:
            name: its name.
            content: its texts, parameters, modules, and unions (lists of `Part`, or mappings to texts); or
                whole turns alone.
            cache: False where it is computed in every prompt and never stored.
            src: a file whose text it holds; then it has no other content.
        """
        module = self._module(Part(name, *content, cache=cache, src=src), "")
        return self._add([module], outside=bool(module.turns()))

    def union(self, *members: Part | Mapping[str, str]) -> SchemaBuilder:
        """Adds modules of which a prompt imports at most one.

        Args:
            members: modules, or texts by the names of their modules.
        """
        parts: list[Part] = []
        for one in members:
            parts.extend([one] if isinstance(one, Part) else _parts(one))
        union = self._union(parts, "")
        return self._add([union], outside=any(member.turns() for member in union.members))

    def scaffold(self, *paths: str) -> SchemaBuilder:
        """Lists modules, by their paths, that are encoded together besides each alone."""
        self._scaffolds.append(Scaffold(paths, NOWHERE))
        return self

    def name(self, words: str) -> str:
        """A name for a module at the top, made of some words: valid, and not yet taken.

        Args:
            words: a title, or the name of a file.
        """
        return unique(legible(words), dict.fromkeys(self._top(), 0), 0)

    def pml(self) -> str:
        """The schema as a document.

        Raises:
            SchemaError: a document would have faults; all of them are named.
        """
        return self._checked()[1]

    def schema(self) -> Schema:
        """The schema, as `parse_schema` gives it; its nodes have no places, as it was never a document.

        Raises:
            SchemaError: a document would have faults; all of them are named.
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
        """The names of the modules at the top."""
        for child in self._children:
            for one in child[1] if isinstance(child, tuple) else (child,):
                yield from (module.name for module in _modules(one))

    def _begin(self, role: RoleName, text: str) -> SchemaBuilder:
        self._turn = []
        self._children.append((role, self._turn))
        return self._add(self._line(text))

    def _line(self, text: str) -> list[Any]:
        """Text beside modules."""
        return _text(normalise(text) if self._seam else text)

    def _add(self, nodes: list[Any], *, outside: bool = False) -> SchemaBuilder:
        """Adds to the turn that has begun, which is over for what stands outside of turns."""
        if outside:
            self._turn = None
        (self._children if self._turn is None else self._turn).extend(nodes)
        return self

    def _module(self, part: Part, above: str) -> Module:
        path = f"{above}/{part.name}" if above else part.name
        children = tuple(node for one in part.content for node in self._nodes(one, path))
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
                inside = [node for one in content.content for node in self._nodes(one, path)]
                return [Role(content.role, set_apart_inside(inside, self._seam), NOWHERE)]
        return [self._union(_parts(content), path)]


def _parts(choice: Choice) -> list[Part]:
    if isinstance(choice, Mapping):
        return [Part(name, text) for name, text in choice.items()]
    return list(choice)


def _text(text: str) -> list[Any]:
    return [Text(text, NOWHERE)] if text else []


def _repeating(children: Iterable[Any], firsts: dict[str, Param] | None = None) -> tuple[Any, ...]:
    """The children of a module, in which a parameter that is given again as it was repeats its argument."""
    firsts = {} if firsts is None else firsts
    found: list[Any] = []
    for child in children:
        if isinstance(child, Role):
            child = replace(child, children=_repeating(child.children, firsts))
        elif isinstance(child, Param):
            first = firsts.setdefault(child.name, child)
            child = replace(child, repeats=True) if first is not child and first == child else child
        found.append(child)
    return tuple(found)


def _modules(node: Any) -> tuple[Module, ...]:
    """A module, or the members of a union."""
    if isinstance(node, Module):
        return (node,)
    return node.members if isinstance(node, Union) else ()


def faults_of(schema: Schema) -> list[str]:
    """What a document of this schema would be faulted for: names, parameters, and characters.

    Args:
        schema: the schema, which was never a document.
    """
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
                    faults.append(f"E205, {child.role!r} is no turn; it is one of {', '.join(ROLES)}")
                case Role() if isinstance(node, Role):
                    faults.append(f"E206, a turn stands in a turn of {path}; {TURNS_RULE}")
                case _:
                    pending.append((child, path, taken, params, outermost and isinstance(child, Union)))
    return faults


def _of_turns(module: Module, outermost: bool) -> Iterator[str]:
    turns = len(module.turns())
    if turns and not outermost:
        yield f"E206, {module.path} holds turns; {TURNS_RULE}"
    elif turns and turns < len(module.children):
        yield f"E212, {module.path} holds whole turns, and other things beside them; put these into turns too"


def _of_text(text: str, place: str) -> Iterator[str]:
    bad = forbidden_character(text)
    if bad is not None:
        yield f"E103, {place} holds {bad!r}, which no document may hold; remove it"


def _of_name(module: Module, taken: set[str]) -> Iterator[str]:
    name, path = module.name, module.path
    if not NAME.fullmatch(name):
        yield f"E301, {name!r} cannot name a module: {NAME_RULE}; the builder's name({name!r}) makes one"
    elif name in RESERVED:
        yield f"E303, {path} is an element of PML, so no module can have that name; rename it"
    elif name in taken:
        yield f"E302, {path} is the name of two modules; rename one, or nest it"


def _of_slot(param: Param, path: str) -> Iterator[str]:
    if not NAME.fullmatch(param.name):
        yield f"E301, {param.name!r} in {path} cannot name a parameter: {NAME_RULE}"
    if type(param.length) is not int or not 1 <= param.length <= MAX_LENGTH:
        yield f"E204, the length of {param.name} in {path} is a whole number of tokens from 1 to {MAX_LENGTH}"
    for text in (param.default, param.scaffold):
        yield from _of_text(text or "", f"{param.name} in {path}")
