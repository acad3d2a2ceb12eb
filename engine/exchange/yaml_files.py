"""YAML as plain values: nothing in it is made or run, and what unfolds without bounds is refused."""

from __future__ import annotations

from typing import Any, Final

import yaml

from engine.exchange.errors import ExchangeError

MAX_CHARACTERS: Final = 1 << 18
"""The longest YAML that is read."""

_MOST_VALUES: Final = 200_000


def parsed_yaml(source: str) -> Any:
    """Parses YAML.

    Raises:
        ExchangeError: it is not valid, too long, too deep, or names parts of itself again and again.
    """
    if len(source) > MAX_CHARACTERS:
        raise ExchangeError(f"this YAML has more than {MAX_CHARACTERS:,} characters; split it into several")
    try:
        value = yaml.safe_load(source)
        if _size(value, {}) > _MOST_VALUES:
            much = f"unfolds to more than {_MOST_VALUES:,} values"
            raise ExchangeError(f"this YAML {much}; write fewer aliases")
    except RecursionError:
        raise ExchangeError("this YAML is nested too deep to be read; flatten it") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be read"])[0]
        raise ExchangeError(f"this is not valid YAML: {where}{what}") from None
    return value


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values a value unfolds to; what holds itself unfolds without end."""
    if not isinstance(value, (list, dict)):
        return 1
    if id(value) not in known:
        known[id(value)] = _MOST_VALUES + 1  # as long as it is under way
        inner = value if isinstance(value, list) else [*value.keys(), *value.values()]
        known[id(value)] = min(1 + sum(_size(one, known) for one in inner), _MOST_VALUES + 1)
    return known[id(value)]
