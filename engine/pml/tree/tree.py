"""The syntax tree of schemas and prompts.

Nodes are immutable. Equality ignores spans. Comparing, hashing and printing do not recurse, because a tree
may be 256 elements deep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from engine.grammars.grammar import JSON_OBJECT, of_choices
from engine.pml.diagnostics.diagnostic import Diagnostic, LineIndex, Span, has_errors

RoleName = Literal["system", "user", "assistant"]
DecideKind = Literal["predicate", "choice", "score"]
FormatKind = Literal["json", "choice", "regex"]
TurnName = Literal["system", "user", "assistant", "tool"]  # no document has a turn of a tool


class _Branch:
    """A node with children: compared iteratively; hash and repr ignore the children."""

    def _own(self) -> tuple[Any, ...]:
        """Returns the compared values, without the children."""
        raise TypeError(f"{type(self).__name__} must define what is compared")

    def _below(self) -> tuple[Any, ...]:
        raise TypeError(f"{type(self).__name__} must define its children")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        pairs: list[tuple[Any, Any]] = [(self, other)]
        while pairs:
            left, right = pairs.pop()
            if left is right:
                continue
            if type(left) is not type(right):
                return False
            if not isinstance(left, _Branch):
                if left != right:
                    return False
                continue
            below, beside = left._below(), right._below()
            if left._own() != right._own() or len(below) != len(beside):
                return False
            pairs.extend(zip(below, beside, strict=True))
        return True

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._own(), len(self._below())))

    def __repr__(self) -> str:
        own = ", ".join(repr(value) for value in self._own())
        return f"{type(self).__name__}({own}, {len(self._below())} below)"


@dataclass(frozen=True)
class Text:
    """A run of text with normalised white space.

    A *seam* is the white space that separates a node from the next one. The last child of a module is its own
    seam, which is removed together with the module. The seam of a text follows it. A seam is `implied` in two
    cases: its module is the last of its container, so only a prompt can add text after it; or its text is the
    first in a prompt or import and begins a line.
    """

    text: str
    span: Span = field(compare=False)
    seam: bool = False
    implied: bool = False


@dataclass(frozen=True)
class Param:
    """A parameter of a module: space for an argument of at most `length` tokens.

    A parameter that `repeats` takes the argument of an earlier one in its module, with the same length,
    default and scaffold.
    """

    name: str
    length: int
    default: str | None
    scaffold: str | None
    span: Span = field(compare=False)
    length_span: Span | None = field(default=None, compare=False)  # value of `len`
    name_span: Span | None = field(default=None, compare=False)  # value of `name`
    repeats: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Module(_Branch):
    """A named part of a schema that a prompt can import.

    Attributes:
        name: the name as written.
        path: names from the outermost module to this one, joined with `/`.
        children: whole turns, or the content of a turn, in document order.
        cache: False if the module is always computed and never stored.
        src: the file of its text, relative to the schema.
        span: the whole element.
        name_span: the value of the `name` attribute.
    """

    name: str
    path: str
    children: tuple[Text | Param | Module | Union | Role, ...]
    cache: bool
    src: str | None
    span: Span
    name_span: Span

    def _own(self) -> tuple[Any, ...]:
        return (self.path, self.cache, self.src)

    def _below(self) -> tuple[Any, ...]:
        return self.children

    def params(self) -> tuple[Param, ...]:
        """Returns the parameters of this module and its turns in document order, without repeats."""
        return tuple(child for child in self.contents() if isinstance(child, Param) and not child.repeats)

    def contents(self) -> tuple[Text | Param | Module | Union, ...]:
        """Returns the children in document order, with turns replaced by their children."""
        inner = (child.children if isinstance(child, Role) else (child,) for child in self.children)
        return tuple(child for children in inner for child in children)

    def turns(self) -> tuple[Role, ...]:
        """Returns the module's whole turns in document order."""
        return tuple(child for child in self.children if isinstance(child, Role))


@dataclass(frozen=True, eq=False, repr=False)
class Union(_Branch):
    """Modules of which a prompt imports at most one; all start at the same position."""

    members: tuple[Module, ...]
    scaffold: str | None
    span: Span

    def _own(self) -> tuple[Any, ...]:
        return (self.scaffold,)

    def _below(self) -> tuple[Any, ...]:
        return self.members


