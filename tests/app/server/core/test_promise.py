"""Requests under a promise: the remedy is chosen by what was checked while nothing else was computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.app.server.core.test_modules import TEXTS, counts, parts
from tests.app.server.served import LONG, Served, served

PROMISE = {"reuse": "auto", "max_kl": 100}
SCHEMA = (
    f'<schema name="s"><user>Read.<module name="a">{LONG}</module>'
    '<module name="b">beta</module></user></schema>'
)


def over(server: Served, **more: Any) -> Any:
    return server.http.post(
        "/v1/chat/completions",
        json={
            "model": server.model,
            "max_tokens": 2,
            "temperature": 0,
            "messages": [{"role": "user", "content": "Why?"}],
            "prompt_cache": {"schema": SCHEMA, "prompt": "<prompt><a/><b/></prompt>", **more},
        },
    )


def test_named_blocks_are_repaired_until_a_check_says_that_they_need_not_be(tmp_path: Path) -> None:
    with served(tmp_path, promise=PROMISE) as server:
        server.engine.check_when_idle()
        sizes = sum(server.engine.count_tokens(text) for text in TEXTS.values())
        counts(server, "openai", parts("abc"))
        assert server.engine.idle.wait(60)
        read, written, _ = counts(server, "openai", parts("abc"))
        assert (read, written) == (sizes, 0), "nothing is computed again"


def test_without_a_check_a_combination_stays_repaired(tmp_path: Path) -> None:
    with served(tmp_path, promise=PROMISE) as server:  # it was not told to check
        sizes = sum(server.engine.count_tokens(text) for text in TEXTS.values())
        for _ in range(2):
            read, _, _ = counts(server, "openai", parts("abc"))
        assert 0 < read < sizes


def test_the_scope_that_a_request_names_is_the_clients_own_choice(tmp_path: Path) -> None:
    with served(tmp_path, promise=PROMISE) as server:
        assert over(server).status_code == 200
        assert over(server, scope="isolated").status_code == 200
