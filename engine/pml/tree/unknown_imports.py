"""Suggests fixes for imports whose name the schema does not define.

A typo, a role, or a renamed module with unchanged text has a single fix. If a rename is only likely, or two
modules are equally near, the user chooses, and each fix shows the text that it imports. No fix removes an
import. It becomes text only if it meets text and contains some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Fix, Span, quote, quote_text, swap
from engine.pml.diagnostics.spelling import Speller, likeliest, meant, rivals
from engine.pml.tree.tree import Import, Module, Param, Role, Schema, Text, Union
from engine.pml.xml.names import HTML, RESERVED, ROLES
from engine.pml.xml.suggestions import MEANT_ELEMENTS

_MOST_EDITS: Final = 100  # places that one fix may change

_SHOWN: Final = 80  # characters before an import to search for text

_ENDING: Final = re.compile(r"[^-_.]{1,3}|[-_.][^-_.]+")
_BEGINNING: Final = re.compile(r"[^-_.]+[-_.]")  # a small change of a name: a short ending or one word


@dataclass(frozen=True)
class Meaning:
    """The likely meaning of an unknown import, and its fixes.

    Attributes:
        words: the suggestion, as the end of a sentence.
        hint: the text to write.
        fix: the edits, if one fix is likely.
        choices: the fixes, if several are likely.
        is_text: whether it is text rather than a tag.
    """

    words: str
    hint: str = ""
    fix: tuple[Edit, ...] = ()
    choices: tuple[Fix, ...] = ()
    is_text: bool = False


class UnknownImports:
    """Finds the meaning of unknown imports in one prompt.

    Args:
        schema: the schema.
        source: the text of the prompt, if any.
        names: counts of the prompt's imports.
        earlier: earlier versions of the schema, the latest first.
    """

    def __init__(self, schema: Schema, source: str, names: Counter[str], earlier: Sequence[Schema]) -> None:
        self._schema, self._source, self._names, self._earlier = schema, source, names, earlier
        self._speller = Speller()
        self._open: dict[str, Sequence[str]] = {}

    def meaning(self, parent: str, node: Import) -> Meaning:
        """Returns the likely meaning of an import in the module `parent` ("" for the prompt)."""
        same = None if self._speller.is_spent else self._called_now(parent, node)
        if same is not None:
            return Meaning(f"it is called <{same}/> now", same, _renamed(node, same))
        if (split := self._run_together(parent, node)) is not None:
            return split
        if (other := self._of_other_kind(parent, node)) is not None:
            return other
        if self._speller.is_spent:
            return self._choice(parent, node, (), None)
        free = [name for name in self._free(parent) if self._fits(parent, name, node)]
        known = free if parent else [*free, *(name for name in self._deeper if self._fits("", name, node))]
        words = _words(parent, node)
        near_names = self._speller.near(node.name, (*known, *words))
        sure = meant(node.name, near_names, words)
        if sure:
            tag = f"<{sure}>" if sure in RESERVED else f"<{sure}/>"
            return Meaning(f"did you mean {tag}?", sure, _renamed(node, sure))
        if (
            node.unclosed is not None
            and self._source[node.name_span.start - 2 : node.name_span.start - 1].isalnum()
        ):
            hint = f"&lt;{node.name}"
            return Meaning(f"write {hint} for literal text", hint, self._as_text(node), is_text=True)
        near_names = [name for name in near_names if name not in words]
        equal = rivals(node.name, near_names)
        one = None if equal else _changed_a_little(node.name, known) or likeliest(node.name, near_names)
        if not equal and one is None and not HTML.fullmatch(node.name):
            added = self._added(parent, node, known)
            one = added[0] if len(added) == 1 else None
        return self._choice(parent, node, equal or [one] if one else equal, next(iter(near_names), None))

    def _run_together(self, parent: str, node: Import) -> Meaning | None:
        """Returns the fix for a name whose first letter precedes its `<`, or that runs into an attribute."""
        start, end = node.name_span.start, node.name_span.end
        letter = self._source[start - 2 : start - 1]
        if letter.isalpha() and (name := f"{letter}{node.name}") in self._free(parent):
            edits = (Edit(Span(start - 2, start - 1), ""), *_renamed(node, name))
            return Meaning(f"the < belongs before {quote(name)}", f"<{name}", edits)
        if self._source[end : end + 1] != "=":
            return None
        names = [
            (name, param.name)
            for name in self._free(parent)
            for param in self._schema.index.members[parent][name].params()
            if f"{name}{param.name}" == node.name
        ]
        if len(names) != 1:
            return Meaning("write a space before the attribute")
        place = start + len(names[0][0])
        hint = " ".join(names[0])
        return Meaning(f"write {hint}, with a space", hint, (Edit(Span(place, place), " "),))

    def _of_other_kind(self, parent: str, node: Import) -> Meaning | None:
        """Returns the fix for a role of another language, an argument, or a path with dots."""
        imports = any(isinstance(child, Import) for child in node.children)
        role = MEANT_ELEMENTS.get(node.name.casefold())
        if role in ROLES and node.children and not (parent or imports or node.arguments):
            return Meaning(f"did you mean <{role}>?", role, _renamed(node, role))
        path = "/".join((*([parent] if parent else []), *node.name.split(".")))
        module = self._schema.module(parent) if parent else None
        params = {param.name for param in module.params()} if module else set()
        if node.name in params and node.end_span and not (imports or node.arguments):
            hint = f'<arg name="{node.name}">'
            edits = (Edit(node.name_span, hint[1:-1]), Edit(node.end_span, "arg"))
            return Meaning(f"an argument is an <arg>; write {hint}", hint, edits)
        if "." in node.name and self._schema.module(path) and not (node.children or node.arguments):
            hint = nested(node.name.replace(".", "/"))
            return Meaning(f"imports nest; write {hint}", hint, (Edit(node.span, hint),))
        return None

    def _choice(self, parent: str, node: Import, likely: Sequence[str], guess: str | None) -> Meaning:
        index = self._schema.index
        choices: list[Fix] = []
        for name in likely:
            module = index.members.get(parent, {}).get(name) or index.by_name[name][0]
            choices.append(Fix(f"Write <{name}/>: {shown(module)} is read instead", _renamed(node, name)))
        reads = HTML.fullmatch(node.name) or (self._meets_text(node) and self._only_says(node))
        as_text = self._as_text(node) if reads else ()
        if as_text:
            choices.append(Fix(f"Write &lt;{node.name}: the tag is then read as text", as_text))
        suggestion = likely[0] if likely else guess
        if suggestion is not None:
            words = f"did you mean {' or '.join(f'<{name}/>' for name in likely or [suggestion])}?"
        elif index.by_path:
            known = ", ".join(islice(index.by_name, 3))
            words = f"it has {known}{' and more' if len(index.by_name) > 3 else ''}"
        else:
            words = "it has no modules"
        if suggestion is None:
            words += f"; import one of its modules, or write &lt;{node.name} for literal text"
        return Meaning(words, suggestion or "", (), tuple(choices), node.unclosed is not None)

    def _free(self, parent: str) -> Sequence[str]:
        """Returns the modules of a module that are not imported and not excluded by a union."""
        if parent not in self._open:
            members = self._schema.index.members.get(parent, {})
            self._open[parent] = [name for name, module in members.items() if self._is_free(module)]
        return self._open[parent]

    def _is_free(self, module: Module) -> bool:
        union = self._schema.union_of(module.path)
        return module.name not in self._names and (
            union is None or all(member.name not in self._names for member in union.members)
        )

    @cached_property
    def _deeper(self) -> Sequence[str]:
        """Returns the nested modules that a top-level import may name."""
        named = self._schema.index.by_name.items()
        return [
            name for name, (first, *more) in named if not more and "/" in first.path and self._is_free(first)
        ]

    def _fits(self, parent: str, name: str, node: Import) -> bool:
        """Whether a module has the parameters and children that an import uses."""
        if not node.arguments and not node.children:
            return True
        index = self._schema.index
        module = index.members.get(parent, {}).get(name) or index.by_name[name][0]
        params, below = {param.name for param in module.params()}, index.members.get(module.path, {})
        return all(argument.name in params for argument in node.arguments) and all(
            child.name in below for child in node.children if isinstance(child, Import)
        )

    def _called_now(self, parent: str, node: Import) -> str | None:
        """Returns the current name of a module that an earlier schema called `node.name`."""
        path = f"{parent}/{node.name}" if parent else node.name
        for former in self._earlier:
            matches = former.find(path)
            if len(matches) != 1 or node.name in self._schema.index.by_name:
                continue
            content = _content(matches[0])
            same = [module for module in self._schema.modules() if _content(module) == content]
            if len(same) == 1 and former.module(same[0].path) is None and self._is_free(same[0]):
                return same[0].name
        return None

    def _added(self, parent: str, node: Import, known: Sequence[str]) -> Sequence[str]:
        """Returns the known modules that the latest earlier schema with `node.name` does not have."""
        path = f"{parent}/{node.name}" if parent else node.name
        former = next((schema for schema in self._earlier if schema.find(path)), None)
        return [name for name in known if not former.find(name)] if former else []

    def _meets_text(self, node: Import) -> bool:
        """Whether text precedes or follows an import on its line."""
        start, end = node.span.start, node.span.end
        before = self._source[max(0, start - _SHOWN) : start].rpartition("\n")[2].strip()
        after = self._source[end : end + _SHOWN].partition("\n")[0].strip()
        return before[-1:] not in ("", ">") or after[:1] not in ("", "<")

    def _only_says(self, node: Import) -> bool:
        """Whether an import contains text and imports no module."""
        says, waiting = False, [node]
        while waiting:
            tag = waiting.pop()
            if tag.arguments or tag.name in self._schema.index.by_name:
                return False
            says = says or any(isinstance(child, Text) and not child.seam for child in tag.children)
            waiting += [child for child in tag.children if isinstance(child, Import)]
        return says

    def _as_text(self, node: Import) -> tuple[Edit, ...]:
        """Returns the edits that escape the tags of an unknown import and of the unknown ones in it."""
        edits: list[Edit] = []
        waiting = [node]
        while waiting:
            tag = waiting.pop()
            if tag is not node and tag.name in self._schema.index.by_name:
                continue
            places = [tag.name_span.start - 1, *([tag.end_span.start - 2] if tag.end_span else [])]
            if any(self._source[place : place + 1] != "<" for place in places) or len(edits) > _MOST_EDITS:
                return ()
            edits += [Edit(Span(place, place + 1), "&lt;") for place in places]
            waiting += [child for child in tag.children if isinstance(child, Import)]
        return tuple(edits)


def _renamed(node: Import, name: str) -> tuple[Edit, ...]:
    return (*swap(node.name_span, name), *(swap(node.end_span, name) if node.end_span else ()))


def _words(parent: str, node: Import) -> tuple[str, ...]:
    """Returns the PML elements of which an import may be a typo."""
    if any(isinstance(child, Import) for child in node.children):
        return ()
    names = [argument.name for argument in node.arguments]
    if parent:
        return ("arg",) if names == ["name"] else ()
    return () if names else ROLES


def _changed_a_little(name: str, known: Sequence[str]) -> str | None:
    """Returns the only known name that differs by a short ending or one word."""
    matches = []
    for other in dict.fromkeys(known):
        short, long = sorted((name, other), key=len)
        if (long.startswith(short) and _ENDING.fullmatch(long, len(short))) or (
            long.endswith(short) and _BEGINNING.fullmatch(long, 0, len(long) - len(short))
        ):
            matches.append(other)
    return matches[0] if len(matches) == 1 else None


def _content(module: Module) -> tuple[tuple[str, ...], ...]:
    """Returns the texts and parameters of a module, including nested ones, in order."""
    contents: list[tuple[str, ...]] = []
    pending: list[Text | Param | Module | Union | Role] = [*reversed(module.children)]
    while pending:
        node = pending.pop()
        if isinstance(node, Text):
            contents += [("text", node.text)] if not node.seam else []
        elif isinstance(node, Param):
            contents.append(("parameter", node.name))
        else:
            contents.append((type(node).__name__,))
            pending += reversed(node.members if isinstance(node, Union) else node.children)
    return tuple(contents)


def shown(module: Module) -> str:
    """Returns the beginning of a module's text, for the title of a fix."""
    text = " ".join("".join(child.text for child in module.contents() if isinstance(child, Text)).split())
    return quote_text(text) if text else f"module {quote(module.path)}"


def nested(path: str) -> str:
    """Returns the import of a path, wrapped in its ancestors."""
    *outer, last = path.split("/")
    opened = "".join(f"<{name}>" for name in outer)
    closed = "".join(f"</{name}>" for name in reversed(outer))
    return f"{opened}<{last}/>{closed}"
