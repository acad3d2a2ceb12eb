"""Explains pydantic validation errors in plain sentences: place, problem and valid forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.server.http.bodies import UNKNOWN, param_of
from app.server.http.errors import INVALID, ApiError
from app.server.http.truncate import listed, shown

Step = int | str

UNNAMED = "is invalid"  # the message for an error without its own text
_FORMS: Mapping[str, str] = {
    "string_type": "a text",
    "string_too_short": "a text of at least {min_length} character{s}",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "greater_than_equal": "at least {ge}",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    "literal_error": "{expected}",
}
"""Valid forms, by pydantic's error type."""


def misfit(faults: Sequence[Any], body: Any) -> ApiError:
    """Returns the error for a body or parameter of the wrong form.

    Reports the deepest error with all valid forms of its field, because pydantic reports one error for each
    form of a union.

    Args:
        faults: pydantic's errors.
        body: the body with the errors; unused for path parameters.
    """
    placed = [(_place(fault, body), fault) for fault in faults]
    place = max((place for place, _ in placed), key=len)
    first, *rest = [fault for where, fault in placed if where == place]
    param = param_of(place) or "The body"
    match first["type"]:
        case "union_tag_invalid" | "union_tag_not_found":
            tag = first["ctx"]["discriminator"].strip("'")
            expected = first["ctx"].get("expected_tags", "a kind of object").replace("', '", "' or '")
            given = f" is {shown(first['ctx']['tag'])}" if first["ctx"].get("tag") else " is missing"
            place = (*place, tag)
            words = f"{param}.{tag}{given}; it must be {expected}."
        case "missing":
            words = f"{param} is missing. Send it."
        case _ if first["type"] == UNKNOWN:
            words = f"{param} is not a known field; the fields are {listed(first['ctx']['known'])}."
        case _:
            forms = dict.fromkeys(filter(None, map(_form, [first, *rest])))
            expected = f"must be {listed([*forms], 'or')}" if forms else UNNAMED
            words = f"{param} {expected}, not {_given(first['input'])}."
    return ApiError(INVALID, words, param_of(place))


def _form(fault: Any) -> str:
    """The valid form of a field; "" if it has no text."""
    context: Mapping[str, Any] = fault.get("ctx", {})
    more = {"s": "" if context.get("min_length") == 1 else "s"}
    return _FORMS.get(fault["type"], "").format(**context, **more)


def _given(value: object) -> str:
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value)


def _place(fault: Any, body: Any) -> tuple[Step, ...]:
    """The path to an error, without the names of pydantic's union members."""
    steps: Sequence[Step] = fault["loc"]
    if steps[:1] == ("query",):
        return tuple(steps[1:])
    named: tuple[Step, ...] = ()
    if fault["type"] == "missing":
        steps, named = steps[:-1], (steps[-1],)
    elif fault["type"] == UNKNOWN:
        named = (fault["ctx"]["name"],)
    return (*_way(body, steps, fault["input"]), *named)


def _way(value: Any, steps: Sequence[Step], wanted: Any) -> tuple[Step, ...]:
    """The correct one of the possible paths to a value, because a field can have the name of a form."""
    for way, end in _ways(value, steps):
        if end is wanted:
            return way
    return max((way for way, _ in _ways(value, steps)), key=len)


def _ways(value: Any, steps: Sequence[Step]) -> list[tuple[tuple[Step, ...], Any]]:
    """Every possible path into a value with its end, the longest first."""
    ways: list[tuple[tuple[Step, ...], Any]] = [((), value)]
    for step in steps:
        deeper = [((*way, step), end[step]) for way, end in ways if _is_in(end, step)]
        ways = [*deeper, *(ways if isinstance(step, str) else [])] or ways
    return ways


def _is_in(value: Any, step: Step) -> bool:
    return step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