@dataclass(frozen=True, eq=False, repr=False)
class Role(_Branch):
    """A turn of the conversation: of a schema or prompt, or of a module at the top level of a schema.

    Only a turn of a module has parameters, which belong to the module. `fields` is JSON of a message's other
    data, such as tool calls; turns of documents have none.
    """

    role: TurnName
    children: tuple[Text | Param | Module | Union, ...]
    span: Span
    fields: str = ""

    def _own(self) -> tuple[Any, ...]:
        return (self.role, self.fields) if self.fields else (self.role,)

    def _below(self) -> tuple[Any, ...]:
        return self.children


@dataclass(frozen=True)
class Scaffold:
    """Modules (by path) that are encoded together and also separately."""

    modules: tuple[str, ...]
    span: Span = field(compare=False)


Container = Any  # Schema, Role or Module


@dataclass(frozen=True, eq=False, repr=False)
class Schema(_Branch):
    """The root of a schema document.

    Attributes:
        name: the schema's name, or empty.
        children: the content in document order, without scaffolds.
        scaffolds: the scaffolds, in document order.
        span: the whole element.
        lines: converts offsets of this document to lines and columns.
        included: the included files, relative to its folder, even missing ones. Their content replaces the
            includes among `children`.
    """

    name: str
    children: tuple[Text | Module | Union | Role, ...]
    scaffolds: tuple[Scaffold, ...]
    span: Span
    lines: LineIndex = field(default_factory=LineIndex)
    included: tuple[str, ...] = ()

    def _own(self) -> tuple[Any, ...]:
        return (self.name, self.scaffolds)

    def _below(self) -> tuple[Any, ...]:
        return self.children

    def modules(self) -> tuple[Module, ...]:
        """Returns all modules in document order, including nested ones."""
        return tuple(self.index.by_path.values())

    def module(self, path: str) -> Module | None:
        """Returns the module with this path, if any."""
        return self.index.by_path.get(path)

    def find(self, name_or_path: str) -> tuple[Module, ...]:
        """Returns the module with this path first, then every module with this name in document order."""
        exact = self.index.by_path.get(name_or_path)
        named = tuple(self.index.by_name.get(name_or_path, ()))
        return named if exact is None else (exact, *(module for module in named if module is not exact))

    def union_of(self, path: str) -> Union | None:
        """Returns the union of a module, if any."""
        return self.index.union_of.get(path)

    def parent_of(self, path: str) -> str | None:
        """Returns the path of the enclosing module; None for an outermost or unknown module."""
        return path.rpartition("/")[0] or None if path in self.index.by_path else None

    @cached_property
    def index(self) -> SchemaIndex:
        """Look-up tables over the tree, built once."""
        return SchemaIndex(self)


class SchemaIndex:
    """Look-up tables over one schema.

    Attributes:
        by_path: modules by path, in document order.
        by_name: modules by name, each list in document order.
        union_of: the union by the path of its member.
        container_of: the Schema, Role or Module that contains a module (unions skipped), by path.
        members: the direct modules of a module, by its path and their names, including those of unions. The
            path "" is the schema, including modules in its roles.
        order: index in document order, by path.
        turns: every turn in document order, with the path of its module, or "".
    """

    def __init__(self, schema: Schema) -> None:
        self.by_path: dict[str, Module] = {}
        self.by_name: dict[str, list[Module]] = {}
        self.union_of: dict[str, Union] = {}
        self.container_of: dict[str, Container] = {}
        self.members: dict[str, dict[str, Module]] = {"": {}}
        for module, union, container in _walk(schema):
            self.by_path.setdefault(module.path, module)
            self.by_name.setdefault(module.name, []).append(module)
            if union is not None:
                self.union_of.setdefault(module.path, union)
            self.container_of.setdefault(module.path, container)
            parent = module.path.rpartition("/")[0]
            self.members.setdefault(parent, {}).setdefault(module.name, module)
        self.order: dict[str, int] = {path: place for place, path in enumerate(self.by_path)}
        self.turns: tuple[tuple[Role, str], ...] = tuple(_turns(schema.children))


def _walk(schema: Schema) -> Iterator[tuple[Module, Union | None, Container]]:
    """Yields every module in document order, with its union and container."""
    pending: list[tuple[Any, Union | None, Container]] = [
        (child, None, schema) for child in reversed(schema.children)
    ]
    while pending:
        node, union, container = pending.pop()
        if isinstance(node, Module):
            yield node, union, container
            pending.extend((child, None, node) for child in reversed(node.children))
        elif isinstance(node, Union):
            pending.extend((member, node, container) for member in reversed(node.members))
        elif isinstance(node, Role):
            pending.extend((child, None, node) for child in reversed(node.children))


