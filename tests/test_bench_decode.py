"""`pml bench decode`: what is timed, on which sides. No times."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import decode
from engine.base.errors import PromptCacheError
from tests.engine.tiny import save_tiny


def test_a_report_has_both_sides_and_their_ratio(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    report = decode.run(str(folder), cached=60, modules=4, steps=3, repeats=2)
    assert [(one["name"], one["weights"]) for one in report["results"]] == [
        ("step_plain", "plain"),
        ("step_packed", "packed"),
    ]
    assert all(len(one["samples_ms"]) == 2 for one in report["results"])
    assert set(report["ratios"]) == {"step_plain/step_packed"}
    assert report["results"][0]["params"]["cached"] == 60
    rounded = decode.run(str(folder), cached=60, steps=3, repeats=1, sides=("plain",), quantize="int4")
    assert [one["weights"] for one in rounded["results"]] == ["plain", "int4"]
    assert {one["params"]["dtype"] for one in rounded["results"]} == {"bf16"}, (
        "two things at once are no comparison"
    )
    assert set(rounded["ratios"]) == {"step_plain/step_int4"}
    with pytest.raises(PromptCacheError, match="do not fit"):
        decode.run(str(folder), cached=10**6)
    with pytest.raises(PromptCacheError, match="--steps"):
        decode.run(str(folder), steps=1)
