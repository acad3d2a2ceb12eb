"""The table of errors, in each API's terms."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import MISSING, Field

from app.server.http.pml_errors import over_http
from app.server.http.redact_paths import without_paths
from app.server.http.shapes import Count, Reply
from app.server.http.truncate import brief
from engine.base.errors import CancelledError, CharacterError, ClosedError, PromptCacheError, SettingsError
from engine.base.token_bias import TokenBiasError
from engine.pml import PromptError
from engine.prompt.conversation.tools import ToolsError
from engine.prompt.window import TooLongError

log = logging.getLogger(__name__)

Dialect = Literal["openai", "anthropic", "typesafe", "ollama"]
RETRY_SECONDS = 1
_LONGEST = 2000  # characters of a message


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    status: int  # HTTP status in OpenAI's API
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str | None
    anthropic: str
    anthropic_status: int | None = None  # HTTP status in Anthropic's API, if it differs
    retry: bool = False  # whether the client may retry later

    def status_in(self, dialect: Dialect) -> int:
        """Returns the HTTP status in an API."""
        if dialect == "typesafe":
            return 422 if self.status == 400 else self.status
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


class Diagnostic(Reply):
    """An error of a PML document."""

    code: str = Field(description="A code of docs/pml.md.")
    severity: str
    line: Count
    column: Count
    message: str
    hint: str


class OpenAIErrorDetails(Reply):
    """The error."""

    message: str = Field(description="The problem, its place and the fix.")
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None = Field(description="The request field.")
    code: str | None
    diagnostics: list[Diagnostic] | MISSING = MISSING


class OpenAIError(Reply):
    """An error in OpenAI's API."""

    error: OpenAIErrorDetails


class AnthropicErrorDetails(Reply):
    """The error."""

    type: str
    message: str = Field(description="The request field, the problem and the fix.")
    diagnostics: list[Diagnostic] | MISSING = MISSING


class AnthropicError(Reply):
    """An error in Anthropic's API."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetails
    request_id: str


class TypeSafeErrorDetails(Reply):
    """The error."""

    loc: list[str | int] = Field(description='"body" and the path of the request field.')
    msg: str = Field(description="The problem and the fix.")
    type: str


class TypeSafeError(Reply):
    """An invalid request in TypeSafe's API. Other errors have OpenAI's form."""

    detail: list[TypeSafeErrorDetails]


class OllamaError(Reply):
    """An error in Ollama's API."""

    error: str = Field(description="The request field, the problem and the fix.")


class ApiError(Exception):
    """An error response.

    Args:
        kind: its row of the table.
        message: the problem, its place and the fix. If the message starts with the field name, "It" replaces
            the name after the field's prefix.
        param: the request field; None without one.
        diagnostics: the errors of an invalid document.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        param: str | None = None,
        diagnostics: list[Diagnostic] | MISSING = MISSING,
    ) -> None:
        message = brief(message)
        super().__init__(message)
        self.kind, self.diagnostics = kind, diagnostics
        begins = param is not None and message.startswith(f"{param} ")
        self._behind = _bounded(f"It{message[len(param or '') :]}" if begins else message, _LONGEST)
        # Do not repeat an oversized value in full.
        self.message, self.param = _bounded(message, _LONGEST), param and _bounded(param, _LONGEST // 10)

    def in_openai(self) -> OpenAIError:
        """Returns the error in OpenAI's API."""
        kind, message, param = self.kind, self.message, self.param
        error = OpenAIErrorDetails(
            message=message, type=kind.type, param=param, code=kind.code, diagnostics=self.diagnostics
        )
        return OpenAIError(error=error)

    def in_anthropic(self, request_id: str) -> AnthropicError:
        """Returns the error in Anthropic's API."""
        place = re.sub(r"\[(\d+)\]", r".\1", self.param or "")  # Anthropic's: messages.0.content
        message = self._at(place)
        error = AnthropicErrorDetails(type=self.kind.anthropic, message=message, diagnostics=self.diagnostics)
        return AnthropicError(error=error, request_id=request_id)

    def in_ollama(self) -> OllamaError:
        """Returns the error in Ollama's API."""
        return OllamaError(error=self._at(self.param or ""))

    def _at(self, place: str) -> str:
        """The message with the place of the request field before it."""
        # Clients recognise an oversized prompt by the start of the message.
        return self.message if not place or self.kind is TOO_LONG else f"{place}: {self._behind}"

    def in_typesafe(self) -> TypeSafeError:
        """Returns the error of an invalid request in TypeSafe's API."""
        place = [name or int(index) for index, name in re.findall(r"\[(\d+)\]|([^.\[]+)", self.param or "")]
        words = self._behind if place else self.message
        error = TypeSafeErrorDetails(loc=["body", *place], msg=words, type=self.kind.code or "value_error")
        return TypeSafeError(detail=[error])

    def body(
        self, dialect: Dialect, request_id: str
    ) -> OpenAIError | AnthropicError | TypeSafeError | OllamaError:
        """Returns the body in an API."""
        if dialect == "anthropic":
            return self.in_anthropic(request_id)
        if dialect == "ollama":
            return self.in_ollama()
        return self.in_typesafe() if self.kind.status_in(dialect) == 422 else self.in_openai()


def _bounded(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def unsupported(param: str, why: str) -> ApiError:
    """Returns the error for an unsupported field that would change the answer."""
    return ApiError(UNSUPPORTED, f"{param} is not supported here: {why}", param)


def fault_of_pml(error: PromptError, param: str | None) -> ApiError:
    """Returns the error for an invalid document, with all its diagnostics."""
    error = over_http(error)
    diagnostics = [Diagnostic.model_validate(one, from_attributes=True) for one in error.diagnostics]
    return ApiError(INVALID, str(error), param, diagnostics)


def error_of(error: Exception, request_id: str = "", prompt: str | None = None) -> ApiError:
    """Converts an exception to an API error, and logs internal errors."""
    api_error = told_of(error, request_id, prompt)
    if api_error is not error and api_error.kind is FAULT:
        if isinstance(error, PromptCacheError):
            log.warning("request %s failed: %s", request_id, error)
        else:
            log.error("request %s failed", request_id, exc_info=error)
    return api_error


def told_of(error: Exception, request_id: str = "", prompt: str | None = None) -> ApiError:
    """Converts like `error_of`, without logging."""
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
        case TokenBiasError():
            return ApiError(INVALID, str(error), "logit_bias")
        case SettingsError() | CharacterError():
            return ApiError(INVALID, str(error), prompt)
        case ClosedError() | CancelledError():
            return ApiError(
                DRAINING,
                "The server is stopping or changing its model and cancelled this answer. Try again soon.",
            )
        case PromptCacheError():
            words = without_paths(str(error))
            return ApiError(FAULT, f"{words} (request {request_id})" if request_id else words)
    under = f" under {request_id}" if request_id else ""
    return ApiError(FAULT, f"The server failed on this request; see its log{under}.")
