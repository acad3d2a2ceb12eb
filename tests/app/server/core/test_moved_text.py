"""`--modules auto`: a changed line costs its own tokens, and usage says what is approximate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.server.recent.test_reasons import OTHER, RULES, ask, why
from tests.app.server.served import served


def test_a_changed_line_costs_its_own_tokens_and_usage_says_so(tmp_path: Path) -> None:
    with served(tmp_path, moves=True, promise={"max_kl": 5.0}) as server:
        ask(server, f"At 10:41. {RULES}", OTHER, "One?")
        made = ask(server, f"At 10:57. {RULES}", OTHER, "One?")
        usage, report = made["usage"], made["prompt_cache"]
        details = usage["prompt_tokens_details"]
        assert details["cached_tokens"] > 0.95 * usage["prompt_tokens"]
        assert 0 < details["approximate_tokens"] <= details["cached_tokens"]
        assert report["approximate"] == details["approximate_tokens"]
        told = why(made)
        assert (told["reason"], told["lost"], told["suggestion"]) == ("changed", 0, "")
        assert "10:57" in told["now"]
        assert (
            f"{details['approximate_tokens']:,} were read as an earlier request computed them"
            in told["sentence"]
        )
        body: dict[str, Any] = {"model": "alias", "max_tokens": 1, "system": f"At 11:30. {RULES}"}
        body["messages"] = [{"role": "user", "content": "One?"}]
        told = server.http.post("/v1/messages", json=body).json()["usage"]
        assert told["approximate_input_tokens"] <= told["cache_read_input_tokens"]


@pytest.mark.parametrize("moves", [False, True])
def test_marked_prefixes_are_exact(tmp_path: Path, moves: bool) -> None:
    mark = {"prompt_cache_options": {"mode": "implicit"}}
    with served(tmp_path, moves=moves) as server:
        ask(server, f"At 10:41. {RULES}", OTHER, "One?", **mark)
        made = ask(server, f"At 10:57. {RULES}", OTHER, "One?", **mark)
        written = made["usage"]["prompt_tokens_details"]["cache_write_tokens"]
        (told,) = made["prompt_cache"]["marks"]
        if moves:
            assert (written, "another place" in told["reason"]) == (0, True)
        else:
            assert (written > 0, told["reason"]) == (True, "")
            assert "approximate_tokens" not in made["usage"]["prompt_tokens_details"]
