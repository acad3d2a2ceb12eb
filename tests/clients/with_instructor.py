"""instructor: its modes for JSON, tools and JSON Schema."""

from __future__ import annotations

from functools import partial

import instructor
from openai import OpenAI

from tests.clients.__main__ import Check
from tests.clients.shapes import FIELDS, shape

MODES = (
    instructor.Mode.JSON,
    instructor.Mode.TOOLS,
    instructor.Mode.TOOLS_STRICT,
    instructor.Mode.JSON_SCHEMA,
)


def checks(url: str, model: str) -> dict[str, Check]:
    """Returns a check for each mode and model."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    return {
        f"{mode.name}, {name}": partial(_asked, instructor.from_openai(client, mode=mode), model, name, mode)
        for mode in MODES
        for name in FIELDS
    }


def _asked(client: instructor.Instructor, model: str, name: str, mode: instructor.Mode) -> None:
    wanted = shape(name)
    found = client.chat.completions.create(
        model=model,
        response_model=wanted,
        messages=[{"role": "user", "content": "Where is the beach?"}],
        max_retries=3 if mode is instructor.Mode.JSON else 0,  # JSON holds the answer to no schema
        max_tokens=200,
        temperature=0,
    )
    assert isinstance(found, wanted)
