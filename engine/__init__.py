"""The engine: PML in, answers out, from segments that were computed once.

Never imports the app. Names are loaded when they are first used, so that `engine.pml` stays free of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from engine.errors import ModelError, PromptError, SettingsError, StoreError, StudioError

if TYPE_CHECKING:
    from engine.engine import EncodeReport, Engine
    from engine.events import Answer, Compared, Comparison, Delta, Event, Finished, FirstToken, Working
    from engine.model import Model
    from engine.overview import Layout, ModuleLayout, Plan
    from engine.probe import Probe
    from engine.settings import RunSettings
    from engine.store import Store, StoreStats
    from engine.verdict import Fidelity

_HOMES = {
    "engine.engine": ("EncodeReport", "Engine"),
    "engine.events": (
        *("Answer", "Compared", "Comparison", "Delta", "Event", "Finished", "FirstToken", "Working"),
    ),
    "engine.verdict": ("Fidelity",),
    "engine.model": ("Model",),
    "engine.overview": ("Layout", "ModuleLayout", "Plan"),
    "engine.probe": ("Probe",),
    "engine.settings": ("RunSettings",),
    "engine.store": ("Store", "StoreStats"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Compared",
    "Comparison",
    "Delta",
    "EncodeReport",
    "Engine",
    "Event",
    "Fidelity",
    "Finished",
    "FirstToken",
    "Layout",
    "Model",
    "ModelError",
    "ModuleLayout",
    "Plan",
    "Probe",
    "PromptError",
    "RunSettings",
    "SettingsError",
    "Store",
    "StoreError",
    "StoreStats",
    "StudioError",
    "Working",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
