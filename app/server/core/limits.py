"""Rejects oversized prompts before they are read or tokenized completely."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from starlette.requests import Request

from app.server.core.request import Asked
from app.server.http.errors import TOO_LONG, ApiError
from engine import Engine
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt
from engine.prompt.window import TooLongError

PIECE = 8192  # characters of a text that are tokenized at a time
_GENEROUS = 16  # shorter prompts, in characters for each token of the window, are tokenized without a check
_COUNTED = 256  # the same limit for token counts: 2 MB for a window of 8,192
_THOUGHT = "</think>"  # templates omit the text of an earlier answer up to here


def few_messages(engine: Callable[[], Engine], field: str) -> Callable[[Request], Coroutine[Any, Any, None]]:
    """Returns a check that rejects a conversation, in `field`, with more texts than the window has tokens."""

    async def require(request: Request) -> None:
        """Rejects more messages with text than tokens in the window with an ApiError."""
        messages = (await request.json()).get(field)
        if isinstance(messages, list) and len(messages) > (most := _most(engine())):
            texts = sum(_says(message) for message in messages)
            if texts > most:
                raise _too_long(texts, most, field)

    return require


def require_room(engine: Engine, asked: Asked, *, counted: bool = False) -> None:
    """Rejects an oversized prompt after tokenizing only a part of it.

    Tokenizes pieces until they fill the window twice. The factor of two allows for inexact counts: a split
    text has a few other tokens than the whole, and templates omit some text.

    Raises:
        ApiError: the prompt is too long.
    """
    most = _most(engine)
    texts = [text for text in _texts(asked) if text]
    if len(texts) > most:
        raise _too_long(len(texts), most, asked.field)
    if sum(map(len, texts)) <= (_COUNTED if counted else _GENEROUS) * most:
        return
    tokens = 0
    for text in texts:
        for start in range(0, len(text), PIECE):
            tokens += engine.count_tokens(text[start : start + PIECE])
            if tokens > 2 * most + 1:
                raise _too_long(tokens // 2, most, asked.field)


def tokens_of(prompt: PreparedPrompt, settings: RunSettings) -> int:
    """Returns the token count of a prompt, even beyond the window; raises PromptCacheError."""
    try:
        return prompt.plan(settings).total_tokens
    except TooLongError as error:
        return error.tokens


def _texts(asked: Asked) -> Iterator[str]:
    """Yields the texts of a request, without parts that templates may omit."""
    if asked.text is not None:
        yield asked.text
    for message in asked.messages:
        for block in message.blocks:
            text = block.text.strip()
            yield text.rpartition(_THOUGHT)[2] if message.role == "assistant" else text


def _says(message: object) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return any(isinstance(part, dict) and part.get("text") not in (None, "") for part in content)
    return content not in (None, "")


def _most(engine: Engine) -> int:
    return engine.model.context_length - 1


def _too_long(tokens: int, most: int, field: str) -> ApiError:
    return ApiError(TOO_LONG, f"prompt is too long: {tokens} tokens or more > {most} maximum", field)
