"""Sound documents, and one mistake of each kind that a person makes in them."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.pml import ArgumentText, NewText, RoleClose, RoleOpen, Schema, bind, parse_prompt, parse_schema
from engine.pml.tree.parts import part_text

SAMPLES = Path(__file__).parents[2] / "sample_schemas"
Reading = tuple[tuple[str, ...], ...]
"""Turns, and texts with their modules."""
Spoil = Callable[[random.Random, str], Iterator[str]]
"""From a document to documents with one mistake, in any number."""

_START = re.compile(r"<([\w.-]+)((?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*)\s*(/?)>")
_END = re.compile(r"</([\w.-]+)\s*>")
_TAG = re.compile(f"{_START.pattern}|{_END.pattern}")
_ATTRIBUTE = re.compile(r"(\s+)([\w:.-]+)(=)([\"'])([^\"'<>]*)([\"'])")
_HIDDEN = re.compile(r"<!\[CDATA\[.*?\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)


@dataclass(frozen=True)
class Pair:
    """A schema, and prompts for it."""

    name: str
    schema: str
    prompts: tuple[str, ...]


def samples() -> list[Pair]:
    """The samples that come with the program."""
    return [
        Pair(
            path.stem,
            path.read_text("utf-8"),
            tuple(one.read_text("utf-8") for one in sorted(SAMPLES.glob(f"{path.stem}.prompt.*.pml"))),
        )
        for path in sorted(SAMPLES.glob("*.pml"))
        if ".prompt." not in path.name
    ]


# What is read


@lru_cache(maxsize=64)
def reading(schema: str, prompt: str) -> Reading | None:
    """What a prompt says, in order, with turns and modules; None where there is an error."""
    parsed = parse_schema(schema)
    own = parse_prompt(prompt)
    if not parsed.ok or not own.ok or parsed.tree is None or own.tree is None:
        return None
    bound = bind(parsed.tree, own.tree)
    if not bound.ok:
        return None
    found: list[list[str]] = []
    for part in bound.parts:
        if isinstance(part, RoleOpen | RoleClose):
            found.append(["turn", part.role])
            continue
        module = "" if isinstance(part, NewText) else part.module
        kind = "argument" if isinstance(part, ArgumentText) else "text"
        text = part_text(part)
        if found and found[-1][:2] == [kind, module]:
            found[-1][2] += text
        elif text:
            found.append([kind, module, text])
    return tuple(tuple(one) for one in found)


def called(found: Reading | None, name: str, other: str) -> Reading | None:
    """What is read, with another name of a module."""
    if found is None:
        return None
    return tuple(
        (kind, "/".join(other if one == name else one for one in module.split("/")), *text)
        for kind, module, *text in found
    )


# One mistake


def _outside(source: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The matches that stand in no comment, CDATA section or declaration."""
    hidden = [match.span() for match in _HIDDEN.finditer(source)]
    return [
        match
        for match in pattern.finditer(source)
        if not any(start <= match.start() < end for start, end in hidden)
    ]


def _cut(source: str, start: int, end: int, text: str = "") -> str:
    return source[:start] + text + source[end:]


def misspelt(rng: random.Random, name: str) -> str:
    """A name with a slip of the finger."""
    place = rng.randrange(len(name))
    match rng.randrange(4):
        case 0 if len(name) > 2:
            return name[:place] + name[place + 1 :]
        case 1:
            return name[:place] + name[place] + name[place:]
        case 2 if len(name) > 2 and place + 1 < len(name) and name[place] != name[place + 1]:
            return name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        case _:
            return name[:place] + rng.choice("aeinrst") + name[place + 1 :]


def _no_end(*tags: str) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, _END):
            if not tags or match[1] in tags:
                yield _cut(source, *match.span())

    return spoil


def _no_start(*tags: str) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, _START):
            if not match[3] and (match[1] in tags or not tags):
                yield _cut(source, *match.span())

    return spoil


def _no_end_line(_: random.Random, source: str) -> Iterator[str]:
    for match in _outside(source, re.compile(rf"\r?\n[ \t]*{_END.pattern}[ \t]*(?=\r?\n)")):
        yield _cut(source, *match.span())


