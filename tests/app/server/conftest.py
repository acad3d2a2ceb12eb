"""One server for all tests that leave nothing behind, and one whose model calls tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.model import Model
from tests.app.server.served import Served, served
from tests.engine.prompt.tool_templates import HERMES_ANSWERS, WITH_TOOLS
from tests.engine.tiny import tiny_network


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="package")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model has a chat template with tools, and says how calls are written."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = WITH_TOOLS["hermes"].template
    tokenizer.response_template = HERMES_ANSWERS
    model = Model("agent", tiny_network(), tokenizer, "agent")
    with served(tmp_path_factory.mktemp("agent"), model=model, longest=200) as running:
        yield running
