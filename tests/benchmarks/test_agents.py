"""The recorded runs of agents, cut short: what earlier requests and answers have is read. No times."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

Run = Callable[..., SimpleNamespace]


def test_agents_read_their_conversations_to_the_end(run_bench: Run) -> None:
    done = run_bench("agents", "--turns", "3", "--model", "demo", "--json")
    assert done.status == 0, done.err
    groups = {group["name"]: group["values"] for group in json.loads(done.out)["groups"]}
    assert {name.split(",")[0] for name in groups} == {"coding", "rag"}
    for name, values in groups.items():
        assert values["requests"] == 3
        if name.endswith("stays"):
            assert values["read, of the tokens of earlier requests and answers"] > 0.99, name
