"""Edits a prompt's picks and arguments in its source, and reads them back.

Edits replace the smallest possible range and preserve free text, comments and layout. Picking adds the module
and its ancestors, and removes rivals in their unions. Un-picking removes the module and its nested imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, quote
from engine.pml.diagnostics.quick_fixes import apply_edits
from engine.pml.edit.prompt_source import Page, Place, PromptEditError, require_module
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.rules import normalise
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text, escaped_value

_LONG: Final = 60  # longer new arguments become elements


@dataclass(frozen=True)
class Picks:
    """The imports of a prompt.

    Attributes:
        paths: the imported modules in prompt order, each after its ancestors.
        arguments: the arguments by path and name.
    """

    paths: tuple[str, ...]
    arguments: dict[str, dict[str, str]]


def read_picks(prompt_source: str, schema: Schema) -> Picks:
    """Returns the imports of a prompt; empty without a `<prompt>` element."""
    try:
        page = Page(prompt_source, schema)
    except PromptEditError:
        return Picks((), {})
    return Picks(tuple(page.picks), page.arguments)


def set_pick(prompt_source: str, schema: Schema, path: str, on: bool) -> str:
    """Returns the source of a prompt with or without the import of a module; a blank source becomes a prompt.

    Raises:
        PromptEditError: the module is unknown, or the source is too broken to edit.
    """
    require_module(schema, path)
    if not prompt_source.strip(" \t\r\n\ufeff"):
        if not on:
            return prompt_source
        prompt_source = _blank_prompt(schema)
    page = Page(prompt_source, schema)
    if (path in page.picks) == on:
        return prompt_source
    result = _pick(page, path) if on else _unpick(page, path)
    if (path in Page(result, schema).picks) != on:
        raise PromptEditError(
            f"The prompt has an error that hides {quote(path)}. Fix it in the editor first."
        )
    return result


def move_pick(prompt_source: str, schema: Schema, path: str, later: bool) -> str:
    """Returns the source of a prompt after a module's import and the one next to it change places.

    Raises:
        PromptEditError: the import has several places, or the source is too broken to edit.
    """
    require_module(schema, path)
    page = Page(prompt_source, schema)
    written = page.under(path)
    if len(written) != 1:
        raise PromptEditError(f"The prompt imports {quote(path)} in several places. Move it in the source.")
    element = written[0].element
    inside = [place.element for place in page.places if place.element.parent is element.parent]
    at = inside.index(element) + (1 if later else -1)
    if not 0 <= at < len(inside):
        return prompt_source
    one, other = page.sound(element), page.sound(inside[at])
    texts = [prompt_source[each.span.start : each.span.end] for each in (other, one)]
    edits = [Edit(each.span, text) for each, text in zip((one, other), texts, strict=True)]
    return apply_edits(prompt_source, edits)


def set_argument(prompt_source: str, schema: Schema, path: str, name: str, value: str | None) -> str:
    """Returns the source of a prompt with an argument, and its module imported; None removes the argument.

    A blank source becomes a prompt.

    Raises:
        PromptEditError: the parameter is unknown, the value has a character that XML forbids, or the source
            is too broken to edit.
    """
    require_module(schema, path)
    module = schema.module(path)
    if module is None or name not in {param.name for param in module.params()}:
        raise PromptEditError(
            f"Module {quote(path)} has no parameter {quote(name)}. Use one of its parameters."
        )
    if value is not None and forbidden_character(value) is not None:
        raise PromptEditError(f"The argument {quote(name)} has a character that XML forbids. Remove it.")
    if value is None and not prompt_source.strip(" \t\r\n\ufeff"):
        return prompt_source
    source = prompt_source if value is None else set_pick(prompt_source, schema, path, True)
    page = Page(source, schema)
    if page.arguments.get(path, {}).get(name) == value:
        return source
    if value is not None and page.written(path) is None:
        page = Page(_write_import(page, path), schema)
    result = _argument(page, path, name, value)
    if Page(result, schema).arguments.get(path, {}).get(name) != value:
        raise PromptEditError(
            f"The prompt has an error that hides {quote(path)}. Fix it in the editor first."
        )
    return result


def _blank_prompt(schema: Schema) -> str:
    name = f' schema="{escaped_value(schema.name)}"' if schema.name else ""
    return f"<prompt{name}>\n</prompt>\n"


def _pick(page: Page, path: str) -> str:
    rival = _rival(page, path)
    if rival is None:
        return _write_import(page, path)
    return _replace_rival(page, rival, path)


def _rival(page: Page, path: str) -> str | None:
    """Returns the imported module that shares a union with a module or one of its ancestors."""
    member = path
    while member:
        union = page.schema.union_of(member)
        for other in union.members if union else ():
            if other.path != member and other.path in page.picks:
                return other.path
        member = member.rpartition("/")[0]
    return None


def _replace_rival(page: Page, rival: str, path: str) -> str:
    """Replaces the rival's import with the new one; text and comments move into it."""
    places = page.under(rival)
    while len(places) > 1:
        page = Page(page.remove(places[-1].element), page.schema)
        if path in page.picks:
            return page.source
        places = page.under(rival)
    place = places[0]
    names = _names_in_place(page, place, path)
    if names is None or page.under(path):
        result = page.remove(place.element)
        page = Page(result, page.schema)
        return result if path in page.picks else _write_import(page, path)
    return _rewrite(page, place, names)


