"""Rejects fields of other endpoints and servers; ignoring them would silently change the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

_FORM = "use output_config.format."
_THINKS = "the model's chat template decides whether it thinks."
_SAMPLED = "tokens are drawn by temperature, top_p, top_k, min_p and the penalties."

NAMES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        (
            *("max_tokens", "max_completion_tokens", "max_output_tokens"),
            *("max_new_tokens", "n_predict", "num_predict"),
        ),
        "",
    ),
    (("stop", "stop_sequences"), ""),
    (("messages", "input", "prompt"), ""),
    (
        ("system", "instructions"),
        "send it as a message of the role system, or at the beginning of the prompt.",
    ),
)
"""Synonyms of fields, with the advice if an endpoint has none of them; "" allows them."""

OTHERS: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "repeat_penalty": ((1,), "use repetition_penalty."),
    "do_sample": ((True,), "send a temperature of 0 for the likeliest tokens."),
    **dict.fromkeys(
        ("mirostat", "mirostat_mode", "top_a", "xtc_probability", "dry_multiplier", "dynatemp_range"),
        ((0,), _SAMPLED),
    ),
    **dict.fromkeys(("smoothing_factor", "no_repeat_ngram_size"), ((0,), _SAMPLED)),
    **dict.fromkeys(("typical", "tfs", "tfs_z", "num_beams"), ((1,), _SAMPLED)),
    "top_n_sigma": ((0, -1), _SAMPLED),
    "allowed_token_ids": (([],), "the choice of tokens cannot be restricted."),
    "min_new_tokens": ((0,), "it is not implemented."),
    **dict.fromkeys(
        ("include_stop_str_in_output", "no_stop_trim"), ((False,), "answers end before the stop text.")
    ),
    "stop_regex": (("", []), "use stop, which takes texts."),
    "n_probs": ((0,), "token probabilities are not returned."),
    **dict.fromkeys(("json_schema", "format", "regex", "ebnf"), (("", {}), _FORM)),
    "skip_special_tokens": ((True,), "answers are returned as text."),
    "add_generation_prompt": ((True,), "the prompt always starts the assistant's turn."),
    "truncate_prompt_tokens": ((), "an oversized prompt is rejected, not truncated."),
    "documents": (([],), "write them as blocks of a message."),
    "options": (({},), "its settings are fields of the request itself, such as temperature."),
    "enable_thinking": ((), "send it in chat_template_kwargs."),
    "thinking": (({"type": "disabled"},), _THINKS),
}
"""Fields of vLLM, SGLang, llama.cpp, Ollama and transformers, with their neutral values."""


def misnamed(name: str, given: object, kind: type[BaseModel]) -> str | None:
    """Returns the replacement for a field that an endpoint lacks.

    Returns:
        The advice; None for an unrelated field or a neutral value.
    """
    if given in ("", [], {}):
        return None
    for names, otherwise in NAMES:
        if name in names:
            accepted = [synonym for synonym in names if synonym in kind.model_fields]
            return f"it is called {' or '.join(accepted)} here." if accepted else otherwise or None
    return None