def _turns(children: tuple[Any, ...]) -> Iterator[tuple[Role, str]]:
    """Yields the turns of the schema and of its top-level modules, with the module's path."""
    for child in children:
        if isinstance(child, Role):
            yield child, ""
        modules = child.members if isinstance(child, Union) else (child,)
        for module in modules:
            if isinstance(module, Module):
                yield from ((turn, module.path) for turn in module.turns())


@dataclass(frozen=True)
class Argument:
    """A value for a parameter, written as an attribute or as an `<arg>` child of the import."""

    name: str
    value: str
    span: Span = field(compare=False)
    name_span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False, repr=False)
class Import(_Branch):
    """An element of a prompt that imports a module.

    Attributes:
        name: the name as written.
        arguments: in document order.
        children: in document order.
        span: the whole element.
        name_span: its name in the start tag.
        end_span: its name in the end tag, if any.
        unclosed: the end of its start tag, if its end tag is missing.
    """

    name: str
    arguments: tuple[Argument, ...]
    children: tuple[Import | Text, ...]
    span: Span
    name_span: Span
    end_span: Span | None = None
    unclosed: int | None = None

    def _own(self) -> tuple[Any, ...]:
        return (self.name, self.arguments)

    def _below(self) -> tuple[Any, ...]:
        return self.children


@dataclass(frozen=True)
class Decide:
    """A question about a prompt that a model answers with probabilities. It is no part of the prompt's text.

    Attributes:
        kind: "predicate" (yes or no), "choice" or "score" (ordered options).
        instructions: the question.
        options: the label and description of each option, the lowest first; a predicate has none.
        name: its name in results, or "".
        span: the whole element.
    """

    kind: DecideKind
    instructions: str
    options: tuple[tuple[str, str], ...] = ()
    name: str = ""
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True)
class AnswerFormat:
    """The format of a prompt's answer. It is no part of the prompt's text.

    Attributes:
        kind: "json", "choice" (one of several texts) or "regex".
        text: the JSON Schema, "" for any JSON object, or the pattern; None if its file was not read.
        options: the texts of a choice.
        src: the file of the JSON Schema, relative to the prompt.
        span: the whole element.
        place: the schema or pattern, or the name of its file.
    """

    kind: FormatKind
    text: str | None = ""
    options: tuple[str, ...] = ()
    src: str | None = None
    span: Span = field(default=Span(0, 0), compare=False)
    place: Span = field(default=Span(0, 0), compare=False)

    @property
    def grammar(self) -> str:
        """The setting of a run that holds an answer to this format."""
        assert self.text is not None, "the file of the format was not read"
        match self.kind:
            case "choice":
                return of_choices(self.options)
            case "regex":
                return f"regex:{self.text}"
        return f"schema:{self.text}" if self.text.strip() else JSON_OBJECT


@dataclass(frozen=True, eq=False, repr=False)
class Prompt(_Branch):
    """The root of a prompt document.

    Attributes:
        schema: the name of its schema, or None.
        children: the content in document order.
        span: the whole element.
        schema_span: the value of the `schema` attribute, or else the tag's name.
        lines: converts offsets of this document to lines and columns.
        source: the text of the document; empty if the prompt has none.
        torn: whether tags do not pair, so that nesting is uncertain.
        questions: its questions, in document order.
        format: the format of its answer; None for any text.
    """

    schema: str | None
    children: tuple[Import | Text | Role, ...]
    span: Span
    schema_span: Span = field(default_factory=lambda: Span(0, 0))
    lines: LineIndex = field(default_factory=LineIndex)
    source: str = ""
    torn: bool = False
    questions: tuple[Decide, ...] = ()
    format: AnswerFormat | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that it reads, relative to its folder, even missing ones."""
        return () if self.format is None or self.format.src is None else (self.format.src,)

    def _own(self) -> tuple[Any, ...]:
        own = (self.schema, self.questions, self.format)
        return own if self.questions or self.format else own[:1]

    def _below(self) -> tuple[Any, ...]:
        return self.children


T = TypeVar("T")


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """The result of parsing a document: the tree, as far as possible, and every diagnostic.

    Attributes:
        tree: the tree, or None without a usable root.
        diagnostics: in document order.
        source: the text of the document.
    """

    tree: T | None
    diagnostics: tuple[Diagnostic, ...]
    source: str

    @property
    def ok(self) -> bool:
        """Whether there is a tree and no error."""
        return self.tree is not None and not has_errors(self.diagnostics)
