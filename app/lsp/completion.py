"""What can be written at a place: the elements, imports, attributes and values that are allowed there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.base.document_index import ENDINGS, Document, Library, folder_of
from app.base.pml_keywords import ATTRIBUTES, ELEMENTS, EMPTY, HOLDS, IN_PROMPTS, REQUIRED, preview
from app.lsp.targets import element_at
from app.lsp.typing_place import TypingPlace, typing_place
from app.lsp.view import View, defined_path, opened
from engine.pml import ROLES, Module, Schema, Span, Union
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.names import CACHE, PATH, SPACE_MODES
from engine.pml.xml.reader import read

Kind = Literal["element", "module", "attribute", "value", "file"]

_CHOICES = {"cache": CACHE, "xml:space": SPACE_MODES}
_MOST_FILES = 500


@dataclass(frozen=True)
class Item:
    """Something to write.

    Attributes:
        label: how it is shown, and what is typed for it.
        kind: what it is.
        detail: a few words on it.
        plain: what is written.
        snippet: the same with places to go on at, as `$1` and `$0`; empty where there is none.
        info: more on it.
    """

    label: str
    kind: Kind
    detail: str
    plain: str
    snippet: str = ""
    info: str = ""


@dataclass(frozen=True)
class Completion:
    """What can be written, in the place of a span.

    Attributes:
        span: from the beginning of the word to the cursor.
        items: the best first.
    """

    span: Span
    items: tuple[Item, ...]


def complete(library: Library, document: Document, offset: int) -> Completion | None:
    """What can be written at an offset of a document, however broken; None where nothing is offered."""
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
    """The root round a place."""
    return place.chain[0].tag if place.chain else ""


# Elements


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
    """The elements that may stand in a place of a schema."""
    around, inside = [element.tag for element in place.chain], place.chain[-1]
    held = HOLDS.get(inside.tag, ())
    if around[1:] in (["module"], ["union", "module"]):
        whole = _same(read(_without(view, place)).root, inside)
        children = whole.children if whole is not None else inside.children
        turns = [one for one in children if isinstance(one, Element) and one.tag in ROLES]
        others = [one for one in children if one not in turns and not _is_blank(one)]
        return () if turns and others else ROLES if turns else held if others else (*held, *ROLES)
    if inside.tag in ROLES and "module" in around:
        return (*held, "param")
    return held


def _same(root: Element | None, wanted: Element) -> Element | None:
    """The element that begins where another does that was read without what follows it."""
    waiting = [root] if root is not None else []
    while waiting:
        found = waiting.pop()
        if found.span.start == wanted.span.start:
            return found
        waiting.extend(one for one in found.children if isinstance(one, Element))
    return None


def _is_blank(node: Element | Chars) -> bool:
    return isinstance(node, Chars) and (node.kind == "comment" or not node.text.strip())


def _element(name: str, detail: str, place: TypingPlace) -> Item:
    if place.goes_on:
        return Item(name, "element", detail, name)
    needed = REQUIRED.get(name, ("schema",) if name == "prompt" else ())
    plain = name + "".join(f' {key}=""' for key in needed)
    snippet = name + "".join(f' {key}="${number}"' for number, key in enumerate(needed, 1))
    if name in EMPTY:
        return Item(name, "element", detail, f"{plain}/>", f"{snippet}/>")
    return Item(name, "element", detail, f"{plain}></{name}>", f"{snippet}>$0</{name}>")


def _in_prompt(view: View, place: TypingPlace) -> Iterator[Item]:
    schema = view.schema
    path = import_path(schema, place.chain)
    if path is None:
        return
    page = opened(_without(view, place), schema)
    turned = any(isinstance(child, Element) and child.tag in ROLES for child in place.chain[0].children)
    if schema is not None and (path or not turned):  # a turn of the prompt ends its imports
        written = {one.path for one in page.places} if page else set()
        picked = set(page.picks) if page else set()
        for module in _importable(schema, path):
            if module.path not in written and not _shut_out(schema, module.path, picked):
                yield _import(module, place)
        if path:
            yield from _arguments(schema, path, place)
    if not path and not any(one.element.span.start >= place.mark for one in (page.places if page else ())):
        for role in ROLES:
            yield _element(role, ELEMENTS[role], place)


def _without(view: View, place: TypingPlace) -> str:
    """The document without the word that is typed."""
    return view.document.text[: place.mark] + view.document.text[place.end :]


def import_path(schema: Schema | None, chain: tuple[Element, ...]) -> str | None:
    """The module whose import is open at a place, empty for none; None where no import may stand."""
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
    """The modules that an import may name: those directly there, at the top also deeper ones of one place."""
    members = schema.index.members.get(path, {})
    yield from members.values()
    if not path:
        for name, modules in schema.index.by_name.items():
            if name not in members and len(modules) == 1:
                yield modules[0]


def _shut_out(schema: Schema, path: str, picked: set[str]) -> bool:
    """Whether another member of a union is imported, of its own or of one round it."""
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
    """Arguments of several lines, for the parameters that the import round the place gives none."""
    module, host = schema.module(path), place.chain[-1]
    given = {*host.attributes}
    for child in host.children:
        if isinstance(child, Element) and child.tag == "arg" and (key := child.get("name")) is not None:
            given.add(key.value)
    if place.goes_on:
        yield Item("arg", "element", IN_PROMPTS["arg"], "arg")
        return
    for param in module.params() if module else ():
        if param.name not in given:
            head = f'arg name="{param.name}"'
            limit = f"at most {param.length} tokens"
            yield Item(head, "element", limit, f"{head}></arg>", f"{head}>$0</arg>")


def _ends(place: TypingPlace) -> Iterator[Item]:
    """The one end tag that can stand here."""
    if place.chain:
        tag = place.chain[-1].tag
        yield Item(tag, "element", f"ends <{tag}>", tag if place.goes_on else f"{tag}>")


# Attributes


def _attributes(view: View, place: TypingPlace) -> Iterator[Item]:
    known: dict[str, str] = {}
    if _kind(place) == "prompt" or (not place.chain and place.tag == "prompt"):
        known = _of_prompt(view, place)
    else:
        tag = "param" if place.tag == "parameter" else place.tag
        if place.chain or tag == "schema":
            known = dict(ATTRIBUTES.get(tag, {}))
            if "length" in place.given:
                known.pop("len", None)
    if known or place.tag in ELEMENTS or place.tag in IN_PROMPTS:
        known["xml:space"] = '"preserve": keep white space'
    for name, detail in known.items():
        if name not in place.given:
            ending = "" if place.goes_on else '="'
            plain = f'{name}=""' if ending else name
            yield Item(name, "attribute", detail, plain, f'{name}="$1"' if ending else "")


def _of_prompt(view: View, place: TypingPlace) -> dict[str, str]:
    if not place.chain:
        return {"schema": "the schema's name"}
    if place.tag == "arg":
        return {"name": "the parameter that it is for"}
    module = _imported(view, place)
    return {one.name: f"at most {one.length} tokens" for one in module.params()} if module else {}


def _imported(view: View, place: TypingPlace) -> Module | None:
    """The module that the tag at a place imports."""
    path = import_path(view.schema, place.chain)
    if view.schema is None or path is None:
        return None
    return next((one for one in _importable(view.schema, path) if one.name == place.tag), None)


# Values


def _values(view: View, place: TypingPlace) -> Iterable[Item]:
    if place.attribute in _CHOICES:
        return [Item(one, "value", "", one) for one in _CHOICES[place.attribute]]
    match (place.tag, place.attribute):
        case ("prompt", "schema"):
            near = view.library.schemas(view.document.path)
            return [Item(one.name, "value", one.path.name, one.name) for one in near if one.name]
        case ("arg", "name"):
            path = import_path(view.schema, place.chain)
            module = view.schema.module(path) if view.schema and path else None
            params = module.params() if module else ()
            return [Item(one.name, "value", f"at most {one.length} tokens", one.name) for one in params]
        case ("param" | "parameter", "name"):
            path = defined_path(element_at(view.root, place.start))
            module = view.schema.module(path) if view.schema else None
            earlier = [one for one in module.params() if one.span.start < place.mark] if module else []
            return [Item(one.name, "value", "the same argument again", one.name) for one in earlier]
        case ("union", "scaffold"):
            return [Item(name, "value", "a member", name) for name in _members(view, place)]
        case ("scaffold", "modules"):
            given = set(PATH.findall(place.typed))
            modules = view.schema.modules() if view.schema else ()
            return [
                Item(one.path, "value", preview(one), one.path) for one in modules if one.path not in given
            ]
        case ("module", "src"):
            return [Item(name, "file", "a file of the folder", name) for name in _files(view.document.path)]
        case ("include", "src"):
            beside = [one.path for one in view.library.beside(view.document.path) if one.kind == "schema"]
            names = [path.name for path in beside if path != view.document.path]
            return [Item(name, "file", "a schema of the folder", name) for name in names]
    return []


def _members(view: View, place: TypingPlace) -> list[str]:
    """The modules in the union whose tag is typed."""
    element = element_at(view.root, place.start)
    if element is None or element.tag != "union":
        return []
    above = defined_path(element)
    modules = [child for child in element.children if isinstance(child, Element) and child.tag == "module"]
    return [defined_path(one).removeprefix(f"{above}/" if above else "") for one in modules]


def _files(path: Path) -> list[str]:
    folder = folder_of(path)
    if folder is None or not folder.is_dir():
        return []
    names = sorted(one.name for one in folder.iterdir() if one.is_file() and one.name[0] != ".")
    return [name for name in names if not name.endswith(ENDINGS)][:_MOST_FILES]