def _names_in_place(page: Page, place: Place, path: str) -> list[str] | None:
    """Returns the elements to write for a path in place of another import; None if it does not fit there."""
    parent = place.element.parent
    host = page.path_of(parent) if parent is not None else None
    if host is None or (host and not path.startswith(host + "/")):
        return None
    names = path.removeprefix(host + "/" if host else "").split("/")
    short = "/" in place.path and not host
    if short and len(page.schema.index.by_name[names[-1]]) == 1:
        return names[-1:]
    return names


def _rewrite(page: Page, place: Place, names: list[str]) -> str:
    element = page.sound(place.element)
    inside = page.remains(element)
    text = page.chain(names, page.indent_of(element), inside)
    return page.replace(element.span.start, element.span.end, text)


def _write_import(page: Page, path: str) -> str:
    """Writes the import of a path into the innermost written ancestor, or into the prompt."""
    host, host_path = page.root, ""
    parent = path.rpartition("/")[0]
    while parent:
        element = page.written(parent)
        if element is not None:
            host, host_path = element, parent
            break
        parent = parent.rpartition("/")[0]
    names = path.removeprefix(host_path + "/" if host_path else "").split("/")
    head = f"{host_path}/{names[0]}" if host_path else names[0]
    order = page.schema.index.order[head]
    return page.insert(host, order, lambda indent: page.chain(names, indent))


def _unpick(page: Page, path: str) -> str:
    """Removes the imports of a module; its ancestors stay imported."""
    parent = path.rpartition("/")[0]
    places = page.under(path)
    while places:
        place = places[-1]
        alone = len(places) == 1 and not _still_imported(page, parent, place)
        names = _names_in_place(page, place, parent) if alone else None
        result = _rewrite(page, place, names) if names else page.remove(place.element)
        page = Page(result, page.schema)
        places = page.under(path)
    return page.source


def _still_imported(page: Page, parent: str, without: Place) -> bool:
    if not parent:
        return True
    inside = without.element.span
    return any(
        place.path == parent or place.path.startswith(parent + "/")
        for place in page.places
        if not inside.start <= place.element.span.start < inside.end
    )


def _argument(page: Page, path: str, name: str, value: str | None) -> str:
    """Writes one argument at the place of its first occurrence and removes the others."""
    places = _given(page, path, name)
    while len(places) > 1 or (places and value is None):
        host, written = places[-1]
        page = Page(_without(page, host, written), page.schema)
        places = _given(page, path, name)
    if value is None:
        return page.source
    multiline = "\n" in value
    if places:
        host, written = places[0]
        if isinstance(written, Element):
            span = page.sound(written).span
            comments = page.remains(written) if written.children else ""
            return page.replace(span.start, span.end, _element(page, host, name, value, comments))
        if not multiline:
            return page.replace(written.span.start, written.span.end, _quoted(page, written, value))
        page = Page(_without(page, host, written), page.schema)
    target = page.written(path)
    if target is None:
        raise PromptEditError(
            f"The import of {quote(path)} cannot be found. Fix the prompt in the editor first."
        )
    if multiline or len(value) > _LONG:
        return page.insert(target, None, lambda _: _element(page, target, name, value))
    spans = [target.tag_span, *(attribute.span for attribute in target.attributes.values())]
    end = max(span.end for span in spans)
    return page.replace(end, end, f' {name}="{escaped_value(value)}"')


def _given(page: Page, path: str, name: str) -> list[tuple[Element, Attribute | Element]]:
    """Returns the places of an argument in order of priority."""
    places: list[tuple[Element, Attribute | Element]] = []
    for place in page.places:
        if place.path != path:
            continue
        attribute = place.element.get(name)
        if attribute is not None:
            places.append((place.element, attribute))
        for child in place.element.children:
            if isinstance(child, Element) and child.tag == "arg":
                key = child.get("name")
                if key is not None and key.value == name:
                    places.append((place.element, child))
    return places


def _without(page: Page, host: Element, written: Attribute | Element) -> str:
    if isinstance(written, Element):
        return page.remove(written)
    before = page.source[host.span.start : written.span.start]
    return page.replace(host.span.start + len(before.rstrip(" \t\r\n")), written.span.end, "")


def _quoted(page: Page, attribute: Attribute, value: str) -> str:
    mark = page.source[attribute.value_span.start - 1]
    mark = mark if mark in "'\"" else '"'
    return f"{attribute.name}={mark}{escaped_value(value, mark)}{mark}"


def _element(page: Page, host: Element, name: str, value: str, comments: str = "") -> str:
    """Returns an argument as an element, with `xml:space` if its white space matters."""
    keep = ' xml:space="preserve"' if not page.preserved(host) and normalise(value) != value else ""
    return f'<arg name="{name}"{keep}>{escaped_text(value)}{comments}</arg>'
