"""What an import was meant to be whose name the schema does not have.

A slip of the finger, a role, or a module that had the name before and has its text still, is one thing only.
Where the schema may have renamed a module, a person chooses: the module, nothing, or text. Where it may have
been any of several modules, nothing is offered, for each would make another prompt.
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
from engine.pml.diagnostics.spelling import Speller, likeliest, meant
from engine.pml.tree.tree import Import, Module, Param, Role, Schema, Text, Union
from engine.pml.xml.names import RESERVED, ROLES

_MOST_EDITS: Final = 100
"""The most places that one fix changes."""

_SHOWN: Final = 80
"""How far before an import text is looked for in its line, in characters."""

_ENDING: Final = re.compile(r"[^-_.]{1,3}|[-_.][^-_.]+")
_BEGINNING: Final = re.compile(r"[^-_.]+[-_.]")
"""What a name gets that is changed a little: a short ending, or one word."""


@dataclass(frozen=True)
class Meaning:
    """What is said of an unknown import, and what repairs it.

    Attributes:
        words: what it is likely to be, as the end of a sentence.
        hint: what to write.
        fix: the edits where one thing is likely.
        choices: the ways to repair it where several are.
        is_text: whether it is no tag at all.
    """

    words: str
    hint: str = ""
    fix: tuple[Edit, ...] = ()
    choices: tuple[Fix, ...] = ()
    is_text: bool = False


class UnknownImports:
    """Finds what unknown imports of one prompt mean.

    Args:
        schema: the schema.
        source: the text of the prompt; empty where it was never in a document.
        names: the names of all imports of the prompt, and how often each is there.
        earlier: what the schema said before, the latest first.
    """

    def __init__(self, schema: Schema, source: str, names: Counter[str], earlier: Sequence[Schema]) -> None:
        self._schema, self._source, self._names, self._earlier = schema, source, names, earlier
        self._speller = Speller()
        self._open: dict[str, Sequence[str]] = {}

    def meaning(self, parent: str, node: Import, beside: Sequence[Import | Text | Role]) -> Meaning:
        """What an import means.

        Args:
            parent: the path of the module that it stands in; empty for the prompt.
            node: the import.
            beside: the children of what it stands in, itself included.
        """
        same = None if self._speller.is_spent else self._called_now(parent, node)
        if same is not None:
            return Meaning(f"it is called <{same}/> now", same, _renamed(node, same))
        if self._speller.is_spent:
            return self._choice(parent, node, None, None, ())
        here = [one for one in self._free(parent) if self._fits(parent, one, node)]
        known = here if parent else [*here, *(one for one in self._deeper if self._fits("", one, node))]
        words = _words(parent, node)
        found = self._speller.near(node.name, (*known, *words))
        sure = meant(node.name, found, words)
        if sure:
            tag = f"<{sure}>" if sure in RESERVED else f"<{sure}/>"
            return Meaning(f"did you mean {tag}?", sure, _renamed(node, sure))
        if (
            node.unclosed is not None
            and self._source[node.name_span.start - 2 : node.name_span.start - 1].isalnum()
        ):
            hint = f"&lt;{node.name}"
            return Meaning(f"write {hint} where it is text", hint, self._as_text(node), is_text=True)
        found = [one for one in found if one not in words]
        near = _changed_a_little(node.name, known) or likeliest(node.name, found)
        if near is None and len(left := self._between(parent, node, beside, here)) == 1:
            near = left[0]
        return self._choice(parent, node, near, next(iter(found), None), here)

    def _choice(
        self, parent: str, node: Import, near: str | None, guess: str | None, free: Sequence[str]
    ) -> Meaning:
        index = self._schema.index
        choices: list[Fix] = []
        tag = f"<{node.name}/>"
        if near is not None:
            module = index.members.get(parent, {}).get(near) or index.by_name[near][0]
            title = f"Write <{near}/>: {_shown(module)} is read instead"
            choices.append(Fix(title, _renamed(node, near)))
            if not node.children and not node.arguments and node.unclosed is None:
                choices.append(Fix(f"Remove {tag}: nothing is read in its place", (Edit(node.span, ""),)))
        in_words = (not free and not guess) or self._follows_text(node)
        as_text = self._as_text(node) if near or (in_words and self._only_says(node)) else ()
        if as_text:
            choices.append(Fix(f"Write &lt;{node.name}: the tag is then read as text", as_text))
        said = near or guess
        if said is not None:
            words = f"did you mean <{said}/>?"
        elif index.by_path:
            known = ", ".join(islice(index.by_name, 3))
            words = f"it has {known}{' and others' if len(index.by_name) > 3 else ''}"
        else:
            words = "it defines none"
        if said is None:
            words += f"; import one of its modules, or write &lt;{node.name} where it is text"
        return Meaning(words, said or "", (), tuple(choices), node.unclosed is not None)

    # Modules

    def _free(self, parent: str) -> Sequence[str]:
        """The names of modules in a module that nothing imports, and that a union leaves open."""
        if parent not in self._open:
            members = self._schema.index.members.get(parent, {})
            self._open[parent] = [name for name, one in members.items() if self._is_free(one)]
        return self._open[parent]

    def _is_free(self, module: Module) -> bool:
        union = self._schema.union_of(module.path)
        return module.name not in self._names and (
            union is None or all(member.name not in self._names for member in union.members)
        )

    @cached_property
    def _deeper(self) -> Sequence[str]:
        """The names of modules in others that an import directly under the prompt may mean."""
        named = self._schema.index.by_name.items()
        return [name for name, (one, *more) in named if not more and "/" in one.path and self._is_free(one)]

    def _fits(self, parent: str, name: str, node: Import) -> bool:
        """Whether a module has what an import gives."""
        if not node.arguments and not node.children:
            return True
        index = self._schema.index
        module = index.members.get(parent, {}).get(name) or index.by_name[name][0]
        params, below = {param.name for param in module.params()}, index.members.get(module.path, {})
        return all(argument.name in params for argument in node.arguments) and all(
            child.name in below for child in node.children if isinstance(child, Import)
        )

    def _called_now(self, parent: str, node: Import) -> str | None:
        """The name of the module that has the content which a module of this name had before."""
        path = f"{parent}/{node.name}" if parent else node.name
        for former in self._earlier:
            found = former.find(path)
            if len(found) != 1 or node.name in self._schema.index.by_name:
                continue
            content = _content(found[0])
            same = [one for one in self._schema.modules() if _content(one) == content]
            if len(same) == 1 and former.module(same[0].path) is None and self._is_free(same[0]):
                return same[0].name
        return None

    def _between(
        self, parent: str, node: Import, beside: Sequence[Import | Text | Role], names: Sequence[str]
    ) -> Sequence[str]:
        """Those of some modules that stand between the neighbours of an import, if those are in order."""
        index = self._schema.index
        siblings = [child for child in beside if isinstance(child, Import)]
        members = index.members.get(parent, {})
        order = {name: index.order[module.path] for name, module in members.items()}
        known = [order[one.name] for one in siblings if one.name in order]
        if len(known) < 2 or known != sorted(known):
            return names
        place = next(at for at, one in enumerate(siblings) if one is node)
        low = max((order[one.name] for one in siblings[:place] if one.name in order), default=-1)
        high = min(
            (order[one.name] for one in siblings[place:] if one.name in order), default=len(index.order)
        )
        return [name for name in names if low < order[name] < high]

    def _follows_text(self, node: Import) -> bool:
        """Whether text stands before an import in its line."""
        start = node.span.start
        before = self._source[max(0, start - _SHOWN) : start].rpartition("\n")[2].strip()
        return before[-1:] not in ("", ">")

    def _only_says(self, node: Import) -> bool:
        """Whether an import holds text and imports nothing."""
        says, waiting = False, [node]
        while waiting:
            one = waiting.pop()
            if one.arguments or one.name in self._schema.index.by_name:
                return False
            says = says or any(isinstance(child, Text) and not child.seam for child in one.children)
            waiting += [child for child in one.children if isinstance(child, Import)]
        return says

    # Edits

    def _as_text(self, node: Import) -> tuple[Edit, ...]:
        """The edits that make text of the tags of an unknown import, and of the unknown ones in it."""
        edits: list[Edit] = []
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one is not node and one.name in self._schema.index.by_name:
                continue
            places = [one.name_span.start - 1, *([one.end_span.start - 2] if one.end_span else [])]
            if any(self._source[place : place + 1] != "<" for place in places) or len(edits) > _MOST_EDITS:
                return ()
            edits += [Edit(Span(place, place + 1), "&lt;") for place in places]
            waiting += [child for child in one.children if isinstance(child, Import)]
        return tuple(edits)


def _renamed(node: Import, name: str) -> tuple[Edit, ...]:
    """The edits that write another name into both tags of an import."""
    return (*swap(node.name_span, name), *(swap(node.end_span, name) if node.end_span else ()))


def _words(parent: str, node: Import) -> tuple[str, ...]:
    """The elements of PML that an import may be a slip of."""
    if any(isinstance(child, Import) for child in node.children):
        return ()
    given = [argument.name for argument in node.arguments]
    if parent:
        return ("arg",) if given == ["name"] else ()
    return () if given else ROLES


def _changed_a_little(name: str, known: Sequence[str]) -> str | None:
    """The only name that is another with a short ending or one word more, or less."""
    found = []
    for other in dict.fromkeys(known):
        short, long = sorted((name, other), key=len)
        if (long.startswith(short) and _ENDING.fullmatch(long, len(short))) or (
            long.endswith(short) and _BEGINNING.fullmatch(long, 0, len(long) - len(short))
        ):
            found.append(other)
    return found[0] if len(found) == 1 else None


def _content(module: Module) -> tuple[tuple[str, ...], ...]:
    """The texts and parameters of a module and of what is nested in it, in order."""
    found: list[tuple[str, ...]] = []
    pending: list[Text | Param | Module | Union | Role] = [*reversed(module.children)]
    while pending:
        node = pending.pop()
        if isinstance(node, Text):
            found += [("text", node.text)] if not node.seam else []
        elif isinstance(node, Param):
            found.append(("parameter", node.name))
        else:
            found.append((type(node).__name__,))
            pending += reversed(node.members if isinstance(node, Union) else node.children)
    return tuple(found)


def _shown(module: Module) -> str:
    """How the text of a module begins, quoted."""
    said = " ".join("".join(child.text for child in module.contents() if isinstance(child, Text)).split())
    return quote_text(said) if said else f"module {quote(module.path)}"
