"""The parameters of a program and their allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from engine.pml.diagnostics.spelling import Speller
from engine.pml.xml.entities import forbidden_character
from engine.programs.source.errors import ProgramArgumentError

MAX_LENGTH: Final = 9_999_999  # tokens of a parameter

ChoiceValue = str | int | Enum | None  # value of a `Literal` or `Enum` parameter


@dataclass(frozen=True)
class Arg:
    """A parameter of the schema: text of at most `length` tokens. `Arg[5]` is short for `Arg(5)`.

    Attributes:
        length: the maximum number of tokens of an argument.
        name: its name in the schema, if different from the Python name.
        scaffold: placeholder text while the module is encoded.
    """

    length: int
    name: str | None = None
    scaffold: str | None = None

    def __class_getitem__(cls, length: int) -> Arg:
        return cls(length)


@dataclass(frozen=True)
class Flag:
    """A `bool` parameter."""


@dataclass(frozen=True)
class Options:
    """A `Literal` or `Enum` parameter."""

    values: tuple[ChoiceValue, ...]


@dataclass(frozen=True)
class NewWords:
    """A `str` parameter: text of any length, which belongs to the prompt and not to the schema."""


Kind = Arg | Flag | Options | NewWords


@dataclass(frozen=True)
class Parameter:
    """One parameter of a program.

    Attributes:
        name: its Python name.
        kind: its allowed values.
        line: its line in the Python file.
        required: whether it has no default.
        default: the default.
    """

    name: str
    kind: Kind
    line: int
    required: bool
    default: Any = None

    def value(self, given: Any) -> Any:
        """Converts an argument: None becomes "" for an `Arg`, and an Enum value becomes its member."""
        if isinstance(self.kind, Options):
            for option in self.kind.values:
                if isinstance(option, Enum) and type(given) is type(option.value) and given == option.value:
                    return option
        return "" if given is None and isinstance(self.kind, Arg) else given


def accepts(kind: Kind, value: Any) -> bool:
    """Whether a parameter accepts a value."""
    match kind:
        case Flag():
            return isinstance(value, bool)
        case Options(values):
            return any(type(value) is type(option) and value == option for option in values)
        case _:
            return isinstance(value, str)


def expected(kind: Kind) -> str:
    """Describes the allowed values of a parameter."""
    match kind:
        case Flag():
            return "True or False"
        case Options(values):
            return "one of " + ", ".join(_shown(value) for value in values)
        case Arg(length):
            return f"text of at most {length} tokens"
        case _:
            return "text"


def complete(name: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the value of every parameter: the checked arguments, and the defaults.

    Raises:
        ProgramArgumentError: an argument is unknown, missing, or of the wrong kind.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for unknown in given.keys() - known.keys():
        near = Speller().nearest(unknown, known)
        takes = ", ".join(known) or "no arguments"
        remedy = f"did you mean {near!r}?" if near else f"it takes {takes}"
        raise ProgramArgumentError(f"{name} has no parameter {unknown!r}; {remedy}")
    values: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name not in given and parameter.required:
            message = (
                f"{name} needs the argument {parameter.name!r}: {expected(parameter.kind)}; "
                f"call {name}({parameter.name}=…)"
            )
            raise ProgramArgumentError(message)
        value = parameter.value(given.get(parameter.name, parameter.default))
        if not accepts(parameter.kind, value):
            message = (
                f"{name}: {parameter.name} cannot be {short(value)}; it takes {expected(parameter.kind)}"
            )
            raise ProgramArgumentError(message)
        bad = forbidden_character(value) if isinstance(value, str) else None
        if bad is not None:
            message = f"{name}: {parameter.name} contains {bad!r}, which documents cannot contain; remove it"
            raise ProgramArgumentError(message)
        values[parameter.name] = value
    return values


def short(value: object) -> str:
    """Returns a value for a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"


def _shown(value: ChoiceValue) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
