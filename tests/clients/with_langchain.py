"""LangChain: the three methods of `with_structured_output`, and bound tools."""

from __future__ import annotations

from functools import partial

from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.clients.__main__ import Check
from tests.clients.shapes import FIELDS, shape

METHODS = ("json_schema", "function_calling")


def checks(url: str, model: str) -> dict[str, Check]:
    """Returns a check for each method and model, and one for bound tools."""
    chat = ChatOpenAI(
        base_url=f"{url}/v1",
        api_key=SecretStr("none"),
        model=model,
        temperature=0,
        max_retries=0,
        max_completion_tokens=200,
    )
    found: dict[str, Check] = {
        f"{method}, {name}": partial(_structured, chat, method, name)
        for method in METHODS
        for name in FIELDS
        if (method, name)
        != ("function_calling", "recursive")  # LangChain sends such a model without its recursion
    }
    return {**found, "json_mode": partial(_json, chat), "bind_tools": partial(_tools, chat)}


def _structured(chat: ChatOpenAI, method: str, name: str) -> None:
    wanted = shape(name)
    found = chat.with_structured_output(wanted, method=method).invoke("Where is the beach?")
    assert isinstance(found, wanted)


def _json(chat: ChatOpenAI) -> None:
    found = chat.with_structured_output(None, method="json_mode").invoke(
        "Answer in JSON: where is the beach?"
    )
    assert isinstance(found, dict)


def _tools(chat: ChatOpenAI) -> None:
    wanted = shape("nested list")
    message = chat.bind_tools([wanted], tool_choice="any").invoke("Where is the beach?")
    (call,) = message.tool_calls
    wanted(**call["args"])
