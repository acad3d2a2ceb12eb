"""How the page runs a prompt: the engine's settings, and how often a run is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from engine import RunSettings
from engine.inference.settings import declared, settings_of


@dataclass(frozen=True)
class PageSettings(RunSettings):
    """The settings of the page's drawer, as they are declared.

    Raises:
        SettingsError: a value is out of its range.
    """

    repeats: int = field(
        default=1,
        metadata=declared("Repeats", "Runs that are timed; their median is shown.", least=1, most=25),
    )

    @classmethod
    def read(cls, sent: Mapping[str, object]) -> PageSettings:
        """Takes settings as the page sends them.

        Raises:
            SettingsError: a value is out of its range, or its name is unknown.
        """
        read = super().read(sent)
        assert isinstance(read, cls)
        return read

    @classmethod
    def sight(cls, sent: Mapping[str, object]) -> PageSettings:
        """Takes only what says where segments stand and what they see, which all that is shown depends on.

        Raises:
            SettingsError: as for `read`.
        """
        return cls.read({name: sent[name] for name in ("scope", "placement") if name in sent})


def described() -> list[dict[str, Any]]:
    """Returns the declarations for the page's form."""
    return [one.describe() for one in settings_of(PageSettings).values()]


def as_today(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a draft, those of earlier versions as they are written now."""
    found = dict(kept)
    if isinstance(stop := found.get("stop"), str):
        found["stop"] = [stop.replace("\\n", "\n")] if stop else []
    if "conversation" in found:
        found.setdefault("store_conversation", found.pop("conversation") == "disk")
    names = {one.name for one in fields(PageSettings)}
    return {name: value for name, value in found.items() if name in names}
