"""Reports a prompt that gives the model nothing to answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from engine.pml.diagnostics.diagnostic import Reporter, Span
from engine.pml.tree.parts import (
    ArgumentText,
    NewText,
    Part,
    RoleClose,
    RoleOpen,
    SchemaText,
    is_seam,
    part_text,
)
from engine.pml.tree.tree import Prompt

_MARK: Final = re.compile("[?？؟]")
_LAST_SENTENCE: Final = re.compile(r"(?:.*[.!:;\n])?\s*(.*\w.*)", re.DOTALL)
_REQUEST: Final = re.compile(
    r"(?:please |now |then )*(?:analy[sz]e|answer|calculate|check|choose|classify|compare|complete|continue|"
    r"correct|count|create|describe|draft|explain|extract|fill|find|generate|give|highlight|identify|list|"
    r"make|name(?!:)|outline|paraphrase|plan|predict|propose|rank|rate|recommend|reply|respond|return|review|"
    r"rewrite|say|score|show|solve|sort|suggest|summari[sz]e|tag|tell|translate|turn|write)\b",
    re.IGNORECASE,
)
_BEFORE_SENTENCE: Final = re.compile(r".*(?:[.!?]\s|(?<![:\s])\s*\n)", re.DOTALL)
_ASKS_FOR: Final = re.compile(
    rf"(?:^|[:;,]|\b(?:please|you|you to)\b)\s*{_REQUEST.pattern}|"
    r"\b(?:instruction|query|question|request|task)\b",
    re.IGNORECASE,
)


def check_question(parts: Sequence[Part], prompt: Prompt, report: Reporter) -> None:
    """Reports a document without errors whose bound parts ask nothing (W618)."""
    asks = prompt.questions or not prompt.source or prompt.torn or report.errors or _asks(parts)
    if not asks:
        start = prompt.span.start + len("<")
        message = "the prompt has no question and no request; write one before </prompt>"
        report.add("W618", message, Span(start, start + len("prompt")), "a question before </prompt>")


def _asks(parts: Sequence[Part]) -> bool:
    """Whether a user adds text, or the last turn is a user's and asks, also through its argument."""
    role: str | None = None
    turn: list[SchemaText | ArgumentText] = []
    for part in parts:
        match part:
            case RoleOpen():
                role, turn = part.role, []
            case RoleClose():
                pass
            case NewText():
                if role not in ("system", "assistant") and part.text.strip():
                    return True
            case _:
                if not is_seam(part):
                    turn.append(part)
    if role not in (None, "user"):
        return False
    end = next((part for part in reversed(turn) if re.search(r"\w", part_text(part))), None)
    if end is None or part_text(end).rstrip().endswith(":"):
        return False
    return (isinstance(end, ArgumentText) and _is_requested(end, turn)) or any(
        _MARK.search(text) or _is_request(text)
        for path, text in _texts(turn)
        if path in ("", turn[-1].module)
    )


def _is_requested(argument: ArgumentText, turn: Sequence[SchemaText | ArgumentText]) -> bool:
    """Whether a given argument is a request, or the module's sentence before it asks for something."""
    own = [part for part in turn[: turn.index(argument)] if part.module == argument.module]
    sentence = _BEFORE_SENTENCE.sub("", "".join(map(part_text, own)).strip(), count=1)
    asked = _REQUEST.match(argument.text.strip()) or _ASKS_FOR.search(sentence)
    return argument.given and asked is not None


def _texts(turn: Sequence[SchemaText | ArgumentText]) -> list[tuple[str, str]]:
    """Returns the texts of a turn, each with the path of its module."""
    texts: list[tuple[str, str]] = []
    for part in turn:
        text = part_text(part)
        if texts and texts[-1][0] == part.module:
            text = texts.pop()[1] + text
        texts.append((part.module, text))
    return texts


def _is_request(text: str) -> bool:
    sentence = _LAST_SENTENCE.fullmatch(text.rstrip(" \t\n.!:;"))
    return sentence is not None and _REQUEST.match(sentence[1]) is not None
