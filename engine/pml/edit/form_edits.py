"""Edits a document by its form. Every edit changes the smallest possible part of the source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final, Literal

from engine.pml.diagnostics.diagnostic import Edit, Span, quote
from engine.pml.diagnostics.quick_fixes import apply_edits
from engine.pml.edit.edits import read_picks, set_pick
from engine.pml.edit.form import HOLDS_TEXT, Card, Form, Sketch, agrees, form_of
from engine.pml.edit.form_words import FormError, name_of, written_text
from engine.pml.edit.prompt_source import Page, PromptEditError
from engine.pml.parse.documents import parse_prompt, parse_schema
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.rules import SPACE
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.escaping import escaped_text, escaped_value
from engine.pml.xml.names import NAME, PATH, ROLES
from engine.pml.xml.suggestions import name_advice

New = Literal["module", "union", "text", "system", "user", "assistant"]

# comments on their own lines directly before an element
_COMMENTS: Final = re.compile(r"(?<=[\r\n])[ \t]*((?:<!--(?:(?!-->).)*-->[ \t]*\r?\n[ \t]*)+)\Z", re.DOTALL)


class Edited:
    """A schema and a prompt during an edit of a form.

    Attributes:
        schema: the text of the schema.
        prompt: the text of the prompt.
    """

    def __init__(self, schema: str, prompt: str, base: Path | None = None) -> None:
        self.schema, self.prompt, self._base = schema, prompt, base
        parsed = parse_schema(schema, base=base)
        self._tree: Schema | None = parsed.tree if parsed.ok else None

    def set_text(self, index: int, text: str) -> None:
        """Writes the text of a card of the schema; an empty text removes it."""
        form = self._form()
        card = _card(form, index, "text")
        home = form.home(index)
        source, renamed = written_text(form, card, text, home)
        self._take(source, _with_text(form, index, text))
        if renamed is not None and home is not None:
            self._rename_arguments(home.path, *renamed)

    def rename(self, index: int, name: str) -> None:
        """Renames a module or the schema, also in scaffolds and in the prompt."""
        form = self._form()
        card = _card(form, index, "module", "schema")
        attribute = card.element.get("name") if card.element is not None else None
        if attribute is None:
            raise FormError("It has no name. Write one in the source.")
        _require_name(name)
        edits = [_value(form.source, attribute, name)]
        if card.kind == "schema":
            self._take(apply_edits(form.source, edits), [(0, "schema", name), *form.sketch()[1:]])
            self._rename_schema(card.name, name)
            return
        path = f"{card.path.rpartition('/')[0]}/{name}".lstrip("/")
        edits += _renamed_lists(form, card, path)
        old, wanted = self._tree, form.sketch()
        wanted[index] = (card.depth, card.kind, name)
        self._take(apply_edits(form.source, edits), wanted)
        self._rename_imports(old, card.path, path)

    def set_parameter(self, index: int, old: str, name: str, length: int, default: str | None) -> None:
        """Changes a parameter of a module; a default of None removes it."""
        form = self._form()
        card = _card(form, index, "module")
        _require_name(name)
        found = [param for param in form.params(card) if name_of(param) == old]
        first = found[0] if found else None
        written = first.get("len", "length") if first is not None else None
        if first is None or written is None:
            raise FormError(f"The module has no parameter {quote(old)}.")
        edits = [_value(form.source, named, name) for param in found if (named := param.get("name"))]
        edits.append(_value(form.source, written, str(length)))
        edits += _default(form.source, first, default)
        wanted = [
            (depth, kind, label.replace(f"{{{{{old}}}}}", f"{{{{{name}}}}}"))
            if kind == "text" and form.home(at) is card
            else (depth, kind, label)
            for at, (depth, kind, label) in enumerate(form.sketch())
        ]
        edits = [edit for edit in edits if form.source[edit.span.start : edit.span.end] != edit.text]
        self._take(apply_edits(form.source, edits), wanted)
        if name != old:
            self._rename_arguments(card.path, old, name)

    def add(self, index: int, what: New) -> int:
        """Adds a module, union, text or turn at the end of a card; returns the index of the new card."""
        form = self._form()
        host = _card(form, index, "schema", "turn", "module", "union")
        inside = [at for at in form.inside(index) if not _is_empty(form.cards[at])]
        lines, new = _block(
            form, what, host.depth + 1, set(self._tree.index.by_name) if self._tree else set()
        )
        wanted = form.sketch()
        place = form.under(index).stop
        if not inside and place > index + 1:  # the new card replaces an empty text
            place -= 1
            del wanted[place]
        wanted[place:place] = new
        flat = "".join(line.strip() for line in lines)
        self._take(_inserted(form, host, [form.cards[at] for at in inside], lines, flat), wanted)
        return place

    def remove(self, index: int) -> None:
        """Removes a card and its imports in the prompt."""
        form = self._form()
        card = _card(form, index, "text", "turn", "module", "union")
        if card.kind == "text":
            self.set_text(index, "")
            return
        under, prompt = form.under(index), self.prompt
        paths = {form.cards[at].path for at in under if form.cards[at].kind == "module"}
        if self._tree is not None:
            for path in read_picks(prompt, self._tree).paths[::-1]:
                if path in paths:
                    prompt = set_pick(prompt, self._tree, path, False)
        host = form.cards[card.host]
        span = _extent(form, form.inside(card.host), index)
        edits = [Edit(span if host.preserve else form.with_line(span), "")]
        wanted = form.sketch()
        wanted[under.start : under.stop] = []
        if len(form.inside(card.host)) == 1 and host.kind in HOLDS_TEXT:
            wanted.insert(index, (card.depth, "text", ""))
        self._take(apply_edits(form.source, edits + _unlisted(form, card, paths)), wanted)
        self.prompt = prompt

    def move(self, index: int, place: int) -> int:
        """Moves a card to another place among the cards with it; returns its new index."""
        form = self._form()
        card = _card(form, index, "text", "turn", "module", "union")
        siblings = form.inside(card.host)
        order = [at for at in siblings if at != index]
        order.insert(max(0, min(place, len(order))), index)
        spans = {at: _extent(form, siblings, at) for at in siblings}
        texts = {at: form.source[span.start : span.end] for at, span in spans.items()}
        edits = [
            Edit(spans[at], texts[other]) for at, other in zip(siblings, order, strict=True) if at != other
        ]
        old = form.sketch()
        wanted = [*old[: siblings[0]]] if siblings else []
        for at in order:
            wanted += [old[one] for one in form.under(at)]
        wanted += old[form.under(card.host).stop :]
        before = order[: order.index(index)]
        try:
            self._take(apply_edits(form.source, edits), wanted)
        except FormError:  # another first line would change the indentation of a text
            host = form.cards[card.host]
            assert host.element is not None
            end = spans[before[-1]].end if before else host.element.open_span.end
            start = spans[index].start
            cut = Span(start if host.preserve else len(form.source[:start].rstrip(SPACE)), spans[index].end)
            piece = Edit(Span(end, end), form.source[cut.start : cut.end])
            self._take(apply_edits(form.source, [Edit(cut, ""), piece]), wanted)
        return _place(form_of(self.schema), card, sum(form.cards[at].element is not None for at in before))

    def set_prompt_text(self, index: int, text: str) -> None:
        """Writes a text of the prompt."""
        form = self._prompt_form()
        source, _ = written_text(form, _card(form, index, "text"), text, None)
        self._take_prompt(source, _with_text(form, index, text))

    def ask(self, text: str) -> None:
        """Adds a question at the end of the prompt."""
        if not self.prompt.strip(" \t\r\n\ufeff"):
            name = f' schema="{escaped_value(self._tree.name)}"' if self._tree is not None else ""
            self.prompt = f"<prompt{name}>\n</prompt>\n"
        form = self._prompt_form()
        text = text.strip(SPACE)
        block, new = escaped_text(text), [(1, "text", text)]
        lines = block.split("\n")
        if self._tree is not None and self._tree.index.turns:
            block, new = f"<user>{block}</user>", [(1, "turn", "user"), (2, "text", text)]
            lines = [block]
        source = _inserted(form, form.cards[0], [form.cards[at] for at in form.inside(0)], lines, block)
        self._take_prompt(source, [*form.sketch(), *new])

    def _form(self) -> Form:
        if self._tree is None:
            raise FormError("The schema has an error. Fix it in the source first.")
        return form_of(self.schema)

    def _prompt_form(self) -> Form:
        parsed = parse_prompt(self.prompt)
        if not parsed.ok:
            raise FormError("The prompt has an error. Fix it in the source first.")
        return form_of(self.prompt)

    def _take(self, source: str, wanted: Sketch) -> None:
        """Takes a new text of the schema if it is valid and shows what is wanted."""
        parsed = parse_schema(source, base=self._base)
        fault = next((one for one in parsed.diagnostics if one.severity == "error"), None)
        if fault is not None:
            raise FormError(f"Not changed, because the schema would have an error: {fault.message}.")
        _require_alike(wanted, form_of(source))
        self.schema, self._tree = source, parsed.tree

    def _take_prompt(self, source: str, wanted: Sketch) -> None:
        if not parse_prompt(source).ok:
            raise FormError("Not changed, because the prompt would have an error.")
        _require_alike(wanted, form_of(source))
        self.prompt = source

    def _rename_schema(self, old: str, new: str) -> None:
        tree = parse_prompt(self.prompt).tree
        if tree is not None and tree.schema == old:
            self.prompt = apply_edits(self.prompt, [Edit(tree.schema_span, new)])

    def _rename_imports(self, old: Schema | None, path: str, new: str) -> None:
        try:
            page = Page(self.prompt, old) if old is not None else None
        except PromptEditError:
            page = None
        if page is None or self._tree is None or old is None:
            return
        places = [place.element for place in page.places if place.path == path]
        edits = [edit for element in places for edit in element.renamed(new.rpartition("/")[2])]
        prompt = apply_edits(self.prompt, edits)
        was = {_moved(picked, path, new) for picked in read_picks(self.prompt, old).paths}
        if set(read_picks(prompt, self._tree).paths) != was:
            raise FormError("With this name the prompt would import another module. Choose another name.")
        self.prompt = prompt

    def _rename_arguments(self, path: str, old: str, new: str) -> None:
        if self._tree is None:
            return
        try:
            page = Page(self.prompt, self._tree)
        except PromptEditError:
            return
        edits = []
        for place in page.places:
            if place.path != path:
                continue
            attribute = place.element.get(old)
            edits += [Edit(attribute.name_span, new)] if attribute is not None else []
            for child in place.element.children:
                key = child.get("name") if isinstance(child, Element) and child.tag == "arg" else None
                edits += [Edit(key.value_span, new)] if key is not None and key.value == old else []
        self.prompt = apply_edits(self.prompt, edits)


def _card(form: Form, index: int, *kinds: str) -> Card:
    """Returns a card of one of these kinds.

    Raises:
        FormError: there is no such card.
    """
    if not 0 <= index < len(form.cards) or form.cards[index].kind not in kinds:
        raise FormError("The document has changed since. Try again.")
    return form.cards[index]


def _place(form: Form, moved: Card, elements: int) -> int:
    """Returns the index of a card after a move behind that many elements; texts that meet become one."""
    inside = form.inside(moved.host)
    marks = [at for at in inside if form.cards[at].element is not None]
    if moved.element is not None:
        return marks[elements]
    return next(at for at in inside if at > (marks[elements - 1] if elements else moved.host))


def _is_empty(card: Card) -> bool:
    return card.text is not None and not card.text.tokens and not card.text.why


def _with_text(form: Form, index: int, text: str) -> Sketch:
    """Returns what a form shows after another text of a card."""
    wanted, card = form.sketch(), form.cards[index]
    normal = card.text.normal(text) if card.text is not None else text
    wanted[index] = (card.depth, card.kind, normal)
    if not normal and (len(form.inside(card.host)) > 1 or form.cards[card.host].kind not in HOLDS_TEXT):
        del wanted[index]
    return wanted


def _require_alike(wanted: Sketch, form: Form) -> None:
    if not agrees(wanted, form.sketch()):
        raise FormError("Not changed, because other parts of the document would change too. Edit the source.")


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise FormError(f"{quote(name)} cannot be a name: {name_advice(name)}.")


def _moved(path: str, old: str, new: str) -> str:
    """Returns a path after the module `old` is named `new`."""
    return new + path[len(old) :] if f"{path}/".startswith(f"{old}/") else path


def _value(source: str, attribute: Attribute, value: str) -> Edit:
    return Edit(attribute.value_span, escaped_value(value, source[attribute.value_span.start - 1]))


def _default(source: str, param: Element, default: str | None) -> list[Edit]:
    """Returns the edits that write, change or remove a default."""
    attribute = param.get("default")
    if attribute is not None:
        return [_value(source, attribute, default) if default is not None else _gone(source, attribute)]
    end = max(one.span.end for one in param.attributes.values())
    return [] if default is None else [Edit(Span(end, end), f' default="{escaped_value(default)}"')]


def _gone(source: str, attribute: Attribute) -> Edit:
    """Returns the edit that removes an attribute and the white space before it."""
    start = attribute.span.start
    return Edit(Span(len(source[:start].rstrip(SPACE)), attribute.span.end), "")


def _lists(form: Form) -> list[tuple[Card, Attribute]]:
    """Returns the scaffolds with their lists of modules."""
    found = [
        (card, card.element.get("modules")) for card in form.cards if card.name == "scaffold" and card.element
    ]
    return [(card, modules) for card, modules in found if modules is not None]


def _renamed_lists(form: Form, card: Card, path: str) -> list[Edit]:
    """Returns the edits that rename a module in scaffolds."""
    edits = [
        Edit(Span(*word.span()), _moved(word[0], card.path, path))
        for _, modules in _lists(form)
        for word in PATH.finditer(form.source, modules.value_span.start, modules.value_span.end)
    ]
    union = form.cards[card.host].element
    member = union.get("scaffold") if union is not None and union.tag == "union" else None
    if member is not None and member.value == card.name:
        edits.append(Edit(member.value_span, path.rpartition("/")[2]))
    return edits


def _unlisted(form: Form, card: Card, paths: set[str]) -> list[Edit]:
    """Returns the edits that remove modules from scaffolds; a scaffold of one module is removed."""
    edits: list[Edit] = []
    for scaffold, modules in _lists(form):
        named = modules.value.split()
        left = [path for path in named if path not in paths]
        if len(left) < 2 and left != named:
            edits.append(Edit(form.with_line(scaffold.span), ""))
        elif left != named:
            edits.append(Edit(modules.value_span, " ".join(left)))
    union = form.cards[card.host].element
    member = union.get("scaffold") if union is not None and union.tag == "union" else None
    if member is not None and member.value == card.name:
        edits.append(_gone(form.source, member))
    return edits


def _block(form: Form, what: New, depth: int, names: set[str]) -> tuple[list[str], Sketch]:
    """Returns the lines of a new part, and what a form shows of it."""
    if what == "text":
        return ["New text."], [(depth, "text", "New text.")]
    if what in ROLES:
        return [f"<{what}>", f"</{what}>"], [(depth, "turn", what), (depth + 1, "text", "")]
    numbered = (f"module-{number}" for number in count(1))
    free = (name for name in numbered if name not in names)
    if what == "module":
        name = next(free)
        return [f'<module name="{name}">', "</module>"], [(depth, "module", name), (depth + 1, "text", "")]
    unit, members = form.unit(), [next(free), next(free)]
    lines = [line for name in members for line in (f'{unit}<module name="{name}">', f"{unit}</module>")]
    new = [one for name in members for one in ((depth + 1, "module", name), (depth + 2, "text", ""))]
    return ["<union>", *lines, "</union>"], [(depth, "union", ""), *new]


def _inserted(form: Form, host: Card, inside: Sequence[Card], lines: Sequence[str], flat: str) -> str:
    """Returns the source with new lines at the end of a card; `flat` if white space is preserved there."""
    source, element = form.source, host.element
    assert element is not None
    newline = "\r\n" if "\r\n" in source else "\n"
    own = form.indent(element.span.start) or ""
    indents = [indent for card in inside if (indent := form.indent(card.span.start)) is not None]
    step = newline + (indents[-1] if indents else own + form.unit())
    text = flat if host.preserve else "".join(step + line for line in lines)
    close = "" if host.preserve else newline + own
    place = inside[-1].span.end if inside else element.open_span.end
    if element.empty_tag:
        head = source[: element.open_span.end - len("/>")].rstrip(SPACE)
        return f"{head}>{text}{close}</{element.tag}>{source[element.span.end :]}"
    rest = source[place : element.close_span.start if element.close_span else place]
    return source[:place] + text + ("" if "\n" in rest else close) + source[place:]


def _extent(form: Form, siblings: Sequence[int], at: int) -> Span:
    """Returns the place of a card with the comments on the lines before it."""
    card = form.cards[at]
    host, place = form.cards[card.host], siblings.index(at)
    if card.element is None or host.element is None or host.preserve:
        return card.span
    begin = form.cards[siblings[place - 1]].span.end if place else host.element.open_span.end
    comments = _COMMENTS.search(form.source, begin, card.span.start)
    return Span(comments.start(1), card.span.end) if comments else card.span
