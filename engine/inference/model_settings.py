"""Settings from a model's generation_config.json, and the fields of that file without effect."""

from __future__ import annotations

from typing import Any

from engine.checkpoint.generation_config import FILE, SETTINGS
from engine.inference.run_settings import RunSettings
from engine.inference.setting import settings_of
from engine.model.model import Model


def own_settings(model: Model) -> dict[str, Any]:
    """Returns the valid settings of a model, by name."""
    known = settings_of(RunSettings)
    values = model.generation.settings
    return {name: values[name] for name in SETTINGS if name in values and known[name].takes(values[name])}


def without_effect(model: Model) -> str:
    """Lists the fields of a model's generation_config.json without effect; "" for none."""
    generation, own = model.generation, own_settings(model)
    refused = {name: value for name, value in generation.settings.items() if name not in own}
    fields = {**refused, **generation.ignored}
    if not fields:
        return ""
    shown = ", ".join(f"{name} ({_spelled(value)})" for name, value in sorted(fields.items()))
    return (
        f"model {model.name!r} has fields without effect in {FILE}: {shown}; "
        "answers can differ from those of transformers' generate()"
    )


def _spelled(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_LONGEST = 60  # characters of a value that are shown
