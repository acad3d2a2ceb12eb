"""Options for run settings, generated from their declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from app.cli.base.param_types import Name, Number, Whole
from engine.base.errors import SettingsError
from engine.inference.run_settings import REPAIRS, RunSettings
from engine.inference.setting import Setting, settings_of

Command = TypeVar("Command", bound=Callable[..., Any])


def setting_option(name: str, *, only: Sequence[str] = (), **own: Any) -> Callable[[Command], Command]:
    """Adds the option of one setting.

    Args:
        name: the setting's name, a field of `RunSettings`.
        only: the available choices; empty for all.
        own: arguments of the click option that override the declaration; with `multiple` no default.
    """
    declared = settings_of(RunSettings)[name]
    arguments: dict[str, Any] = {
        "help": _help(declared, only),
        "callback": _refusing(declared),
        **_typed(declared),
    }
    if only:
        arguments["type"] = Name(list(only))
    if not own.get("multiple") and declared.kind != "texts":
        arguments |= {"default": declared.default, "show_default": declared.kind != "flag"}
    return click.option(f"--{name.replace('_', '-')}", **(arguments | own))


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Adds the options of several settings, in this order."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            command = setting_option(name)(command)
        return command

    return add


reuse_options = setting_options("scope", "repair", "placement")


def _typed(declared: Setting) -> dict[str, Any]:
    match declared.kind:
        case "integer":
            return {"type": Whole(_bound(declared.least), _bound(declared.most))}
        case "number":
            return {"type": Number(declared.least, declared.most, min_open=declared.above)}
        case "choice":
            return {"type": Name(list(declared.choices))}
        case "texts":
            return {"multiple": True, "metavar": "TEXT"}
        case "form":
            return {"metavar": "|".join(REPAIRS)}
        case "flag":
            variable = f"PML_{declared.name.upper()}"
            return {"is_flag": True, "envvar": variable, "show_envvar": True}


def _bound(value: float | None) -> int | None:
    return None if value is None else int(value)


def _help(declared: Setting, only: Sequence[str]) -> str:
    if declared.kind == "texts":
        return f"{declared.sentence} Repeatable."
    words = REPAIRS if declared.kind == "form" else declared.choices
    meanings = [f"{name}: {meaning}" for name, meaning in words.items() if not only or name in only]
    return f"{declared.sentence} {'; '.join(meanings)}." if meanings else declared.sentence


def _refusing(declared: Setting) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Rejects values out of range, before a model is loaded."""

    def refuse(_: click.Context, option: click.Parameter, value: Any) -> Any:
        several = getattr(option, "multiple", False) and declared.kind != "texts"
        try:
            for item in value if several else (value,):
                declared.checked(item)
        except SettingsError as error:
            raise click.BadParameter(str(error)) from error
        return value

    return refuse
