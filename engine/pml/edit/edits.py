"""The picker's side of a prompt: picks and arguments written into the source, and read back from it.

The edits touch the smallest stretch of the source and keep free text, comments and layout. What is imported
afterwards follows from what was before: picking adds the module and the modules round it, and takes away what
a union does not allow beside them; un-picking takes away the module and all inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.pml.diagnostics.diagnostic import quote
from engine.pml.edit.prompt_source import Page, Place, PromptEditError, require_module
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.rules import normalise
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text, escaped_value

_LONG: Final = 60
"""A new argument longer than this is written as an element of its own."""


@dataclass(frozen=True)
class Picks:
    """What a prompt imports.

    Attributes:
        paths: the imported modules in the order of the schema, ancestors included.
        arguments: the arguments that are given, by path and name.
    """

    paths: tuple[str, ...]
    arguments: dict[str, dict[str, str]]


def read_picks(prompt_source: str, schema: Schema) -> Picks:
    """What a prompt imports from a schema; nothing where the source has no `<prompt>` element."""
    try:
        page = Page(prompt_source, schema)
    except PromptEditError:
        return Picks((), {})
    order = schema.index.order
    return Picks(tuple(sorted(page.picks, key=order.__getitem__)), page.arguments)


def set_pick(prompt_source: str, schema: Schema, path: str, on: bool) -> str:
    """Imports a module in the source of a prompt, or takes its import away.

    Args:
        prompt_source: the source; a blank one becomes a new prompt.
        schema: the schema.
        path: the module.
        on: whether it is to be imported.

    Returns:
        The new source; the same one where nothing is to be changed.

    Raises:
        PromptEditError: the schema has no such module, or the source is too broken to be edited.
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
            f"The prompt has a fault that hides {quote(path)}. Mend it in the editor first."
        )
    return result


def set_argument(prompt_source: str, schema: Schema, path: str, name: str, value: str | None) -> str:
    """Gives an argument in the source of a prompt, or takes it away; a module not yet imported is imported.

    Args:
        prompt_source: the source; a blank one becomes a new prompt.
        schema: the schema.
        path: the module.
        name: the parameter.
        value: the argument, or None to take it away.

    Returns:
        The new source; the same one where nothing is to be changed.

    Raises:
        PromptEditError: the schema has no such parameter, the value has a character that XML forbids, or the
            source is too broken to be edited.
    """
    require_module(schema, path)
    module = schema.module(path)
    if module is None or name not in {param.name for param in module.params()}:
        raise PromptEditError(f"Module {quote(path)} has no parameter {quote(name)}. Use one that it has.")
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
            f"The prompt has a fault that hides {quote(path)}. Mend it in the editor first."
        )
    return result


def _blank_prompt(schema: Schema) -> str:
    name = f' schema="{escaped_value(schema.name)}"' if schema.name else ""
    return f"<prompt{name}>\n</prompt>\n"


# Picks


def _pick(page: Page, path: str) -> str:
    rival = _rival(page, path)
    if rival is None:
        return _write_import(page, path)
    return _replace_rival(page, rival, path)


def _rival(page: Page, path: str) -> str | None:
    """The imported module that shares a union with the module of a path, or with one round it."""
    member = path
    while member:
        union = page.schema.union_of(member)
        for other in union.members if union else ():
            if other.path != member and other.path in page.picks:
                return other.path
        member = member.rpartition("/")[0]
    return None


def _replace_rival(page: Page, rival: str, path: str) -> str:
    """Writes the new import where the rival's stands; text and comments inside the rival move into it."""
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
    """The elements to write for a path where another import stands, or None where it cannot stand there."""
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
    kept = page.remains(element)
    text = page.chain(names, page.indent_of(element), kept)
    return page.replace(element.span.start, element.span.end, text)


def _write_import(page: Page, path: str) -> str:
    """Writes the import of a path into the innermost import round it that is written, or into the prompt."""
    host, host_path = page.root, ""
    parent = path.rpartition("/")[0]
    while parent:
        found = page.written(parent)
        if found is not None:
            host, host_path = found, parent
            break
        parent = parent.rpartition("/")[0]
    names = path.removeprefix(host_path + "/" if host_path else "").split("/")
    head = f"{host_path}/{names[0]}" if host_path else names[0]
    order = page.schema.index.order[head]
    return page.insert(host, order, lambda indent: page.chain(names, indent))


def _unpick(page: Page, path: str) -> str:
    """Removes what imports a module; what was imported round it stays imported."""
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
    """Whether a module stays imported when one element is removed."""
    if not parent:
        return True
    inside = without.element.span
    return any(
        place.path == parent or place.path.startswith(parent + "/")
        for place in page.places
        if not inside.start <= place.element.span.start < inside.end
    )


# Arguments


def _argument(page: Page, path: str, name: str, value: str | None) -> str:
    """Writes one argument: in the place of the first there is, taking further ones away."""
    given = _given(page, path, name)
    while len(given) > 1 or (given and value is None):
        host, written = given[-1]
        page = Page(_without(page, host, written), page.schema)
        given = _given(page, path, name)
    if value is None:
        return page.source
    multiline = "\n" in value
    if given:
        host, written = given[0]
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
    """Where an argument is given, in the order in which it counts."""
    found: list[tuple[Element, Attribute | Element]] = []
    for place in page.places:
        if place.path != path:
            continue
        attribute = place.element.get(name)
        if attribute is not None:
            found.append((place.element, attribute))
        for child in place.element.children:
            if isinstance(child, Element) and child.tag == "arg":
                key = child.get("name")
                if key is not None and key.value == name:
                    found.append((place.element, child))
    return found


def _without(page: Page, host: Element, written: Attribute | Element) -> str:
    """The source without an argument."""
    if isinstance(written, Element):
        return page.remove(written)
    before = page.source[host.span.start : written.span.start]
    return page.replace(host.span.start + len(before.rstrip(" \t\r\n")), written.span.end, "")


def _quoted(page: Page, attribute: Attribute, value: str) -> str:
    mark = page.source[attribute.value_span.start - 1]
    mark = mark if mark in "'\"" else '"'
    return f"{attribute.name}={mark}{escaped_value(value, mark)}{mark}"


def _element(page: Page, host: Element, name: str, value: str, comments: str = "") -> str:
    """An argument as an element; it says so where its white space has to be kept."""
    keep = ' xml:space="preserve"' if not page.preserved(host) and normalise(value) != value else ""
    return f'<arg name="{name}"{keep}>{escaped_text(value)}{comments}</arg>'
