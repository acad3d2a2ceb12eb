"""`pml bench first`: every sample begins with an empty store, and no way does another one's work."""

from __future__ import annotations

from pathlib import Path

from benchmarks import first
from benchmarks.answers import sources
from engine.model.loading import load
from tests.engine.tiny import save_tiny


def test_every_way_begins_with_nothing_and_the_cached_ones_store_all(tmp_path: Path) -> None:
    model = load(str(save_tiny(tmp_path / "model")))
    runs = first.FirstRuns(model, *sources(model, 64, 4, 8, seed=0))
    for _ in range(2):
        uncached, cached = runs.ask("uncached"), runs.ask("cached", sync=True)
        assert (uncached["segments"], cached["segments"]) == (0, 5), "what begins every prompt is one"
        assert uncached["tokens"]["from_cache"] == 0
        assert cached["tokens"]["encoded"] == cached["tokens"]["from_cache"] >= 64
        assert cached["written_ms"] >= cached["ttft_ms"]


def test_the_report_has_every_sample(tmp_path: Path) -> None:
    schema = '<schema name="s"><module name="m">alpha</module></schema>'
    documents = (schema, '<prompt schema="s"><m/>go</prompt>')
    report = first.run(str(save_tiny(tmp_path / "model")), documents=documents, repeats=2)
    names = {result["name"] for result in report["results"]}
    assert names == {"uncached", "first", "first_sync", "first_written"}
    assert {len(result["samples_ms"]) for result in report["results"]} == {2}
    assert set(report["ratios"]) == {f"{name}/uncached" for name in first.RATIOS}
    assert report["segments"] == 2
