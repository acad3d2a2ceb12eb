"""How the page runs a prompt: the engine's settings, and how often a run is timed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from app.studio.web.digests import digest
from engine.base.choices import Reuse
from engine.base.errors import SettingsError
from engine.inference.run_settings import RunSettings
from engine.inference.setting import Setting, declared, settings_of

WITHOUT_EFFECT = frozenset({"repeats", "sync"})  # on what a run shows of an answer
WHEN_DRAWN = frozenset({"seed", "top_p", "top_k"})  # they count where tokens are drawn
Matters = Literal["always", "drawn", "never"]
MOST_WHOLE = 2**53 - 1  # beyond it a number of JavaScript is not always the one that was written


@dataclass(frozen=True)
class PageSettings(RunSettings):
    """The settings of the page's drawer. `reuse` is auto unless scope or repair is chosen.

    Raises:
        SettingsError: a value is out of its range.
    """

    reuse: Reuse = field(default="auto", metadata=RunSettings.__dataclass_fields__["reuse"].metadata)
    repeats: int = field(
        default=3,
        metadata=declared(
            "Repeats",
            "Times that the first token of each side is timed, in turns; the median and the range are shown.",
            least=1,
            most=25,
        ),
    )

    @classmethod
    def read(cls, sent: Mapping[str, object]) -> PageSettings:
        """Takes settings as the page sends them; a refusal names them as the form does.

        Raises:
            SettingsError: a value is out of its range, or its name is unknown.
        """
        for name, one in declarations().items():
            if name in sent and not one.takes(sent[name]):
                raise SettingsError(f"{one.label} must be {one.range}.")
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

    @property
    def digest(self) -> str:
        """A short name for all that can change an answer or its times.

        What has its default is left out, so that a setting of a later version renames nothing.
        """
        told = {
            name: getattr(self, name)
            for name, one in declarations().items()
            if self._matters(name) and getattr(self, name) != one.default
        }
        return digest(json.dumps(told, sort_keys=True))

    def to_json(self) -> dict[str, Any]:
        """Returns them as the page sends them."""
        return {**asdict(self), "stop": list(self.stop)}

    def _matters(self, name: str) -> bool:
        how = matters(name)
        return how == "always" or (how == "drawn" and self.temperature > 0)


def matters(name: str) -> Matters:
    """Whether a setting can change the result of a run: always, never, or where tokens are drawn."""
    return "never" if name in WITHOUT_EFFECT else "drawn" if name in WHEN_DRAWN else "always"


def declarations() -> dict[str, Setting]:
    """Returns the settings by name, whole numbers within what a page can hold exactly."""
    found = dict(settings_of(PageSettings))
    for name, one in found.items():
        if one.kind == "integer":
            most = math.inf if one.most is None else one.most
            found[name] = replace(one, most=min(most, MOST_WHOLE))
    return found


def described() -> list[dict[str, Any]]:
    """Returns the declarations for the page's form."""
    return [{**one.describe(), "matters": matters(name)} for name, one in declarations().items()]


def as_today(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a draft, those of earlier versions as they are written now."""
    found = dict(kept)
    if isinstance(stop := found.get("stop"), str):
        found["stop"] = [stop.replace("\\n", "\n")] if stop else []
    if "conversation" in found:
        found.setdefault("store_conversation", found.pop("conversation") == "disk")
    usual = PageSettings().to_json()
    if any(found.get(name, usual[name]) != usual[name] for name in ("scope", "repair")):
        found.setdefault("reuse", "off")
    names = {one.name for one in fields(PageSettings)}
    return {name: value for name, value in found.items() if name in names}
