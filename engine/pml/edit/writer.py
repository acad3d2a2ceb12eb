"""Writes schemas and prompts from other sources as documents.

Every character of a text survives. If the white-space rules would change a text, its element gets
`xml:space="preserve"`. The rest is laid out like the formatter's output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.edit.formatter import first_layout, format_source, start_tag
from engine.pml.parse.documents import parse_prompt, parse_schema
from engine.pml.parse.format_parser import TAG
from engine.pml.tree.tree import (
    AnswerFormat,
    Decide,
    Import,
    Module,
    Param,
    Parsed,
    Prompt,
    Role,
    Schema,
    Text,
    Union,
)
from engine.pml.whitespace.rules import contents, normalise
from engine.pml.whitespace.separators import SEAMS, missing, own_seam
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.escaping import escaped_text
from engine.pml.xml.names import ROLES


class WriteError(PromptCacheError):
    """A tree that no document can represent."""


def write_schema(schema: Schema) -> str:
    """Returns a document that `parse_schema` reads as this schema.

    Adjacent texts count as one. The text of a module with `src` stays in its file.

    Raises:
        WriteError: a name, text or value is not allowed in a document, or elements are nested too deep.
    """
    source = _Writer().write(schema)
    wanted = _normal(schema)
    try:
        laid_out = first_layout(source)
        if _reads(parse_schema(laid_out), wanted):
            return laid_out
    except PromptCacheError:
        pass
    _require(parse_schema(source), wanted)
    return format_source(source)


def require_document(schema: Schema) -> None:
    """Checks that `write_schema` can write a schema.

    Raises:
        WriteError: no document can represent it.
    """
    _require(parse_schema(_Writer().write(schema)), _normal(schema))


def _require(parsed: Parsed[Schema], wanted: Schema) -> None:
    if not _reads(parsed, wanted):
        raise WriteError(f"this schema cannot be written as a document: {_reason(parsed, ('E208',))}")


def _reads(parsed: Parsed[Schema], wanted: Schema) -> bool:
    """Whether a document is read as a schema, ignoring the texts of files."""
    tree = parsed.tree if _readable(parsed, ("E209",)) else None
    return tree is not None and bool(_normal(tree) == wanted)


def write_prompt(prompt: Prompt) -> str:
    """Returns a document that `parse_prompt` reads as this prompt; adjacent texts count as one.

    Raises:
        WriteError: a name, text or value is not allowed in a document, or elements are nested too deep.
    """
    source = _Writer().write(prompt)
    parsed = parse_prompt(source)
    if _readable(parsed) and parsed.tree is not None and _normal(parsed.tree) == _normal(prompt):
        return format_source(source)
    raise WriteError(f"this prompt cannot be written as a document: {_reason(parsed)}")


def written_alike(one: Schema, other: Schema) -> bool:
    """Whether two schemas have the same document: adjacent texts count as one, files by their names."""
    return bool(_normal(one) == _normal(other))


def self_contained(schema: Schema) -> Schema:
    """Returns a schema without `src`: the text of each file becomes the text of its module."""
    nodes = _nodes(schema)
    if not any(isinstance(node, Module) and node.src is not None for node in nodes):
        return schema
    done: dict[int, Any] = {}
    for node in reversed(nodes):
        if isinstance(node, Union):
            done[id(node)] = replace(node, members=tuple(done[id(member)] for member in node.members))
        elif not isinstance(node, Param):
            children = tuple(done.get(id(child), child) for child in node.children)
            own = {"src": None} if isinstance(node, Module) else {}
            done[id(node)] = replace(node, children=children, **own)
    contained: Schema = done[id(schema)]
    return contained


def self_contained_prompt(prompt: Prompt) -> Prompt:
    """Returns a prompt without `src`: its answer format has the text of the file."""
    if prompt.format is None or prompt.format.src is None:
        return prompt
    return replace(prompt, format=replace(prompt.format, src=None))


def _readable(parsed: Parsed[Any], allowed: tuple[str, ...] = ()) -> bool:
    return all(entry.severity != "error" or entry.code in allowed for entry in parsed.diagnostics)


def _reason(parsed: Parsed[Any], allowed: tuple[str, ...] = ()) -> str:
    faults = [
        entry for entry in parsed.diagnostics if entry.severity == "error" and entry.code not in allowed
    ]
    return f"{faults[0].code}, {faults[0].message}" if faults else "a value would be read differently"


def _normal(root: Any) -> Any:
    """Returns the tree with adjacent texts joined, without empty texts and texts of files."""
    done: dict[int, Any] = {}
    for node in reversed(_nodes(root)):
        if isinstance(node, Module) and node.src is not None:
            done[id(node)] = replace(node, children=())
        elif isinstance(node, Union):
            done[id(node)] = replace(node, members=tuple(done[id(member)] for member in node.members))
        elif not isinstance(node, Param):
            children = tuple(done.get(id(child), child) for child in _joined(node.children))
            done[id(node)] = replace(node, children=_spelled(node, children))
    whole = done[id(root)]
    if isinstance(whole, Prompt) and whole.format is not None and whole.format.src is not None:
        return replace(whole, format=replace(whole.format, text=None))
    return whole


def _spelled(node: Any, children: tuple[Any, ...]) -> tuple[Any, ...]:
    """Removes separators that no document writes: after the last child or in an empty module."""
    if isinstance(node, Module) and len(children) == 1 and _is_seam(children[0]):
        return ()
    if not children or not isinstance(node, (Schema, Module, Role)):
        return children
    own = isinstance(node, Module) and own_seam(node) is not None
    place = len(children) - 1 - own
    return tuple(_unseamed(child) if at == place else child for at, child in enumerate(children))


def _unseamed(node: Any) -> Any:
    if isinstance(node, Union):
        return replace(node, members=tuple(_unseamed(member) for member in node.members))
    if isinstance(node, Module) and own_seam(node) is not None:
        return replace(node, children=node.children[:-1])
    return node


def _nodes(root: Any) -> list[Any]:
    """Returns every node except texts, parents first."""
    nodes, pending = [], [root]
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending.extend(child for child in _children(node) if not isinstance(child, Text))
    return nodes


def _children(node: Any) -> tuple[Any, ...]:
    """Returns the children written inside a node's tags, without its own separator."""
    if isinstance(node, Union):
        return node.members
    if isinstance(node, Param) or (isinstance(node, Module) and node.src is not None):
        return ()
    own = isinstance(node, Module) and own_seam(node) is not None
    return _joined(node.children[:-1] if own else node.children)


