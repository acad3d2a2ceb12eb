"""What is refused or fails, in the terms of both dialects: one table."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any, Literal

from app.server.http.pml_errors import over_http
from app.server.http.redact_paths import without_paths
from app.server.http.truncate import brief
from engine.base.errors import CancelledError, CharacterError, ClosedError, PromptCacheError, SettingsError
from engine.pml import PromptError
from engine.prompt.conversation.tools import ToolsError
from engine.prompt.window import TooLongError

log = logging.getLogger(__name__)

Dialect = Literal["openai", "anthropic"]
RETRY_SECONDS = 1
_LONGEST = 2000  # characters of a message


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
        status: of the answer in OpenAI's dialect.
        type: OpenAI's type.
        code: OpenAI's code; None where it has none.
        anthropic: Anthropic's type.
        anthropic_status: of the answer in Anthropic's dialect, where it is another one.
        retry: whether the client is told to come again after a while.
    """

    status: int
    type: str
    code: str | None
    anthropic: str
    anthropic_status: int | None = None
    retry: bool = False

    def status_in(self, dialect: Dialect) -> int:
        """The status of an answer in a dialect."""
        return self.anthropic_status or self.status if dialect == "anthropic" else self.status


INVALID = Kind(400, "invalid_request_error", None, "invalid_request_error")
UNSUPPORTED = Kind(400, "invalid_request_error", "unsupported_parameter", "invalid_request_error")
TOO_LONG = Kind(400, "invalid_request_error", "context_length_exceeded", "invalid_request_error")
NO_KEY = Kind(401, "invalid_request_error", "invalid_api_key", "authentication_error")
FOREIGN = Kind(403, "invalid_request_error", "forbidden", "permission_error")
NO_MODEL = Kind(404, "invalid_request_error", "model_not_found", "not_found_error")
NO_SCHEMA = Kind(404, "invalid_request_error", "schema_not_found", "not_found_error")
NOT_FOUND = Kind(404, "invalid_request_error", "not_found", "not_found_error")
NO_METHOD = Kind(405, "invalid_request_error", "method_not_allowed", "invalid_request_error")
TOO_SLOW = Kind(408, "invalid_request_error", "request_timeout", "timeout_error")
TOO_LARGE = Kind(413, "invalid_request_error", "request_too_large", "request_too_large")
WRONG_TYPE = Kind(415, "invalid_request_error", "unsupported_media_type", "invalid_request_error")
FULL = Kind(429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", retry=True)
LOADING = Kind(503, "server_error", "loading", "overloaded_error", 529, retry=True)
OFF = Kind(503, "server_error", "switched_off", "overloaded_error", 529)
DRAINING = Kind(503, "server_error", "draining", "overloaded_error", 529, retry=True)
FAULT = Kind(500, "server_error", "internal_error", "api_error")


class ApiError(Exception):
    """What a client is told instead of an answer.

    Args:
        kind: its row of the table.
        message: what is wrong, where, and what to do. One that begins with the name of its field says "It"
            where that stands before it already.
        param: the field of the request; None where it is of none.
        more: fields that it has besides.
    """

    def __init__(
        self, kind: Kind, message: str, param: str | None = None, more: dict[str, Any] | None = None
    ) -> None:
        message = brief(message)
        super().__init__(message)
        self.kind, self.more = kind, more or {}
        begins = param is not None and message.startswith(f"{param} ")
        self._behind = _bounded(f"It{message[len(param or '') :]}" if begins else message, _LONGEST)
        # A request is not sent back whole to whoever has written a megabyte into a name.
        self.message, self.param = _bounded(message, _LONGEST), param and _bounded(param, _LONGEST // 10)

    def body(self, dialect: Dialect, request_id: str) -> dict[str, Any]:
        """Returns the JSON of a dialect."""
        if dialect == "anthropic":
            # That a prompt is too long is known by how the sentence begins.
            plain = self.param is None or self.kind is TOO_LONG
            place = re.sub(r"\[(\d+)\]", r".\1", self.param or "")  # its clients know messages.0.content
            told = self.message if plain else f"{place}: {self._behind}"
            error = {"type": self.kind.anthropic, "message": told, **self.more}
            return {"type": "error", "error": error, "request_id": request_id}
        fields = {
            "message": self.message,
            "type": self.kind.type,
            "param": self.param,
            "code": self.kind.code,
        }
        return {"error": {**fields, **self.more}}


def _bounded(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def unsupported(param: str, why: str) -> ApiError:
    """Returns the refusal of a field that would change the answer and cannot be honoured."""
    return ApiError(UNSUPPORTED, f"{param} is not supported here: {why}", param)


def fault_of_pml(error: PromptError, param: str | None) -> ApiError:
    """Returns the refusal of a document, with all that is wrong with it.

    Args:
        error: its faults.
        param: the field that the document came in; None where that is not known.
    """
    error = over_http(error)
    found = [
        {
            "code": one.code,
            "severity": one.severity,
            "line": one.line,
            "column": one.column,
            "message": one.message,
            "hint": one.hint,
        }
        for one in error.diagnostics
    ]
    return ApiError(INVALID, str(error), param, {"diagnostics": found})


def error_of(error: Exception, request_id: str = "", prompt: str | None = None) -> ApiError:
    """Returns what a client is told of an error of the engine, or of a fault, and writes faults into the log.

    Args:
        error: what was raised.
        request_id: the request that it ended.
        prompt: the field that holds the prompt; None where that is not known.
    """
    found = told_of(error, request_id, prompt)
    if found is not error and found.kind is FAULT:
        if isinstance(error, PromptCacheError):
            log.warning("request %s failed: %s", request_id, error)
        else:
            log.error("request %s failed", request_id, exc_info=error)
    return found


def told_of(error: Exception, request_id: str = "", prompt: str | None = None) -> ApiError:
    """Returns the same as `error_of`, and writes nothing."""
    match error:
        case ApiError():
            return error
        case TooLongError():
            return ApiError(
                TOO_LONG, f"prompt is too long: {error.tokens} tokens > {error.most} maximum", prompt
            )
        case PromptError():
            return fault_of_pml(error, prompt)
        case ToolsError():
            return ApiError(UNSUPPORTED, str(error), "tools")
        case SettingsError() | CharacterError():
            return ApiError(INVALID, str(error), prompt)
        case ClosedError() | CancelledError():
            return ApiError(
                DRAINING,
                "The server stops or changes its model, and this answer was ended. Try again in a moment.",
            )
        case PromptCacheError():
            words = without_paths(str(error))
            return ApiError(FAULT, f"{words} (request {request_id})" if request_id else words)
    under = f" under {request_id}" if request_id else ""
    return ApiError(FAULT, f"The server failed at this request; its log says why{under}.")
