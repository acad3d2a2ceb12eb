"""The special token with which a chat template ends the assistant's turn, which also ends an answer.

Many models use the files of a base model, whose end token ends documents, not turns.
"""

from __future__ import annotations

from engine.base.errors import PromptCacheError
from engine.prompt.template.chat_template import ChatFormat


def turn_end(chat: ChatFormat) -> int | None:
    """Returns the token that follows an answer, or None if the template has none.

    An answer may consist of several messages if the assistant's turn begins with more text than the
    invitation. The end of such a message is not the end of the answer.
    """
    try:
        turns = chat.render(["user", "assistant", "user"], ["Hi", "Yes?", "So?"])
    except PromptCacheError:
        return None
    opened, invited = (_specials(chat, text) for text in (turns.opens[1], turns.closes[2] + turns.generation))
    behind = (turns.closes[1] + turns.opens[2]).lstrip()
    places = chat.tokens.specials(behind)
    if not opened <= invited or not places or places[0][0] > 0:
        return None
    ids = chat.tokens.marked(behind[: places[0][1]])
    return ids[0] if len(ids) == 1 else None


def _specials(chat: ChatFormat, text: str) -> set[str]:
    return {text[start:end] for start, end in chat.tokens.specials(text)}
