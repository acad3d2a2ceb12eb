"""Tests touch neither the network nor the caches and settings of the person who runs them."""

from __future__ import annotations

import os
import tempfile

import pytest

_HOME = tempfile.TemporaryDirectory(prefix="pml-tests-")

for _name in [
    name
    for name in os.environ
    if name.startswith("PML_") and name not in ("PML_REQUIRE_BROWSER", "PML_CHROMIUM")
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


def pytest_unconfigure(config: pytest.Config) -> None:
    _HOME.cleanup()
