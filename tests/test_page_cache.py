"""Files in the page cache: what is said of them is what the system did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import page_cache

SHARED_MEMORY = Path("/dev/shm")


def test_what_was_just_written_is_held_and_nothing_is_of_no_files(tmp_path: Path) -> None:
    if not page_cache.can_drop():
        pytest.skip("this system does not say what its page cache holds")
    file = tmp_path / "file"
    file.write_bytes(os.urandom(300_000))
    assert page_cache.held([file]) == 1
    page_cache.drop([file])
    assert 0 <= page_cache.held([file]) <= 1
    assert page_cache.held([]) == 0


@pytest.mark.skipif(not os.access(SHARED_MEMORY, os.W_OK), reason="no folder is in memory here")
def test_a_file_in_memory_stays_there() -> None:
    file = SHARED_MEMORY / f"pml-test-{os.getpid()}"
    try:
        file.write_bytes(os.urandom(300_000))
        page_cache.drop([file])
        assert page_cache.held([file]) == 1
    finally:
        file.unlink()
