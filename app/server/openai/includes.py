"""Parses `include`: the cache report, or fields that no response has."""

from __future__ import annotations

from collections.abc import Sequence

from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import listed, shown

REPORT = "prompt_cache"
LOGPROBS = "message.output_text.logprobs"
HARMLESS = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
)
"""Fields that OpenAI's clients request, but no response of this server has."""


def includes_report(include: Sequence[str] | None) -> bool:
    """Returns whether the cache report is requested; raises ApiError for an unsupported entry."""
    for number, name in enumerate(include or ()):
        where = f"include[{number}]"
        if name == LOGPROBS:
            raise unsupported(where, "token probabilities are not returned.")
        if name not in (REPORT, *HARMLESS):
            known = listed([REPORT, *HARMLESS])
            raise ApiError(
                INVALID, f"{where} is {shown(name)}, which is unknown; the values are {known}.", where
            )
    return REPORT in (include or ())
