"""Checks the attributes of a schema's elements: known names, allowed values, and valid module names."""

from __future__ import annotations

from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Span, quote, swap
from engine.pml.parse.tree_builder import AnyFrame, TreeBuilder
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.names import ATTRIBUTES, CACHE, NAME, NAME_RULE, SPACE_MODES
from engine.pml.xml.suggestions import meant_attribute, meant_choice, removed, usable_name

MAX_PATH: Final = 2000  # characters in the path of a module; every nested module stores a copy


class AttributeReader(TreeBuilder[AnyFrame]):
    """A builder of schemas that checks attributes."""

    def _attributes(self, element: Element, kind: str) -> dict[str, Attribute]:
        """Returns the attributes of an element by their corrected names; reports errors."""
        known = ATTRIBUTES[kind]
        result: dict[str, Attribute] = {}
        for name, attribute in element.attributes.items():
            if name in known:
                result[name] = attribute
                self._check_choice(attribute)
            elif name == "xml:space":
                self._check_choice(attribute)
            elif ":" not in name:
                near = self._speller.nearest(
                    name, [other for other in known if other not in element.attributes]
                ) or meant_attribute(name, known, element.attributes)
                remedy = f"did you mean {near}?" if near else "remove it"
                message = f"<{element.tag}> has no attribute {quote(name)}; {remedy}"
                span = Span(attribute.span.start, attribute.span.start + len(name))
                fix = swap(span, near) or removed(self._text, attribute.span)
                self._report.add("E203", message, span, near or NOTHING, fix)
                if near:
                    result[near] = element.attributes.get(near) or attribute
        element.attributes.update(
            {name: attribute for name, attribute in result.items() if name not in element.attributes}
        )
        return result

    def _check_choice(self, attribute: Attribute) -> None:
        choices = {"cache": CACHE, "xml:space": SPACE_MODES}.get(attribute.name)
        if choices and attribute.value not in choices:
            both = " or ".join(f'{attribute.name}="{choice}"' for choice in choices)
            message = f"{attribute.name} cannot be {quote(attribute.value)}; write {both}"
            right = meant_choice(attribute.value, choices)
            span = attribute.value_span
            self._report.add("E204", message, span, right or "", swap(span, right))

    def _required(self, element: Element, attributes: dict[str, Attribute], name: str) -> Attribute | None:
        actual = attributes.get(name)
        if actual is not None and actual.value.strip():
            return actual
        parent, bare = element.parent, element.empty_tag and not element.attributes
        if bare and parent is not None and parent.tag == element.tag and not parent.closed:
            hint = f"</{element.tag}>"
            message = f"a second <{element.tag}/> has no {name}; to close the first, write {hint}"
            self._report.add("E202", message, element.tag_span, hint, (Edit(element.span, hint),))
            return None
        what = "is missing" if actual is None else "is empty"
        message = f'the attribute {name} of <{element.tag}> {what}; write {name}="…"'
        self._report.add("E202", message, element.tag_span if actual is None else actual.span, f'{name}="…"')
        return None

    def _check_name(self, what: str, name: Attribute) -> bool:
        if NAME.fullmatch(name.value):
            return True
        usable = usable_name(name.value)
        message = f"{quote(name.value)} cannot name a {what}: {NAME_RULE}"
        self._report.add("E301", message, name.value_span, usable or "", swap(name.value_span, usable))
        return False

    def _check_path(self, name: Attribute, path: str) -> bool:
        if len(path) <= MAX_PATH:
            return True
        message = f"the path of this module has more than {MAX_PATH} characters; use shorter names"
        self._report.add("E301", message, name.value_span)
        return False
