"""`python -m benchmarks.rounding`: every side answers the same prompts, and only the weights differ."""

from __future__ import annotations

from pathlib import Path

from benchmarks import rounding
from benchmarks.tasks import read_tasks
from tests.engine.tiny import save_tiny


def test_each_side_is_compared_with_the_first(tmp_path: Path) -> None:
    folder, texts = save_tiny(tmp_path / "model"), tmp_path / "texts"
    texts.mkdir()
    (texts / "s.pml").write_text('<schema name="s"><module name="a">first</module></schema>')
    (texts / "s.prompt.1.pml").write_text('<prompt schema="s"><a/>and what?</prompt>')
    report = rounding.run(str(folder), read_tasks(texts))
    fp32, bf16, int8, int4 = report["results"]
    assert [one["name"] for one in report["results"]] == ["fp32", "bf16", "int8", "int4"]
    assert (fp32["kl_answer"], fp32["flips"], fp32["same_answer"]) == (0, 0, 1)
    assert 0 < bf16["kl_answer"] < int4["kl_answer"]
    assert fp32["weight_bytes"] > bf16["weight_bytes"] > int8["weight_bytes"] > int4["weight_bytes"]
    assert fp32["score"] is None
    assert report["prompts"] == 1