def _joined(children: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the children with adjacent texts joined, including the separator between them."""
    result: list[Any] = []
    for child in children:
        if isinstance(child, Text) and not child.seam:
            seams = result[-1:] if result and _is_seam(result[-1]) else []
            before = result[: len(result) - len(seams)][-1:]
            if child.text and before and isinstance(before[0], Text):
                text = "".join(part.text for part in (*before, *seams, child))
                result[-1 - len(seams) :] = [Text(text, before[0].span)]
                continue
        if not isinstance(child, Text) or child.text:
            result.append(child)
    return tuple(result)


def _is_seam(node: Any) -> bool:
    return isinstance(node, Text) and node.seam


def _seam_of(node: Any) -> str:
    """Returns the separator to write after a node's end tag; "" if no white space gives it."""
    modules = node.members if isinstance(node, Union) else (node,) if isinstance(node, Module) else ()
    filled = [module for module in modules if module.children and not module.turns()]
    own = [seam.text if (seam := own_seam(module)) else "" for module in filled]
    texts = [
        module.children[:-1] if text else module.children for module, text in zip(filled, own, strict=True)
    ]
    ends = [children[-1] if children else None for children in texts]
    return next((seam_text for seam_text in SEAMS if [missing(seam_text, end) for end in ends] == own), "")


class _Writer:
    """Writes every element without extra white space; the formatter adds the layout."""

    def write(self, root: Schema | Prompt) -> str:
        modes = self._modes(root)
        written: dict[int, str] = {}
        for node in reversed(_nodes(root)):
            preserve, inherited = modes[id(node)]
            children, inner = _children(node), ""
            for child in children:
                inner += escaped_text(child.text) if isinstance(child, Text) else written[id(child)]
                if not preserve and child is not children[-1]:
                    inner += _seam_of(child)
            tag, attributes, extra = _tag(node)
            if preserve != inherited:
                attributes.append(("xml:space", "preserve" if preserve else "default"))
            inner = extra + inner
            if isinstance(node, Prompt):
                inner += "".join(_question(question, preserve) for question in node.questions)
                inner += "" if node.format is None else _format(node.format, preserve)
            opening = start_tag(tag, attributes, not inner)
            written[id(node)] = f"{opening}{inner}</{tag}>" if inner else opening
        return written[id(root)]

    def _modes(self, root: Schema | Prompt) -> dict[int, tuple[bool, bool]]:
        """Returns whether each node and its parent preserve white space."""
        modes: dict[int, tuple[bool, bool]] = {}
        pending: list[tuple[Any, bool]] = [(root, False)]
        while pending:
            node, inherited = pending.pop()
            children = _children(node)
            preserve = _must_preserve(node, children, inherited)
            modes[id(node)] = preserve, inherited
            pending.extend((child, preserve) for child in children if not isinstance(child, Text))
        return modes


def _must_preserve(node: Any, children: tuple[Any, ...], inherited: bool) -> bool:
    """Whether an element must preserve white space, or is one line and inherits it."""
    texts = [child.text for child in children if isinstance(child, Text)]
    if len(texts) == len(children) and not any("\n" in text for text in texts) and inherited:
        return True
    return bool(texts) and not _survives(node, children)


def _survives(node: Any, children: tuple[Any, ...]) -> bool:
    """Whether the white-space rules leave the texts and separators of an element unchanged."""
    element = Element("", NOWHERE, NOWHERE, NOWHERE)
    wanted: list[Text | str] = []
    for child in children:
        if isinstance(child, Text):
            element.children.append(Chars(child.text, NOWHERE))
            wanted.append(child)
            continue
        tag = "param" if isinstance(child, Param) else child.role if isinstance(child, Role) else "module"
        element.children.append(Element(tag, NOWHERE, NOWHERE, NOWHERE))
        seam = _seam_of(child) if child is not children[-1] else ""
        if seam:
            element.children.append(Chars(seam, NOWHERE))
        wanted += [tag, Text(seam, NOWHERE, seam=True)] if seam else [tag]
    if isinstance(node, (Prompt, Import)):  # the separator at the start of a line
        places = [place for place in range(len(wanted)) if not place or wanted[place - 1] in ROLES]
        begins = [place for place in places if isinstance(wanted[place], Text)]
        if any(wanted[place] != Text("\n", NOWHERE, seam=True, implied=True) for place in begins):
            return False
        wanted = [item for place, item in enumerate(wanted) if place not in begins]
    return _as_read(element) == wanted


def _as_read(element: Element) -> list[Text | str]:
    """Returns texts, separators and tags of an element as the rules read them."""
    items: list[Text | str] = []
    for item in contents(element, "", False):
        if isinstance(item, Element):
            items.append(item.tag)
            continue
        seams = (item.before if items else "", item.after)
        before, after = (Text(seam, NOWHERE, seam=True) for seam in seams)
        items += [text for text in (before, Text(item.text, NOWHERE), after) if text.text]
    return items


def _tag(node: Any) -> tuple[str, list[tuple[str, str]], str]:
    """Returns the tag of a node, its attributes, and the first text inside it."""
    match node:
        case Schema():
            scaffolds = [
                start_tag("scaffold", [("modules", " ".join(item.modules))], True) for item in node.scaffolds
            ]
            return "schema", [("name", node.name)], "".join(scaffolds)
        case Prompt():
            return "prompt", [] if node.schema is None else [("schema", node.schema)], ""
        case Module():
            cache = [] if node.cache else [("cache", "false")]
            source = [] if node.src is None else [("src", node.src)]
            return "module", [("name", node.name), *cache, *source], ""
        case Union():
            return "union", [] if node.scaffold is None else [("scaffold", node.scaffold)], ""
        case Param(repeats=True):
            return "param", [("name", node.name)], ""
        case Param():
            optional = (("default", node.default), ("scaffold", node.scaffold))
            length = ("len", str(node.length))
            return "param", [("name", node.name), length, *((k, v) for k, v in optional if v is not None)], ""
        case Role():
            return node.role, [], ""
        case _:
            return _import_tag(node)


def _question(node: Decide, inherited: bool) -> str:
    """Returns a question as an element; `inherited` is whether the prompt preserves white space."""

    def written(tag: str, attributes: list[tuple[str, str]], text: str, below: str = "") -> str:
        preserve = normalise(text) != text
        mode = [("xml:space", "preserve" if preserve else "default")] if preserve or inherited else []
        inner = escaped_text(text) + below
        return f"{start_tag(tag, [*attributes, *mode], not inner)}{inner}{f'</{tag}>' if inner else ''}"

    inherited = inherited or normalise(node.instructions) != node.instructions
    options = "".join(written("option", [("value", label)], words) for label, words in node.options)
    name = [("name", node.name)] if node.name else []
    return written("decide", [*name, ("type", node.kind)], node.instructions, options)


def _format(node: AnswerFormat, inherited: bool) -> str:
    """Returns the format of an answer as an element; `inherited` as for a question."""
    words = "" if node.src is not None else node.text or ""
    inner = escaped_text(words)
    inner += "".join(start_tag("option", [("value", label)], True) for label in node.options)
    preserve = normalise(words) != words
    mode = [("xml:space", "preserve" if preserve else "default")] if preserve or inherited else []
    source = [] if node.src is None else [("src", node.src)]
    opening = start_tag(TAG, [("type", node.kind), *source, *mode], not inner)
    return f"{opening}{inner}</{TAG}>" if inner else opening


def _import_tag(node: Import) -> tuple[str, list[tuple[str, str]], str]:
    """Returns an import's tag; arguments are attributes unless one has several lines or a repeated name."""
    names = [argument.name for argument in node.arguments]
    plain = len(set(names)) == len(names) and all("\n" not in item.value for item in node.arguments)
    if plain:
        return node.name, [(item.name, item.value) for item in node.arguments], ""
    inner = ""
    for argument in node.arguments:
        value = escaped_text(argument.value)
        attributes = [("name", argument.name), ("xml:space", "preserve")]
        inner += f"{start_tag('arg', attributes, not value)}{value}{'</arg>' if value else ''}"
    return node.name, [], inner