def _twice(pattern: re.Pattern[str]) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, pattern):
            yield _cut(source, match.end(), match.end(), match[0])

    return spoil


def _turned(_: random.Random, source: str) -> Iterator[str]:
    """An end tag that is written as a start tag."""
    for match in _outside(source, _END):
        yield _cut(source, match.start() + 1, match.start() + 2)


def _no_slash(_: random.Random, source: str) -> Iterator[str]:
    for match in _outside(source, _START):
        if match[3]:
            yield _cut(source, match.end() - 2, match.end() - 1)


def _no_bracket(_: random.Random, source: str) -> Iterator[str]:
    for match in _outside(source, _TAG):
        yield _cut(source, match.end() - 1, match.end())


def _no_opening_bracket(_: random.Random, source: str) -> Iterator[str]:
    for match in _outside(source, _TAG):
        yield _cut(source, match.start(), match.start() + 1)


def _other_start(change: Callable[[random.Random, str], str]) -> Spoil:
    def spoil(rng: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, _START):
            other = change(rng, match[1])
            if other != match[1]:
                yield _cut(source, *match.span(1), other)

    return spoil


def _other_end(change: Callable[[random.Random, str], str]) -> Spoil:
    def spoil(rng: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, _END):
            other = change(rng, match[1])
            if other != match[1]:
                yield _cut(source, *match.span(1), other)

    return spoil


def _other_both(change: Callable[[random.Random, str], str]) -> Spoil:
    def spoil(rng: random.Random, source: str) -> Iterator[str]:
        waiting: list[re.Match[str]] = []
        for match in _outside(source, _TAG):
            if match[4] and waiting:
                start = waiting.pop()
                other = change(rng, start[1])
                if other != start[1]:
                    yield _cut(_cut(source, *match.span(4), other), *start.span(1), other)
            elif match[1] and not match[3]:
                waiting.append(match)

    return spoil


def _cased(rng: random.Random, name: str) -> str:
    return name.upper() if rng.random() < 0.5 else name[:1].swapcase() + name[1:]


def _attributes(source: str) -> Iterator[tuple[int, re.Match[str]]]:
    for tag in _outside(source, _START):
        for match in _ATTRIBUTE.finditer(tag[2]):
            yield tag.start(2), match


def _attribute_cut(group: int) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for base, match in _attributes(source):
            yield _cut(source, base + match.start(group), base + match.end(group))

    return spoil


def _no_quotes(_: random.Random, source: str) -> Iterator[str]:
    for base, match in _attributes(source):
        yield _cut(source, base + match.start(4), base + match.end(6), match[5])


def _other_attribute(change: Callable[[random.Random, str], str]) -> Spoil:
    def spoil(rng: random.Random, source: str) -> Iterator[str]:
        for base, match in _attributes(source):
            other = change(rng, match[2])
            if other != match[2] and ":" not in match[2]:
                yield _cut(source, base + match.start(2), base + match.end(2), other)

    return spoil


def _other_value(rng: random.Random, source: str) -> Iterator[str]:
    for base, match in _attributes(source):
        other = misspelt(rng, match[5]) if match[5] else ""
        if other != match[5]:
            yield _cut(source, base + match.start(5), base + match.end(5), other)


def _twice_given(same: bool) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for base, match in _attributes(source):
            end = base + match.end()
            second = match[0] if same else f"{match[1]}{match[2]}={match[4]}other{match[6]}"
            yield _cut(source, end, end, second)
            if not same:
                start = base + match.start()
                yield _cut(source, start, start, second)

    return spoil


def _swapped_ends(_: random.Random, source: str) -> Iterator[str]:
    ends = _outside(source, _END)
    for first, second in itertools.pairwise(ends):
        between = source[first.end() : second.start()]
        if not between.strip() and first[1] != second[1]:
            yield _cut(source, first.start(), second.end(), second[0] + between + first[0])


def _bare(escape: str, plain: str) -> Spoil:
    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for match in _outside(source, re.compile(escape)):
            yield _cut(source, *match.span(), plain)

    return spoil


