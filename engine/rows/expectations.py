"""An author's expectations of an answer, and how an answer is judged.

Patterns and JSON schemas come from the author and may take very long on some answers, so both have a time
limit. Nothing in them is executed as a program.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal

from engine.base.strict_json import JsonError, read_json
from engine.exchange.base.errors import ExchangeError

Kind = Literal[
    "contains",
    "not contains",
    "contains in any case",
    "starts with",
    "equals",
    "regex",
    "not regex",
    "json",
    "min words",
    "max words",
    "min characters",
    "max characters",
]
Combine = Literal["all", "any"]

KINDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "contains": "The answer contains this text.",
        "not contains": "The answer does not contain this text.",
        "contains in any case": "The answer contains this text in any case.",
        "starts with": "The answer begins with this text; leading white space is ignored.",
        "equals": "The answer equals this text; white space at its ends is ignored.",
        "regex": "This regular expression matches somewhere in the answer.",
        "not regex": "This regular expression matches nowhere in the answer.",
        "json": "The answer is JSON that fits this JSON Schema; {} accepts any JSON.",
        "min words": "The answer has at least this many words.",
        "max words": "The answer has at most this many words.",
        "min characters": "The answer has at least this many characters.",
        "max characters": "The answer has at most this many characters.",
    }
)
"""Kinds of expectations, each with its meaning as a sentence."""

JUDGED_SECONDS: Final = 1.0  # time limit for one expectation
_SHOWN: Final = 120  # characters of an answer or a value in a message
_CALLS: Final = re.compile(r"\\.|(\(\?(?:[R&0-9]|[+-][0-9]|P(?:\s|#[^\n]*\n)*[>&]))", re.DOTALL)
"""Escaped characters, and as a group the start of calls such as `(?R)`."""
_FENCE: Final = "```"
_DEEPEST: Final = 150  # nesting of rules in a JSON Schema
_MOST_ITEMS: Final = {"unevaluatedItems": 4000}  # the library compares each item with all others


@dataclass(frozen=True)
class Expectation:
    """One expectation of an answer, as the author wrote it. Use `expected` to create a checked one."""

    kind: Kind
    value: str

    def __str__(self) -> str:
        value = self.value if self.kind[:3] in ("min", "max") else repr(_short(self.value))
        return f"{self.kind} {value}"

    def fault(self, answer: str) -> str:
        """Returns why an answer does not meet the expectation, as a sentence; "" if it does."""
        return _JUDGES[self.kind](answer, self.value)


@dataclass(frozen=True)
class Judged:
    """The verdict on an answer; `faults` has a sentence for each unmet expectation and "" for the others."""

    passed: bool
    faults: tuple[str, ...]


def expected(kind: str, value: str) -> Expectation:
    """Returns a checked expectation; `kind` is one of `KINDS`.

    Raises:
        ExchangeError: the kind is unknown, or the value is invalid for it.
    """
    known = next((name for name in KINDS if name == " ".join(kind.lower().split())), None)
    if known is None:
        raise ExchangeError(f"{kind!r} is not a kind of expectation. Use one of {', '.join(KINDS)}.")
    if not value.strip():
        raise ExchangeError(f"The expectation {known!r} has no value. Write one, or remove it.")
    if known.endswith("regex"):
        _pattern(value)
    elif known == "json":
        _schema(value)
    elif known.split()[0] in ("min", "max"):
        _length(known, value)
    return Expectation(known, value)


def judge(answer: str, expectations: Iterable[Expectation], combine: Combine = "all") -> Judged | None:
    """Judges an answer, which must meet all or any expectations; returns None without expectations."""
    faults = tuple(expectation.fault(answer) for expectation in expectations)
    if not faults:
        return None
    return Judged((all if combine == "all" else any)(not fault for fault in faults), faults)


# Kinds of checks


def _contains(answer: str, value: str) -> str:
    return "" if value in answer else f"It does not contain {_short(value)!r}."


def _lacks(answer: str, value: str) -> str:
    return f"It contains {_short(value)!r}." if value in answer else ""


def _contains_folded(answer: str, value: str) -> str:
    contains = value.casefold() in answer.casefold()
    return "" if contains else f"It does not contain {_short(value)!r} in any case."


def _starts(answer: str, value: str) -> str:
    text = answer.lstrip()
    if text.startswith(value.strip()):
        return ""
    return f"It begins with {_short(text[: len(value.strip())])!r}, not with {_short(value.strip())!r}."


def _equals(answer: str, value: str) -> str:
    text, wanted = answer.strip(), value.strip()
    if text == wanted:
        return ""
    same = next((i for i, (a, b) in enumerate(zip(text, wanted, strict=False)) if a != b), None)
    at = min(len(text), len(wanted)) if same is None else same
    return f"It differs from character {at + 1} on: {_short(text[at:]) or 'its end'!r}."


def _matches(answer: str, value: str) -> str:
    match, late = _search(answer, value)
    return late or ("" if match else f"Nothing in it matches {_short(value)!r}.")


def _matches_nowhere(answer: str, value: str) -> str:
    match, late = _search(answer, value)
    return late or (f"{_short(match)!r} in it matches {_short(value)!r}." if match is not None else "")


def _search(answer: str, value: str) -> tuple[str | None, str]:
    """The text that a pattern matches, and an error after a timeout."""
    try:
        match = _pattern(value).search(answer, timeout=JUDGED_SECONDS)
    except TimeoutError:
        return None, (
            f"Matching {_short(value)!r} took more than {JUDGED_SECONDS:g} s and was stopped. Write a "
            "pattern without repetitions inside repetitions."
        )
    return (None, "") if match is None else (match[0] or "an empty text", "")


def _is_json(answer: str, value: str) -> str:
    from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable

    try:
        value_read = read_json(_unfenced(answer))
    except JsonError as error:
        return f"It is not JSON: {error}."
    schema = _schema(value)
    schema.until = time.monotonic() + JUDGED_SECONDS
    try:
        fault = next(iter(schema.faults(value_read)), None)
    except Unresolvable as error:
        cause = error.__cause__
        inside = isinstance(cause, PointerToNowhere | NoSuchAnchor | InvalidAnchor)
        missing = _short(str(getattr(cause, "anchor", error.ref)))
        where = ", which is not in it" if inside else " outside of it; nothing is fetched"
        return f"The JSON Schema refers to {missing!r}{where}."
    except (AttributeError, TypeError, ArithmeticError):  # the library checks no rules under unknown names
        return "The JSON Schema refers to a part that is not a JSON Schema. Correct that part."
    except _LateError:
        return f"Checking it against the JSON Schema took more than {JUDGED_SECONDS:g} s and was stopped."
    except RecursionError:
        return (
            "The JSON Schema refers to itself without an end, or the answer nests more than "
            f"{_DEEPEST} rules deep, so it cannot be judged."
        )
    return "" if fault is None else fault


def _unfenced(answer: str) -> str:
    """JSON without the code fence that models often add."""
    text = answer.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text:
        return text.split("\n", 1)[1].removesuffix(_FENCE)
    return text


def _long_enough(answer: str, value: str) -> str:
    return _counted(len(answer.split()), "word", least=int(value))


def _short_enough(answer: str, value: str) -> str:
    return _counted(len(answer.split()), "word", most=int(value))


def _characters_enough(answer: str, value: str) -> str:
    return _counted(len(answer.strip()), "character", least=int(value))


def _characters_few(answer: str, value: str) -> str:
    return _counted(len(answer.strip()), "character", most=int(value))


def _counted(found: int, noun: str, least: int = 0, most: int | None = None) -> str:
    if found >= least and (most is None or found <= most):
        return ""
    wanted = f"at least {least}" if most is None else f"at most {most}"
    return f"It has {found} {noun}{'' if found == 1 else 's'}, not {wanted}."


_JUDGES: Final[Mapping[Kind, Callable[[str, str], str]]] = MappingProxyType(
    {
        "contains": _contains,
        "not contains": _lacks,
        "contains in any case": _contains_folded,
        "starts with": _starts,
        "equals": _equals,
        "regex": _matches,
        "not regex": _matches_nowhere,
        "json": _is_json,
        "min words": _long_enough,
        "max words": _short_enough,
        "min characters": _characters_enough,
        "max characters": _characters_few,
    }
)


# Values of the author


@lru_cache(maxsize=256)
def _pattern(value: str) -> Any:
    import regex

    if any(found[1] for found in _CALLS.finditer(value)):
        raise ExchangeError(
            f"{_short(value)!r} calls a group, as (?R), (?1) and (?&name) do, which no time limit stops. "
            "Write it without the call."
        )
    try:
        return regex.compile(value)
    except regex.error as error:
        where = f" at character {error.pos + 1}" if error.pos is not None else ""
        raise ExchangeError(f"{_short(value)!r} is not a regular expression{where}: {error.msg}.") from None
    except (RecursionError, OverflowError) as error:
        raise ExchangeError(f"{_short(value)!r} is an unusable regular expression: {error}.") from None


def _length(kind: str, value: str) -> None:
    if not (value.strip().isascii() and value.strip().isdigit() and len(value.strip()) <= 9):
        raise ExchangeError(f"{kind!r} is {_short(value)!r}; it must be a whole number of 0 or more.")


class _LateError(Exception):
    """A time limit was exceeded."""


class _Schema:
    """A JSON Schema with a time limit, which fetches nothing.

    Attributes:
        until: the deadline, by `time.monotonic`.
    """

    def __init__(self, document: Any) -> None:
        from jsonschema import validators
        from referencing import Registry

        self.until, self._depth = 0.0, 0
        latest = validators.Draft202012Validator
        known = latest if isinstance(document, bool) else validators.validator_for(document, default=latest)
        known.check_schema(document)
        rules = {name: self._bounded(rule, _MOST_ITEMS.get(name)) for name, rule in known.VALIDATORS.items()}
        rules |= {name: self._bounded(rule) for name, rule in _OWN_RULES.items() if name in rules}
        checked = _sound(document)  # a schema named below would add unlimited rules
        limited = validators.extend(known, rules)
        limited.met = staticmethod(self._met)  # for the rules with patterns
        self._validator = limited(checked, registry=Registry())

    def faults(self, found: Any) -> Iterator[str]:
        """The errors of a value, one sentence each."""
        for error in self._validator.iter_errors(found):
            path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
            yield f"The JSON Schema rejects {path.lstrip('.') or 'it'}: {_short(error.message)}."

    def _left(self) -> float:
        """Seconds until the deadline."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise _LateError
        return left

    def _met(self, pattern: str, text: str) -> bool:
        try:
            return _pattern(pattern).search(text, timeout=self._left()) is not None
        except TimeoutError:
            raise _LateError from None

    def _bounded(self, rule: Any, most: int | None = None) -> Any:
        def judged(*given: Any) -> Iterator[Any]:
            self._left()
            if most and isinstance(given[2], list) and len(given[2]) > most:
                raise _LateError
            if self._depth >= _DEEPEST:
                raise RecursionError
            self._depth += 1
            try:
                yield from rule(*given) or ()
            finally:
                self._depth -= 1

        return judged


