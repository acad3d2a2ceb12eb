"""Fields that other endpoints and other servers know: unread, each would change the answer in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

_FORM = "the form of an answer cannot be forced; ask for it in words."
_THINKS = "the model's own template decides whether it thinks."
_SAMPLED = "tokens are drawn by temperature, top_p, top_k and repetition_penalty."

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
"""Names for the same thing, and the advice where an endpoint has none of them; "" lets them pass."""

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
    "allowed_token_ids": (([],), "tokens are chosen by the model alone."),
    "min_new_tokens": ((0,), "it is not built."),
    **dict.fromkeys(("include_stop_str_in_output", "no_stop_trim"), ((False,), "an answer ends before it.")),
    "stop_regex": (("", []), "use stop, which takes texts."),
    "n_probs": ((0,), "probabilities are not told."),
    **dict.fromkeys(("json_schema", "format", "regex", "ebnf"), (("", {}), _FORM)),
    "skip_special_tokens": ((True,), "an answer is told as text."),
    "add_generation_prompt": ((True,), "the assistant's turn is always begun."),
    "truncate_prompt_tokens": ((), "a prompt that is too long is refused, and nothing is left out of it."),
    "documents": (([],), "write them as blocks of a message."),
    "options": (({},), "its settings are fields of the request itself, such as temperature."),
    "enable_thinking": ((), _THINKS),
    "thinking": (({"type": "disabled"},), _THINKS),
}
"""Fields of vLLM, SGLang, llama.cpp, Ollama and transformers, with the values that ask for nothing."""


def misnamed(name: str, given: object, kind: type[BaseModel]) -> str | None:
    """Returns what to send in place of a field that an endpoint does not have.

    Args:
        name: of the field.
        given: its value.
        kind: the body of the endpoint.

    Returns:
        The advice; None where the field is another one, or says nothing.
    """
    if given in ("", [], {}):
        return None
    for names, otherwise in NAMES:
        if name in names:
            own = [one for one in names if one in kind.model_fields]
            return f"it is called {' or '.join(own)} here." if own else otherwise or None
    return None
