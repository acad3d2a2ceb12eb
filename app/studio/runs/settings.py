"""The page's run settings: the engine's settings, and the number of timings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from app.studio.web.digests import digest
from engine.base.choices import Reuse
from engine.base.errors import SettingsError
from engine.decisions.readout import Readout
from engine.inference.run_settings import RunSettings
from engine.inference.setting import Setting, declared, settings_of

WITHOUT_EFFECT = frozenset({"repeats", "sync"})  # do not affect an answer
WHEN_DRAWN = frozenset({"seed", "top_p", "top_k", "min_p"})  # matter only with sampling
AUTOMATIC = 3  # timings of each side
MOST_SECONDS = 3.0  # of repeated timings after the answer
Matters = Literal["always", "drawn", "decided", "never"]
MOST_WHOLE = 2**53 - 1  # JavaScript's largest safe integer
_DECIDE = "decide_"  # begins the name of a setting of decisions
_READOUT = Readout.__dataclass_fields__


@dataclass(frozen=True)
class PageSettings(RunSettings):
    """The settings of the page. `reuse` is auto unless scope or repair is set.

    The names that begin with `decide_` belong to decisions; see `engine.decisions.readout.Readout`.

    Raises:
        SettingsError: a value is out of range.
    """

    reuse: Reuse = field(default="auto", metadata=RunSettings.__dataclass_fields__["reuse"].metadata)
    repeats: int = field(
        default=0,
        metadata=declared(
            "Timings",
            "Number of timings of the first token per side, in turns; the median and the range are shown. "
            f"0 is automatic: up to {AUTOMATIC}, while repeating them takes at most {MOST_SECONDS:g} s.",
            least=0,
            most=25,
        ),
    )
    decide_permutations: int = field(default=1, metadata=_READOUT["permutations"].metadata)
    decide_calibrate: bool = field(default=False, metadata=_READOUT["calibrate"].metadata)
    decide_per_token: bool = field(default=False, metadata=_READOUT["per_token"].metadata)
    decide_temperature: float = field(default=1.0, metadata=_READOUT["temperature"].metadata)
    decide_list_options: bool = field(default=True, metadata=_READOUT["list_options"].metadata)

    @classmethod
    def read(cls, sent: Mapping[str, object]) -> PageSettings:
        """Reads the page's settings; errors use the form's labels.

        Raises:
            SettingsError: a value is out of range, or a name is unknown.
        """
        for name, setting in declarations().items():
            if name in sent and not setting.takes(sent[name]):
                raise SettingsError(f"{setting.label} must be {setting.range}.")
        read = super().read(sent)
        assert isinstance(read, cls)
        return read

    @classmethod
    def of_run(cls, stored: Mapping[str, object]) -> PageSettings:
        """Reads the settings of a stored run, without those that are obsolete or out of range."""
        return cls.read(valid(stored))

    @classmethod
    def sight(cls, sent: Mapping[str, object]) -> PageSettings:
        """Reads only settings of positions and attention, which every view depends on.

        Raises:
            SettingsError: as for `read`.
        """
        return cls.read({name: sent[name] for name in ("scope", "placement") if name in sent})

    @property
    def readout(self) -> Readout:
        """How decisions read their probabilities."""
        return Readout(**{name: getattr(self, f"{_DECIDE}{name}") for name in _READOUT})

    def timings(self, first_ms: float) -> int:
        """Returns the number of timings of each side; `first_ms` is the time of the first one on both."""
        fitting = 1 + int(1000 * MOST_SECONDS / max(first_ms, 1.0))
        return self.repeats or min(AUTOMATIC, fitting)

    @property
    def digest(self) -> str:
        """A digest of all settings that can change an answer or its times.

        Defaults are left out, so that new settings do not change old digests.
        """
        changed = {
            name: getattr(self, name)
            for name, setting in declarations().items()
            if self._matters(name) and getattr(self, name) != setting.default
        }
        return digest(json.dumps(changed, sort_keys=True))

    def to_json(self) -> dict[str, Any]:
        """Returns the settings of a run as the page sends them, without those of decisions."""
        settings = {**asdict(self), "stop": list(self.stop)}
        return {name: value for name, value in settings.items() if matters(name) != "decided"}

    def of_decisions(self) -> dict[str, Any]:
        """Returns the settings of decisions as the page sends them."""
        return {**self.to_json(), **{f"{_DECIDE}{name}": getattr(self.readout, name) for name in _READOUT}}

    def _matters(self, name: str) -> bool:
        how = matters(name)
        return how == "always" or (how == "drawn" and self.temperature > 0)


def matters(name: str) -> Matters:
    """Whether a setting can change a result: always, never, only with sampling, or only of decisions."""
    if name.startswith(_DECIDE):
        return "decided"
    return "never" if name in WITHOUT_EFFECT else "drawn" if name in WHEN_DRAWN else "always"


def valid(stored: Mapping[str, object]) -> dict[str, object]:
    """Returns the stored settings that exist today and are in range."""
    known = declarations()
    return {name: value for name, value in stored.items() if name in known and known[name].takes(value)}


def declarations() -> dict[str, Setting]:
    """Returns the settings by name; integers are limited to JavaScript's safe range."""
    settings = dict(settings_of(PageSettings))
    for name, setting in settings.items():
        if setting.kind == "integer":
            most = math.inf if setting.most is None else setting.most
            settings[name] = replace(setting, most=min(most, MOST_WHOLE))
    return settings


def described() -> list[dict[str, Any]]:
    """Returns the declarations for the page's form."""
    return [{**setting.describe(), "matters": matters(name)} for name, setting in declarations().items()]


def as_today(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a draft's settings from earlier versions."""
    settings = dict(kept)
    if isinstance(stop := settings.get("stop"), str):
        settings["stop"] = [stop.replace("\\n", "\n")] if stop else []
    if "conversation" in settings:
        settings.setdefault("store_conversation", settings.pop("conversation") == "disk")
    usual = PageSettings().to_json()
    if any(settings.get(name, usual[name]) != usual[name] for name in ("scope", "repair")):
        settings.setdefault("reuse", "off")
    names = {field.name for field in fields(PageSettings)}
    return {name: value for name, value in settings.items() if name in names}
