"""Settings of a model: those of its generation_config.json, and whether settings of a run fit it."""

from __future__ import annotations

from typing import Any

from engine.base.token_bias import require_known
from engine.checkpoint.generation_config import FILE, SETTINGS
from engine.inference.run_settings import RunSettings, SamplingParams
from engine.inference.setting import settings_of
from engine.model.model import Model


def own_settings(model: Model) -> dict[str, Any]:
    """Returns the valid settings of a model, by name."""
    known = settings_of(RunSettings)
    values = model.generation.settings
    return {name: values[name] for name in SETTINGS if name in values and known[name].takes(values[name])}


def require_fitting(model: Model, params: SamplingParams) -> None:
    """Rejects sampling settings that do not fit a model, before anything is computed.

    Raises:
        GrammarError: the grammar is invalid or too large.
        ModelError: grammars cannot read the tokenizer.
        TokenBiasError: a biased token is not of the vocabulary.
    """
    model.matcher(params.grammar)
    require_known(params.logit_bias, int(model.config.vocab_size))


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
