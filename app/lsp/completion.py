"""Completion of elements, imports, attributes and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.base.document_index import ENDINGS, Document, Library, folder_of
from app.base.pml_keywords import (
    ATTRIBUTES,
    ELEMENTS,
    EMPTY,
    HOLDS,
    IN_PROMPTS,
    OPTION,
    PROMPT_ATTRIBUTES,
    REQUIRED,
    preview,
)
from app.lsp.targets import element_at
from app.lsp.typing_place import TypingPlace, typing_place
from app.lsp.view import View, defined_path, opened
from engine.pml import ROLES, Module, Schema, Span, Union
from engine.pml.parse.decide_parser import TYPES
from engine.pml.parse.format_parser import TAG
from engine.pml.parse.format_parser import TYPES as FORMATS
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.names import CACHE, PATH, SPACE_MODES
from engine.pml.xml.reader import read

Kind = Literal["element", "module", "attribute", "value", "file"]

_CHOICES = {"cache": CACHE, "xml:space": SPACE_MODES}

_MOST_FILES = 500


@dataclass(frozen=True)
class Item:
    """A completion item."""

    label: str  # displayed text, also the text to match
    kind: Kind
    detail: str
    plain: str
    snippet: str = ""  # the same with tab stops such as `$1` and `$0`; empty without any
    info: str = ""  # a longer description


@dataclass(frozen=True)
class Completion:
    """The completions of a place."""

    span: Span  # from the start of the word to the cursor
    items: tuple[Item, ...]  # the best first


def complete(library: Library, document: Document, offset: int) -> Completion | None:
    """Returns the completions at an offset of a document, even a broken one; None if there are none."""
    place = typing_place(document.text, offset)
    if place is None:
        return None
    view = View(library, document)
    start = place.start
    match place.part:
        case "tag":
            items = list(_elements(view, place))
        case "end":
            items = list(_ends(place))
        case "attribute":
            items = list(_attributes(view, place))
        case "value":
            items = list(_values(view, place))
            if place.attribute == "modules":
                start = offset - len(re.split(r"\s", place.typed)[-1])
    return Completion(Span(start, offset), tuple(items)) if items else None


def _kind(place: TypingPlace) -> str:
    """The root element of a place."""
    return place.chain[0].tag if place.chain else ""


def _elements(view: View, place: TypingPlace) -> Iterator[Item]:
    if not place.chain:
        if read(_without(view, place)).root is None:
            yield _element("schema", "the root of a schema", place)
            yield _element("prompt", "the root of a prompt", place)
    elif _kind(place) == "prompt":
        yield from _in_prompt(view, place)
    else:
        for name in _held(view, place):
            yield _element(name, ELEMENTS[name], place)


def _held(view: View, place: TypingPlace) -> tuple[str, ...]:
    """The elements that a schema allows at a place."""
    tags, parent = [element.tag for element in place.chain], place.chain[-1]
    allowed = HOLDS.get(parent.tag, ())
    if tags[1:] in (["module"], ["union", "module"]):
        complete = _same(read(_without(view, place)).root, parent)
        children = complete.children if complete is not None else parent.children
        turns = [child for child in children if isinstance(child, Element) and child.tag in ROLES]
        others = [child for child in children if child not in turns and not _is_blank(child)]
        return () if turns and others else ROLES if turns else allowed if others else (*allowed, *ROLES)
    if parent.tag in ROLES and "module" in tags:
        return (*allowed, "param")
    return allowed


def _same(root: Element | None, wanted: Element) -> Element | None:
    """Finds an element with the same start in another parse of the document."""
    waiting = [root] if root is not None else []
    while waiting:
        element = waiting.pop()
        if element.span.start == wanted.span.start:
            return element
        waiting.extend(child for child in element.children if isinstance(child, Element))
    return None


def _is_blank(node: Element | Chars) -> bool:
    return isinstance(node, Chars) and (node.kind == "comment" or not node.text.strip())


def _element(name: str, detail: str, place: TypingPlace) -> Item:
    if place.goes_on:
        return Item(name, "element", detail, name)
    needed = REQUIRED.get(name, tuple(PROMPT_ATTRIBUTES.get(name, ()))[:1])
    plain = name + "".join(f' {key}=""' for key in needed)
    snippet = name + "".join(f' {key}="${number}"' for number, key in enumerate(needed, 1))
    if name in EMPTY:
        return Item(name, "element", detail, f"{plain}/>", f"{snippet}/>")
    return Item(name, "element", detail, f"{plain}></{name}>", f"{snippet}>$0</{name}>")


def _in_prompt(view: View, place: TypingPlace) -> Iterator[Item]:
    schema = view.schema
    path = import_path(schema, place.chain)
    tag = place.chain[-1].tag
    if tag == TAG or (tag == "decide" and not _is_predicate(place.chain[-1])):
        yield _element("option", OPTION, place)
    if path is None:
        return
    page = opened(_without(view, place), schema)
    turned = any(isinstance(child, Element) and child.tag in ROLES for child in place.chain[0].children)
    if schema is not None and (path or not turned):  # imports end at the first turn
        written = {use.path for use in page.places} if page else set()
        picked = set(page.picks) if page else set()
        for module in _importable(schema, path):
            if module.path not in written and not _shut_out(schema, module.path, picked):
                yield _import(module, place)
        if path:
            yield from _arguments(schema, path, place)
    if not path and not any(use.element.span.start >= place.mark for use in (page.places if page else ())):
        for role in ROLES:
            yield _element(role, ELEMENTS[role], place)
    if len(place.chain) == 1:
        yield _element("decide", IN_PROMPTS["decide"], place)
        if not any(isinstance(child, Element) and child.tag == TAG for child in place.chain[0].children):
            yield _element(TAG, IN_PROMPTS[TAG], place)


def _is_predicate(question: Element) -> bool:
    """Whether a question has no options, because yes and no answer it."""
    given = question.get("type")
    return given is not None and given.value == "predicate"


def _without(view: View, place: TypingPlace) -> str:
    """The document without the tag in progress."""
    return view.document.text[: place.mark] + view.document.text[place.end :]


def import_path(schema: Schema | None, chain: tuple[Element, ...]) -> str | None:
    """Returns the path of the enclosing import, empty at the top; None if no import may stand here."""
    path = ""
    for element in chain[1:]:
        if schema is None or element.tag in IN_PROMPTS:
            return None
        module = schema.index.members.get(path, {}).get(element.tag)
        named = schema.index.by_name.get(element.tag, [])
        if module is None and not path and len(named) == 1:
            module = named[0]
        if module is None:
            return None
        path = module.path
    return path


def _importable(schema: Schema, path: str) -> Iterator[Module]:
    """The modules that may be imported here: direct members, and at the top unambiguous deeper ones."""
    members = schema.index.members.get(path, {})
    yield from members.values()
    if not path:
        for name, modules in schema.index.by_name.items():
            if name not in members and len(modules) == 1:
                yield modules[0]


def _shut_out(schema: Schema, path: str, picked: set[str]) -> bool:
    """Whether another member of an enclosing union is already imported."""
    member = path
    while member:
        union = schema.union_of(member)
        if union and any(other.path != member and other.path in picked for other in union.members):
            return True
        member = member.rpartition("/")[0]
    return False


def _import(module: Module, place: TypingPlace) -> Item:
    detail = module.path if "/" in module.path else "module"
    name, info = module.name, preview(module)
    if place.goes_on:
        return Item(name, "module", detail, name, info=info)
    needed = [param.name for param in module.params() if param.default is None]
    plain = name + "".join(f' {key}=""' for key in needed)
    snippet = name + "".join(f' {key}="${number}"' for number, key in enumerate(needed, 1))
    if any(isinstance(child, Module | Union) for child in module.contents()):
        return Item(name, "module", detail, f"{plain}></{name}>", f"{snippet}>$0</{name}>", info)
    return Item(name, "module", detail, f"{plain}/>", f"{snippet}/>", info)


def _arguments(schema: Schema, path: str, place: TypingPlace) -> Iterator[Item]:
    """Multi-line arguments for parameters without a value in the enclosing import."""
    module, host = schema.module(path), place.chain[-1]
    present = {*host.attributes}
    for child in host.children:
        if isinstance(child, Element) and child.tag == "arg" and (key := child.get("name")) is not None:
            present.add(key.value)
    if place.goes_on:
        yield Item("arg", "element", IN_PROMPTS["arg"], "arg")
        return
    for param in module.params() if module else ():
        if param.name not in present:
            head = f'arg name="{param.name}"'
            limit = f"at most {param.length} tokens"
            yield Item(head, "element", limit, f"{head}></arg>", f"{head}>$0</arg>")


def _ends(place: TypingPlace) -> Iterator[Item]:
    """The only valid end tag."""
    if place.chain:
        tag = place.chain[-1].tag
        yield Item(tag, "element", f"ends <{tag}>", tag if place.goes_on else f"{tag}>")


def _attributes(view: View, place: TypingPlace) -> Iterator[Item]:
    attributes: dict[str, str] = {}
    if _kind(place) == "prompt" or (not place.chain and place.tag == "prompt"):
        attributes = _of_prompt(view, place)
    else:
        tag = "param" if place.tag == "parameter" else place.tag
        if place.chain or tag == "schema":
            attributes = dict(ATTRIBUTES.get(tag, {}))
            if "length" in place.given:
                attributes.pop("len", None)
    if attributes or place.tag in ELEMENTS or place.tag in IN_PROMPTS:
        attributes["xml:space"] = '"preserve": keep white space'
    for name, detail in attributes.items():
        if name not in place.given:
            ending = "" if place.goes_on else '="'
            plain = f'{name}=""' if ending else name
            yield Item(name, "attribute", detail, plain, f'{name}="$1"' if ending else "")


def _of_prompt(view: View, place: TypingPlace) -> dict[str, str]:
    parent = place.chain[-1].tag if place.chain else ""
    asked = ("decide", TAG)
    if not parent or place.tag in ("arg", *asked) or (place.tag == "option" and parent in asked):
        return dict(PROMPT_ATTRIBUTES[place.tag])
    module = _imported(view, place)
    return {param.name: f"at most {param.length} tokens" for param in module.params()} if module else {}


def _imported(view: View, place: TypingPlace) -> Module | None:
    """The module imported by the tag at a place."""
    path = import_path(view.schema, place.chain)
    if view.schema is None or path is None:
        return None
    return next((node for node in _importable(view.schema, path) if node.name == place.tag), None)


def _values(view: View, place: TypingPlace) -> Iterable[Item]:
    if place.attribute in _CHOICES:
        return [Item(choice, "value", "", choice) for choice in _CHOICES[place.attribute]]
    match (place.tag, place.attribute):
        case ("prompt", "schema"):
            near = view.library.schemas(view.document.path)
            return [Item(file.name, "value", file.path.name, file.name) for file in near if file.name]
        case ("arg", "name"):
            path = import_path(view.schema, place.chain)
            module = view.schema.module(path) if view.schema and path else None
            params = module.params() if module else ()
            return [Item(slot.name, "value", f"at most {slot.length} tokens", slot.name) for slot in params]
        case ("param" | "parameter", "name"):
            path = defined_path(element_at(view.root, place.start))
            module = view.schema.module(path) if view.schema else None
            earlier = [param for param in module.params() if param.span.start < place.mark] if module else []
            return [Item(param.name, "value", "an earlier parameter", param.name) for param in earlier]
        case ("decide", "type"):
            return [Item(kind, "value", "", kind) for kind in TYPES]
        case ("answer-format", "type"):
            return [Item(kind, "value", "", kind) for kind in FORMATS]
        case ("union", "scaffold"):
            return [Item(name, "value", "a member", name) for name in _members(view, place)]
        case ("scaffold", "modules"):
            used = set(PATH.findall(place.typed))
            modules = view.schema.modules() if view.schema else ()
            return [
                Item(node.path, "value", preview(node), node.path)
                for node in modules
                if node.path not in used
            ]
        case ("answer-format", "src"):
            named = [name for name in _files(view.document.path) if name.endswith(".json")]
            return [Item(name, "file", "a file of the folder", name) for name in named]
        case ("module", "src"):
            return [Item(name, "file", "a file of the folder", name) for name in _files(view.document.path)]
        case ("include", "src"):
            paths = [file.path for file in view.library.beside(view.document.path) if file.kind == "schema"]
            names = [path.name for path in paths if path != view.document.path]
            return [Item(name, "file", "a schema of the folder", name) for name in names]
    return []


def _members(view: View, place: TypingPlace) -> list[str]:
    """The modules of the enclosing union."""
    element = element_at(view.root, place.start)
    if element is None or element.tag != "union":
        return []
    above = defined_path(element)
    modules = [child for child in element.children if isinstance(child, Element) and child.tag == "module"]
    return [defined_path(element).removeprefix(f"{above}/" if above else "") for element in modules]


def _files(path: Path) -> list[str]:
    folder = folder_of(path)
    if folder is None or not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    return [name for name in names if not name.endswith(ENDINGS)][:_MOST_FILES]
