"""What does not have the form of its field, in words: what is wrong, where, and what there may be.

The bodies are models of pydantic, whose own sentences no client is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.server.http.bodies import UNKNOWN, param_of
from app.server.http.errors import INVALID, ApiError
from app.server.http.truncate import listed, shown

Step = int | str

UNNAMED = "must have another form"
"""What is said of a fault that has no words here."""
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
"""What there may be, by pydantic's names for what there is not."""


def misfit(faults: Sequence[Any], body: Any) -> ApiError:
    """Returns the refusal of a body or of a parameter that does not have its form.

    Of several faults the one furthest in is told, with all forms that the field may have: of a field that may
    be a text or a list pydantic tells a fault for each.

    Args:
        faults: as pydantic tells them.
        body: in which they are; of no account where they are in the path's parameters.
    """
    placed = [(_place(one, body), one) for one in faults]
    place = max((place for place, _ in placed), key=len)
    first, *rest = [one for where, one in placed if where == place]
    param = param_of(place) or "The body"
    match first["type"]:
        case "missing":
            words = f"{param} is missing. Send it."
        case _ if first["type"] == UNKNOWN:
            words = f"{param} is no field that is known here; there are {listed(first['ctx']['known'])}."
        case _:
            forms = dict.fromkeys(filter(None, map(_form, [first, *rest])))
            wanted = f"must be {listed([*forms], 'or')}" if forms else UNNAMED
            words = f"{param} {wanted}, and this is {_given(first['input'])}."
    return ApiError(INVALID, words, param_of(place))


def _form(fault: Any) -> str:
    """What a field may have instead; "" where there are no words for it."""
    found: Mapping[str, Any] = fault.get("ctx", {})
    more = {"s": "" if found.get("min_length") == 1 else "s"}
    return _FORMS.get(fault["type"], "").format(**found, **more)


def _given(value: object) -> str:
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value)


def _place(fault: Any, body: Any) -> tuple[Step, ...]:
    """The steps that lead to a fault, without the names of the forms that pydantic has tried."""
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
    """Which of some steps lead into a value, to what is wanted; a field can be named as a form is."""
    for found, end in _ways(value, steps):
        if end is wanted:
            return found
    return max((found for found, _ in _ways(value, steps)), key=len)


def _ways(value: Any, steps: Sequence[Step]) -> list[tuple[tuple[Step, ...], Any]]:
    """Every way into a value that some steps may mean, with where it ends; the longest first."""
    ways: list[tuple[tuple[Step, ...], Any]] = [((), value)]
    for step in steps:
        further = [((*way, step), end[step]) for way, end in ways if _is_in(end, step)]
        ways = [*further, *(ways if isinstance(step, str) else [])] or ways
    return ways


def _is_in(value: Any, step: Step) -> bool:
    return step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
