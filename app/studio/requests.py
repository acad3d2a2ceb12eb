"""What the page asks: functions that answer with an object or a sentence; texts, numbers, run settings."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from app.studio.runs import MAX_NEW_TOKENS, MAX_REPEATS
from engine import RunSettings
from engine.errors import PromptCacheError

logger = logging.getLogger(__name__)

Json = dict[str, Any]


def endpoint(method: Callable[[Json], Json]) -> Callable[[Any], Response]:
    """A function that the page may call: faults become a sentence under `error`, never a traceback."""

    def answered(request: Any) -> Json:
        if not isinstance(request, dict):
            return {"error": "The page sent something else than an object. Reload it and try again."}
        try:
            return method(request)
        except PromptCacheError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("The page's request %s failed", method.__name__)
            return {"error": f"The studio could not do this: {error!r}. Nothing was changed."}

    @functools.wraps(method)
    def answer(request: Any) -> Response:
        found = answered(request)
        try:
            body = json.dumps(found, allow_nan=False)
        except (ValueError, RecursionError) as error:
            logger.exception("The answer to the page's request %s cannot be sent", method.__name__)
            body = json.dumps({"error": f"The studio cannot send the answer to the page: {error!r}."})
        return Response(body, media_type="application/json")

    return answer


def text_of(request: Mapping[str, Any], key: str) -> str:
    """A text of the request; nothing where there is none."""
    value = request.get(key, "")
    return value if isinstance(value, str) else ""


def settings_of(sent: object) -> RunSettings:
    """Run settings from the page's drawer, brought within their limits.

    Raises:
        PromptCacheError: a value is no number, or is not known.
    """
    chosen: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {}
    stop = text_of(chosen, "stop").replace("\\n", "\n")
    scope: Any = text_of(chosen, "scope") or "anchored"
    placement: Any = text_of(chosen, "placement") or "compact"
    return RunSettings(
        max_new_tokens=min(MAX_NEW_TOKENS, max(1, int(number_of(chosen, "max_new_tokens", 128)))),
        temperature=min(5.0, max(0.0, number_of(chosen, "temperature", 0.0))),
        top_p=min(1.0, max(0.01, number_of(chosen, "top_p", 1.0))),
        top_k=max(0, int(number_of(chosen, "top_k", 0))),
        repetition_penalty=min(10.0, max(0.01, number_of(chosen, "repetition_penalty", 1.0))),
        stop=(stop,) if stop else (),
        seed=int(number_of(chosen, "seed", 0)),
        scope=scope,
        repair=text_of(chosen, "repair") or "none",
        placement=placement,
        store_conversation=text_of(chosen, "conversation") == "disk",
    )


def repeats_of(sent: object) -> int:
    """How often a run is timed."""
    chosen: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {}
    return min(MAX_REPEATS, max(1, int(number_of(chosen, "repeats", 1))))


def number_of(chosen: Mapping[str, Any], key: str, default: float) -> float:
    """A number of the settings.

    Raises:
        PromptCacheError: it is none.
    """
    try:
        value = float(chosen.get(key, default))
    except (TypeError, ValueError):
        value = float("nan")
    if value != value or abs(value) > 1e15:
        raise PromptCacheError(
            f"The setting {key.replace('_', ' ')} is not a number. Correct it in the settings."
        )
    return value


def whole_number_of(request: Mapping[str, Any], key: str, default: int = 0) -> int:
    """A whole number that the page sent.

    Raises:
        PromptCacheError: it is none.
    """
    value = request.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PromptCacheError(
            f"The page sent {value!r} where the number {key!r} belongs. Reload it and try again."
        )
    return value
