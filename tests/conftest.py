"""Tests touch neither the network nor the caches and settings of the person who runs them."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.drawing import EVERY

_HOME = tempfile.TemporaryDirectory(prefix="pml-tests-")

for _name in [
    name
    for name in os.environ
    if name.startswith("PML_")
    and name
    not in ("PML_REQUIRE_BROWSER", "PML_CHROMIUM", "PML_FIXED_DRAWS", "PML_DRAWN_REQUESTS", "PML_ALL_TESTS")
]:
    del os.environ[_name]
os.environ |= {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # tiny models: more threads only wait for each other
    "TOKENIZERS_PARALLELISM": "false",
    "XDG_CACHE_HOME": f"{_HOME.name}/cache",
    "XDG_DATA_HOME": f"{_HOME.name}/data",
}

# A developer's run draws anew each time and finds what nobody thought of; a landing must not depend on luck.
# No test asserts times, so a draw may take as long as the machine needs.
settings.register_profile("studio", derandomize=os.environ.get("PML_FIXED_DRAWS") == "1", deadline=None)
settings.load_profile("studio")
if os.environ.get("PML_FIXED_DRAWS") == "1":
    # Draws take constants from what is imported, which is what other tests of the process happened to import.
    providers.is_local_module_file = lambda path: False

_LONGEST = {
    "browser",
    "test_docs_followed",
    "test_hard_use",
    "test_switching",
    "test_handover",
    "test_lean",
    "test_quality",
    "test_bench_store",
    "test_exactness",
    "test_suite",
}


# One model family of each kind: grouped heads, scaled rotation, a window, half of a head rotated, layers
# without rotation, a soft cap, sinks, learned positions, ALiBi, attention code of its own.
REPRESENTATIVE = {
    *("llama-gqa", "yarn", "mistral-swa", "glm", "smollm3", "gemma2", "gpt-oss", "gpt2", "bloom", "gptj"),
}


# Chat templates of each kind: with and without a system turn, tools, thoughts, trimmed texts, joined turns.
TEMPLATES = {
    *("chatml", "llama-2", "llama-3", "mistral-tekken", "gemma-3", "phi-3", "qwen-3", "deepseek-r1"),
    *("falcon", "gpt-oss", "smollm-2", "command-r"),
}


def is_left_out(item: pytest.Item) -> bool:
    """Whether only `make test-all` runs a test: a long one, or one of a further model family or template."""
    if EVERY:
        return False
    if item.get_closest_marker("long"):
        return True
    tiny = sys.modules.get("tests.engine.tiny")
    chat = sys.modules.get("tests.engine.prompt.chat_templates")
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    named = {value for name in ("family", "name") if isinstance(value := params.get(name), str)}
    families = set(tiny.FAMILIES) - REPRESENTATIVE if tiny and "family" in params else set()
    templates = set(chat.FAMILIES) - TEMPLATES if chat and "engine/prompt" in item.path.as_posix() else set()
    return bool(named & (families | templates))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only `make test-all` runs; the longest tests begin first."""
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]
    items.sort(key=lambda item: not {item.path.stem, item.path.parent.name} & _LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """The collector passes by what the tests and their libraries are made of: a seventh of a run's time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def loop_runs() -> bool:
    """Whether this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """An event loop of one folder's tests is over before another folder's begin, which may run their own."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        assert not loop_runs(), (
            f"An event loop still runs after {item.nodeid}, the last test of its folder. "
            "End the fixture that began it with the folder (scope='package')."
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    _HOME.cleanup()
