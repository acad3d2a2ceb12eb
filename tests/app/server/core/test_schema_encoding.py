"""Schemas that are encoded as they are put: in a place like an answer's, as long as somebody wants it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from app.server.core.service import Limits
from tests.app.server.core.test_schemas import PATH, named, put
from tests.app.server.raw import connect, eventually, request
from tests.app.server.served import LONG, served


def test_a_put_takes_a_place(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(parallel=1, waiting=0)) as server:
        with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=server.url, timeout=60) as client:
            texts = [named("busy", f"{number} {LONG * 8}") for number in range(16)]
            found = [*pool.map(lambda one: put(client, "busy", one, encode=True).status_code, texts)]
        assert set(found) <= {201, 429}
        assert found.count(201) >= 1
        assert server.service.inside == 0


def test_encoding_ends_when_the_client_is_gone(tmp_path: Path) -> None:
    modules = "".join(f'<module name="m{number}">{number} {LONG * 6}</module>' for number in range(60))
    pml = f'<schema name="long"><user>{modules}</user></schema>'
    with served(tmp_path) as server:
        stats = server.engine.store.stats
        with connect(server.url) as line:
            sent = request(f"{PATH}/long", {"pml": pml, "encode": True}).replace(b"POST", b"PUT", 1)
            line.sendall(sent)
            eventually(lambda: stats().segments > 0, "it encodes")
        eventually(lambda: server.service.inside == 0, "it stops")
        server.engine.store.finish_writing()
        assert stats().segments < 60


def test_a_pin_holds_what_requests_have_stored(tmp_path: Path) -> None:
    with served(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        pins = server.engine.store.settings.pins
        assert put(client, "held", named("held", LONG), pinned=True).json()["pinned"]
        assert pins() == []
        body = {"model": server.model, "messages": [], "max_tokens": 1}
        over = {"schema": "held", "prompt": '<prompt schema="held"><one/> Well?</prompt>'}
        for _ in range(2):
            made = client.post("/v1/chat/completions", json={**body, "prompt_cache": over})
            assert made.status_code == 200
            server.engine.store.finish_writing()
        assert pins() == ["held"]


def test_segments_stay_as_long_as_their_schema(tmp_path: Path) -> None:
    with served(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        told = put(client, "brief", named("brief", LONG), ttl="5m").json()
        keys = {one["key"] for one in told["modules"] if one["key"]}
        kept = server.engine.store.kept(keys)
        assert set(kept) == keys
        assert all(295 < one.seconds <= 300 for one in kept.values())
        put(client, "brief", named("brief", LONG), pinned=True, encode=True)
        assert server.engine.store.settings.pinned_until()["brief"] < time.time() + 301
        client.patch(f"{PATH}/brief", json={"ttl": "1h"})
        assert server.engine.store.settings.pinned_until()["brief"] > time.time() + 3500
        assert all(3595 < one.seconds <= 3600 for one in server.engine.store.kept(keys).values())
