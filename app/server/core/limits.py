"""Prompts that are far too long for the context window, refused before they are read or tokenized whole."""

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

PIECE = 8192
"""Characters of a text that are tokenized at a time."""
_GENEROUS = 16
"""So many characters for each token of the window are tokenized whole, which takes no time to speak of."""
_COUNTED = 256
"""So many are where somebody wants to know how many tokens they have: 2 MB for a window of 8,192."""
_THOUGHT = "</think>"  # templates leave out what an earlier answer has before it


def few_messages(engine: Callable[[], Engine], field: str) -> Callable[[Request], Coroutine[Any, Any, None]]:
    """Returns what refuses a conversation with more texts than the window has tokens, unread.

    Args:
        engine: gives the engine; what it raises refuses the request.
        field: of the body, which holds the messages.
    """

    async def require(request: Request) -> None:
        """Refuses what cannot fit: each text has a token at least.

        Raises:
            ApiError: it cannot.
        """
        given = (await request.json()).get(field)
        if isinstance(given, list) and len(given) > (most := _most(engine())):
            texts = sum(_says(one) for one in given)
            if texts > most:
                raise _too_long(texts, most, field)

    return require


def require_room(engine: Engine, asked: Asked, *, counted: bool = False) -> None:
    """Refuses a prompt that is far too long after as much of it as shows that.

    A text that is cut has a few other tokens than it has whole, and templates leave a little out. So as much
    is tokenized, piece by piece, as fills the window twice over.

    Args:
        engine: who answers.
        asked: the request.
        counted: whether only the tokens of the prompt are wanted, of which there may be far more.

    Raises:
        ApiError: there are more texts than the model reads tokens, or they are far too long.
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
    """Returns how many tokens a prompt has, also where the model does not read as many.

    Raises:
        PromptCacheError: what else is wrong with it.
    """
    try:
        return prompt.plan(settings).total_tokens
    except TooLongError as error:
        return error.tokens


def _texts(asked: Asked) -> Iterator[str]:
    """The texts of a request, without what templates may leave out."""
    if asked.text is not None:
        yield asked.text
    for message in asked.messages:
        for block in message.blocks:
            text = block.text.strip()
            yield text.rpartition(_THOUGHT)[2] if message.role == "assistant" else text


def _says(message: object) -> bool:
    """Whether a message of a body has a text."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return any(isinstance(one, dict) and one.get("text") not in (None, "") for one in content)
    return content not in (None, "")


def _most(engine: Engine) -> int:
    return engine.model.context_length - 1


def _too_long(tokens: int, most: int, field: str) -> ApiError:
    return ApiError(TOO_LONG, f"prompt is too long: {tokens} tokens or more > {most} maximum", field)