def _sound(node: Any) -> Any:
    """A checked JSON Schema: its patterns are valid, and nothing in it refers to another set of rules."""
    if isinstance(node, list):
        return [_sound(child) for child in node]
    if not isinstance(node, dict):
        return node
    for key, child in node.items():
        patterns = [child] if key == "pattern" else child if key == "patternProperties" else ()
        for pattern in patterns if isinstance(patterns, list | dict) else ():
            if isinstance(pattern, str):
                _pattern(pattern)
    rules = {key: child for key, child in node.items() if not (key == "$schema" and isinstance(child, str))}
    return {key: _sound(child) for key, child in rules.items()}


# The library runs rules with patterns without a limit, and judges multiples after rounding.


def _pattern_rule(validator: Any, pattern: str, found: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(found, str) and not validator.met(pattern, found):
        yield ValidationError(f"{found!r} does not match {pattern!r}")


def _named_by_pattern(validator: Any, patterns: Any, found: Any, _schema: Any) -> Iterator[Any]:
    for pattern, below in patterns.items() if isinstance(found, dict) else ():
        for name, value in found.items():
            if validator.met(pattern, name):
                yield from validator.descend(value, below, path=name, schema_path=pattern)


def _other_names(validator: Any, below: Any, found: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    patterns = schema.get("patternProperties", {})
    for name, value in found.items() if isinstance(found, dict) else ():
        if name in schema.get("properties", {}) or any(validator.met(pattern, name) for pattern in patterns):
            continue
        if below is False:
            yield ValidationError(f"the property {name!r} is not allowed")
        else:
            yield from validator.descend(value, below, path=name)


def _multiple_rule(validator: Any, divisor: Any, found: Any, _schema: Any) -> Iterator[Any]:
    """Uses decimal numbers as written: 19.99 is a multiple of 0.01, though not as a float."""
    from jsonschema import ValidationError

    if not validator.is_type(found, "number"):
        return
    if (Fraction(repr(found)) / Fraction(repr(divisor))).denominator > 1:
        yield ValidationError(f"{found!r} is not a multiple of {divisor!r}")


def _unique_rule(validator: Any, unique: Any, found: Any, _schema: Any) -> Iterator[Any]:
    """The library compares each pair of items that cannot be sorted."""
    from jsonschema import ValidationError

    if not (unique and validator.is_type(found, "array")):
        return
    if len({json.dumps(_canonical(item), sort_keys=True) for item in found}) < len(found):
        yield ValidationError(f"{found!r} has non-unique elements")


def _canonical(value: Any) -> Any:
    """A JSON value with 1.0 as 1: JSON Schema treats them as equal."""
    match value:
        case list():
            return [_canonical(item) for item in value]
        case dict():
            return {key: _canonical(item) for key, item in value.items()}
        case float() if value.is_integer():
            return int(value)
    return value


_OWN_RULES: Final = {
    "uniqueItems": _unique_rule,
    "multipleOf": _multiple_rule,
    "divisibleBy": _multiple_rule,  # its name in early drafts
    "pattern": _pattern_rule,
    "patternProperties": _named_by_pattern,
    "additionalProperties": _other_names,
}


@lru_cache(maxsize=64)
def _schema(value: str) -> _Schema:
    from jsonschema import SchemaError

    try:
        document = read_json(value)
    except JsonError as error:
        raise ExchangeError(f"The JSON Schema is not JSON: {error}.") from None
    if not isinstance(document, dict | bool):
        raise ExchangeError('The JSON Schema is not an object. Write one such as {"type": "object"}.')
    if isinstance(document, dict) and not isinstance(document.get("$schema", ""), str):
        raise ExchangeError(
            '"$schema" of the JSON Schema is not a text. Write the address of a draft, or no "$schema".'
        )
    if '"patternProperties"' in value and '"unevaluatedProperties"' in value:
        raise ExchangeError(
            "The JSON Schema has patternProperties and unevaluatedProperties, which cannot be combined. "
            "Use additionalProperties instead of the latter."
        )
    try:
        return _Schema(document)
    except RecursionError:
        raise ExchangeError("The JSON Schema is nested too deeply. Flatten it.") from None
    except SchemaError as error:
        raise ExchangeError(f"The JSON Schema is invalid: {_short(error.message)}.") from None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