def renamed(near: bool) -> Callable[[random.Random, str], Iterator[tuple[str, str, str]]]:
    """A module that is called otherwise in the schema, with its former name and the new one."""

    def spoil(rng: random.Random, source: str) -> Iterator[tuple[str, str, str]]:
        for match in _outside(source, re.compile(r"(<module\s+name=[\"'])([^\"']+)([\"'])")):
            name = match[2]
            other = rng.choice((f"{name}-new", f"the-{name}", f"{name}2")) if near else "quite-different"
            if f'"{other}"' not in source:
                yield _cut(source, *match.span(2), other), name, other

    return spoil


def _imports(source: str) -> Iterator[re.Match[str]]:
    for match in _outside(source, _START):
        if match[1] not in ("prompt", "user", "system", "assistant", "arg"):
            yield match


def _import_misspelt(rng: random.Random, source: str) -> Iterator[str]:
    for match in _imports(source):
        other = misspelt(rng, match[1])
        if other != match[1]:
            if match[3]:
                yield _cut(source, *match.span(1), other)
            else:
                yield source.replace(f"<{match[1]}", f"<{other}").replace(f"</{match[1]}", f"</{other}")


def _import_twice(_: random.Random, source: str) -> Iterator[str]:
    imports = list(_imports(source))
    for match in imports:
        if match[3]:
            for other in imports:
                for place in (other.start(), other.end()):
                    if other[3]:
                        yield _cut(source, place, place, f"<{match[1]}/>")


def two_of(schema: Schema) -> Spoil:
    """Another member of a union that is imported already, before or behind it."""

    def spoil(_: random.Random, source: str) -> Iterator[str]:
        for match in _imports(source):
            for module in schema.find(match[1])[:1]:
                union = schema.union_of(module.path)
                for other in union.members if union and match[3] else ():
                    if other is not module:
                        for place in match.span():
                            yield _cut(source, place, place, f"<{other.name}/>")

    return spoil


SCHEMA_MISTAKES: dict[str, Spoil] = {
    "no </module>": _no_end("module"),
    "no </union>": _no_end("union"),
    "no </role>": _no_end("user", "system", "assistant"),
    "no </schema>": _no_end("schema"),
    "no <module>": _no_start("module"),
    "no <union>": _no_start("union"),
    "no <role>": _no_start("user", "system", "assistant"),
    "no <schema>": _no_start("schema"),
}
PROMPT_MISTAKES: dict[str, Spoil] = {
    "no </import>": _no_end(),
    "no <import>": _no_start(),
    "no <role>": _no_start("user", "system", "assistant"),
    "no </role>": _no_end("user", "system", "assistant"),
    "import misspelt": _import_misspelt,
    "imported twice": _import_twice,
}
BOTH: dict[str, Spoil] = {
    "no slash": _no_slash,
    "no line of an end tag": _no_end_line,
    "end tag twice": _twice(_END),
    "start tag twice": _twice(_START),
    "a start tag for an end tag": _turned,
    "no >": _no_bracket,
    "no <": _no_opening_bracket,
    "start tag misspelt": _other_start(misspelt),
    "end tag misspelt": _other_end(misspelt),
    "both tags misspelt": _other_both(misspelt),
    "start tag in capitals": _other_start(_cased),
    "end tag in capitals": _other_end(_cased),
    "both tags in capitals": _other_both(_cased),
    "attribute misspelt": _other_attribute(misspelt),
    "attribute in capitals": _other_attribute(_cased),
    "value misspelt": _other_value,
    "no attribute": _attribute_cut(0),
    "no =": _attribute_cut(3),
    "no opening quote": _attribute_cut(4),
    "no closing quote": _attribute_cut(6),
    "no quotes": _no_quotes,
    "attribute twice": _twice_given(True),
    "attribute twice, with another value": _twice_given(False),
    "ends swapped": _swapped_ends,
    "a bare &": _bare("&amp;", "&"),
    "a bare <": _bare("&lt;", "<"),
}
