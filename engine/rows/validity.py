"""Checks a complete answer against its grammar, independently of the tokens that were allowed."""

from __future__ import annotations

import json
from typing import Final

from engine.base.events import Ending
from engine.exchange.base.errors import ExchangeError
from engine.grammars.grammar import FREE, schema_of
from engine.rows.expectations import expected

INCOMPLETE: Final = "incomplete: it reached the maximum length. Raise that setting."


def format_fault(grammar: str, answer: str, ending: Ending | None) -> str | None:
    """Returns why an answer is not as its grammar demands; "" if it is, None if that is not checked."""
    if grammar == FREE or grammar.startswith("lark:"):
        return None
    try:
        fault = fault_of(grammar, answer)
    except ExchangeError as error:
        fault = str(error)
    return INCOMPLETE if fault and ending != "eos" else fault


def in_words(fault: str) -> str:
    """Returns the result of the check of an answer: valid, incomplete, or why it is not valid."""
    if not fault:
        return "valid ✓"
    return fault if fault == INCOMPLETE else f"not valid: {fault}"


def fault_of(grammar: str, answer: str) -> str:
    """Returns why an answer is not as its grammar demands; "" if it is.

    JSON is checked by jsonschema. Answers under a Lark grammar, and free text, are not checked.

    Raises:
        ExchangeError: jsonschema or the pattern's reader refuses what the grammar has.
    """
    kind, _, text = grammar.partition(":")
    match kind:
        case "json" | "schema":
            return expected("json", json.dumps(schema_of(grammar))).fault(answer)
        case "regex":
            return expected("regex", rf"\A(?:{text})\Z").fault(answer)
        case "choices":
            return "" if answer in json.loads(text) else "It is none of the choices."
    return ""
