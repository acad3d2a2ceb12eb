"""`pml bench guesses`: both sides give one text, and the passes are counted. No times."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import guesses
from engine.base.errors import PromptCacheError
from tests.engine.tiny import save_tiny


def test_a_report_has_the_passes_of_both_sides(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    schema, prompt = tmp_path / "s.pml", tmp_path / "s.prompt.1.pml"
    schema.write_text('<schema name="s"><module name="a">alpha beta alpha beta</module></schema>', "utf-8")
    prompt.write_text('<prompt schema="s"><a/><user>alpha beta?</user></prompt>', "utf-8")
    report = guesses.run(str(folder), [prompt], schema, tokens=30, repeats=1)
    (one,) = report["results"]
    assert one["same_text"]
    assert one["passes"]["off"] == one["tokens"] - 1
    assert one["passes"]["on"] <= one["passes"]["off"] - one["accepted"] + one["repeated"]
    assert 0 < one["accepted"] <= one["drafted"]
    with pytest.raises(PromptCacheError, match="--repeats"):
        guesses.run(str(folder), [prompt], schema, repeats=0)
