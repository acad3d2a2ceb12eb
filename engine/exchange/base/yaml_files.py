"""Reads YAML as plain values, without constructing objects; unlimited expansion is refused.

Unquoted words are texts as spelled: 1.10, 0x10, 12:30, yes, 2024-01-01. Only `true`, `false` and null are
values.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import yaml

from engine.exchange.base.errors import ExchangeError

MAX_CHARACTERS: Final = 1 << 18  # size limit of YAML

_MOST_VALUES: Final = 200_000


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml tells no types
    """Loads words as spelled, and refuses repeated keys."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {
        None: [
            ("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z")),
            ("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z")),
            ("tag:yaml.org,2002:merge", re.compile(r"<<\Z")),
        ]
    }

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Refuses a repeated key."""
        node: Any = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is repeated; write it once"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return node


def parsed_yaml(source: str) -> Any:
    """Parses YAML.

    Raises:
        ExchangeError: it is invalid, too long or too deep, repeats a key, or expands without limit.
    """
    if len(source) > MAX_CHARACTERS:
        raise ExchangeError(f"this YAML has more than {MAX_CHARACTERS:,} characters; split it into several")
    try:
        value = yaml.load(source, Loader=_Loader)
        if _size(value, {}) > _MOST_VALUES:
            much = f"expands to more than {_MOST_VALUES:,} values"
            raise ExchangeError(f"this YAML {much}; write fewer aliases")
    except RecursionError:
        raise ExchangeError("this YAML is nested too deeply; flatten it") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be read"])[0]
        raise ExchangeError(f"this is not valid YAML: {where}{problem}") from None
    return value


def _size(value: Any, known: dict[int, int]) -> int:
    """The number of values after expansion; a recursive value exceeds the limit."""
    if not isinstance(value, (list, dict)):
        return 1
    if id(value) not in known:
        known[id(value)] = _MOST_VALUES + 1  # while it is being counted
        inner = value if isinstance(value, list) else [*value.keys(), *value.values()]
        known[id(value)] = min(1 + sum(_size(child, known) for child in inner), _MOST_VALUES + 1)
    return known[id(value)]
