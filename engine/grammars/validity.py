"""Checks a complete answer against its grammar, independently of the tokens that were allowed."""

from __future__ import annotations

import json

from engine.grammars.grammar import schema_of
from engine.rows.expectations import expected


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
