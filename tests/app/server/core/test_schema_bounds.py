"""Schemas deleted while they are encoded, pinned beside salts, or far too wide; and the page's example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Engine
from engine.prepared import PreparedSchema
from tests.app.server.core.test_schemas import PATH, named, put
from tests.app.server.core.test_schemas import client as client
from tests.app.server.served import LONG, Served, served


def test_a_schema_that_is_deleted_while_it_is_encoded_leaves_no_pin(
    server: Served, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = PreparedSchema.encode

    def deleting(schema: PreparedSchema, **given: Any) -> Any:
        assert client.delete(f"{PATH}/racy").status_code == 204
        return encode(schema, **given)

    monkeypatch.setattr(PreparedSchema, "encode", deleting)
    told = put(client, "racy", named("racy", LONG), pinned=True, encode=True)
    assert (told.status_code, told.json()["error"]["code"]) == (404, "schema_not_found")
    assert "racy" not in server.engine.store.settings.pins()


def test_a_salt_of_a_request_pins_nothing(server: Served, client: httpx.Client) -> None:
    put(client, "salted", named("salted", LONG), pinned=True, encode=True)
    for salt in (None, "one", "one", "two", "two"):
        asked = {"prompt": '<prompt schema="salted"><one/></prompt>', "schema": "salted"}
        body = {"model": server.model, "messages": [], "prompt_cache": asked, "max_tokens": 1}
        told = client.post("/v1/chat/completions", json=body | ({"cache_salt": salt} if salt else {}))
        assert told.status_code == 200
        server.engine.store.finish_writing()
    assert [name for name in server.engine.store.settings.pins() if "salted" in name] == ["salted"]


@pytest.mark.parametrize("length", ["9999999", "&#57;999999"])
def test_parameters_are_not_laid_out_beyond_any_window(
    server: Served, client: httpx.Client, length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine, "schema", None)
    slots = "".join(f'<param name="p{number}" len="{length}"/>' for number in range(200))
    pml = f'<schema name="wide"><module name="m">a {slots}</module></schema>'
    told = put(client, "wide", pml)
    assert told.status_code == 400
    assert "have 1,999,999,800 tokens" in told.json()["error"]["message"]
    inline = {"model": server.model, "messages": [], "prompt_cache": {"schema": pml}}
    told = client.post("/v1/chat/completions", json=inline)
    assert (told.status_code, told.json()["error"]["param"]) == (400, "prompt_cache.schema")


@pytest.mark.long
def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[4]
    page = (root / "docs" / "server.md").read_text(encoding="utf-8").split("\n## Schemas\n")[1]
    example = page.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(root)
    with (
        Engine.open("demo", cache_dir=tmp_path / "unused") as bundled,
        served(tmp_path / "segments", model=bundled.model) as running,
    ):
        found: dict[str, Any] = {"client": running.openai()}
        exec(compile(example.replace("http://127.0.0.1:8000", running.url), "docs/server.md", "exec"), found)
        usage = found["answer"].usage
    assert usage.prompt_tokens_details.cached_tokens > usage.prompt_tokens / 2
