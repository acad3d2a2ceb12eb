"""What `include` of a request asks for: the report of the cache, or what no answer has anyway."""

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
"""What OpenAI's clients ask for that no answer has here: of images, of thoughts, of tools of its own."""


def includes_report(include: Sequence[str] | None) -> bool:
    """Returns whether the report of the cache is asked for.

    Raises:
        ApiError: something is that would change the answer, or that nobody knows.
    """
    for number, name in enumerate(include or ()):
        where = f"include[{number}]"
        if name == LOGPROBS:
            raise unsupported(where, "probabilities are not told.")
        if name not in (REPORT, *HARMLESS):
            known = listed([REPORT, *HARMLESS])
            raise ApiError(
                INVALID, f"{where} is {shown(name)}, which nobody knows; there are {known}.", where
            )
    return REPORT in (include or ())
