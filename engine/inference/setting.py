"""The declaration of a setting: its range and words, for every interface that offers it."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from engine.base.errors import SettingsError

Kind = Literal["flag", "integer", "number", "choice", "form", "texts"]


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: the name of its field.
        default: the default, whose type decides the kind of value.
        label: a few words, for a form.
        sentence: its effect.
        unit: the unit of a number; "" for none.
        least: the minimum; None for none.
        most: the maximum; None for none.
        above: whether the minimum itself is out of range.
        choices: the valid texts, each with a description.
        pattern: a regular expression for the whole text, also valid in JavaScript.
        form: the pattern in words.
        examples: valid texts to offer.
    """

    name: str
    default: Any
    label: str
    sentence: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    above: bool = False
    choices: Mapping[Any, str] = field(default_factory=dict)
    pattern: str = ""
    form: str = ""
    examples: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """The kind of its values; a `form` is a text that matches the pattern."""
        if isinstance(self.default, bool):
            return "flag"
        if isinstance(self.default, int):
            return "integer"
        if isinstance(self.default, float):
            return "number"
        return "texts" if isinstance(self.default, tuple) else "choice" if self.choices else "form"

    @property
    def range(self) -> str:
        """The valid values, to complete "it must be …"."""
        if self.kind in ("integer", "number"):
            whole = "a whole number" if self.kind == "integer" else "a number"
            bounds = [
                f"{'above' if self.above else 'at least'} {self.least}" if self.least is not None else "",
                f"at most {self.most}" if self.most is not None else "",
            ]
            return f"{whole}, {' and '.join(filter(None, bounds))}"
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        words = {"flag": "true or false", "texts": "a list of texts of at least one character each"}
        return words.get(self.kind, self.form)

    def checked(self, value: object) -> Any:
        """Returns a valid value, with a list as a tuple and a number of the declared kind.

        Raises:
            SettingsError: it is out of range.
        """
        valid = self._taken(value)
        if valid is None:
            raise SettingsError(f"{self.name} is {value!r}; it must be {self.range}.")
        return valid

    def spelled(self, text: str) -> Any:
        """Parses the text of a table cell or a form field.

        Raises:
            SettingsError: it is not a value in range.
        """
        word = text.strip()
        value: object = text
        match self.kind:
            case "flag":
                value = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(
                    word.lower(), word
                )
            case "integer" | "number":
                with contextlib.suppress(ValueError):
                    value = int(word) if self.kind == "integer" else float(word)
            case "texts":
                value = [text]
            case "choice" | "form":
                value = word
        return self.checked(value)

    def takes(self, value: object) -> bool:
        """Returns whether a value is in range."""
        return self._taken(value) is not None

    def describe(self) -> dict[str, Any]:
        """Returns the declaration as JSON, without empty entries."""
        described = {
            "name": self.name,
            "kind": self.kind,
            "label": self.label,
            "sentence": self.sentence,
            "default": list(self.default) if self.kind == "texts" else self.default,
            "range": self.range,
        }
        more = {
            "unit": self.unit or None,
            "least": self.least,
            "most": self.most,
            "above": self.above or None,
            "choices": dict(self.choices) or None,
            "pattern": self.pattern or None,
            "examples": list(self.examples) or None,
        }
        return described | {name: value for name, value in more.items() if value is not None}

    def _taken(self, value: object) -> Any:
        """The value with its declared type; None if it is out of range."""
        match self.kind:
            case "flag":
                return value if isinstance(value, bool) else None
            case "integer" | "number":
                return self._number(value)
            case "choice":
                return value if isinstance(value, str) and value in self.choices else None
            case "form":
                return value if isinstance(value, str) and re.fullmatch(self.pattern, value) else None
            case "texts":
                texts = isinstance(value, list | tuple) and all(isinstance(x, str) and x for x in value)
                return tuple(value) if texts and isinstance(value, list | tuple) else None

    def _number(self, value: object) -> int | float | None:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        try:
            result = float(value)
        except OverflowError:
            return None
        if not math.isfinite(result):
            return None
        if self.kind == "integer":
            if not result.is_integer():
                return None
            result = int(value) if isinstance(value, numbers.Integral) else int(result)
        low = self.least is not None and (result < self.least or (self.above and result == self.least))
        return None if low or (self.most is not None and result > self.most) else result


def declared(label: str, sentence: str, **more: Any) -> dict[str, Any]:
    """Returns the metadata of a dataclass field; `more` as in `Setting`."""
    return {"label": label, "sentence": sentence, **more}


def settings_of(kind: type) -> Mapping[str, Setting]:
    """Returns the settings that a dataclass declares, by name."""
    assert is_dataclass(kind)
    return {item.name: Setting(item.name, item.default, **item.metadata) for item in fields(kind)}
