"""The measured part of the model card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.base.markdown import between, written
from benchmarks.quality.figures import figures as summed
from benchmarks.quality.figures import grouped, pooled
from training import card
from training.card import CARD, GALLERY, SUITE, figures

NAMES = ("uncached", "anchored", "anchored blend:0.15", "anchored query:0.15")


def samples(lost: int) -> list[dict[str, object]]:
    """Sixty questions, 48 of them right but for the first few."""
    return [
        {
            "task": str(n),
            "documents": 8,
            "kind": "stated",
            "position": 0.0,
            "chosen_on": n % 2 == 0,
            "score": float(lost <= n < 48),
            "answer_tokens": 10,
            "kl_answer": 0.002 * lost,
            "kl_worst": 0.5 * lost,
            "flips": int(n < lost),
            "same_answer": n >= lost,
            "first_token_agrees": True,
            "kl_first_token": 0.0,
            "computed_share": 0.05,
            "repaired_share": 0.0,
            "ttft_ms": 9.0,
        }
        for n in range(60)
    ]


def suite() -> dict[str, object]:
    plain = samples(0)
    results = []
    for name, lost in zip(NAMES, (0, 3, 0, 1), strict=True):
        found = samples(lost)
        results.append({"name": name, **summed(found, plain), **grouped(found, plain), "samples": found})
    report = {"results": results, "prompts": 60}
    worlds = dict.fromkeys(("documents", "travel", "learning", "code"), report)
    return {"files": worlds, "all": pooled(list(worlds.values()))}


def test_figures_say_what_the_samples_give() -> None:
    text = figures(suite())
    assert "| uncached, exact answer | 0.90 | 0.80 (0.70 to 0.90) |" in text
    assert "| anchored ÷ uncached | 0.98 | 0.938 (" in text
    assert "| anchored blend:0.15 ÷ uncached | 0.995 | 1.000 (1.000 to 1.000) |" in text
    assert "| anchored query:0.15 ÷ uncached | 0.995 | 0.979 (" in text  # no repair is picked by its score
    assert "| KL per answer token, anchored, nats | 0.05 | 0.006 |" in text
    assert "first token" not in text
    assert "| anchored | 0.006 | 1.5 | 99.50% | 5.0% | 95.0% | 5.0% |" in text


def test_figures_stand_between_their_marks_and_nothing_else_changes() -> None:
    document = "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n"
    done = written(document, SUITE, "new")
    assert done == "before\n<!-- figures -->\n\nnew\n\n<!-- end of figures -->\nafter\n"
    assert between(done, SUITE) == "new"
    with pytest.raises(ValueError, match="needs the marks"):
        written("no marks", SUITE, "text")


@pytest.mark.long
def test_the_card_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of the gallery only if they are given."""
    copy = tmp_path / "README.md"
    copy.write_text(CARD.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(card, "CARD", copy)
    measured = tmp_path / "suite.json"
    measured.write_text(json.dumps(suite()))
    before = between(copy.read_text(encoding="utf-8"), GALLERY)
    card.main([str(measured)])
    assert before
    assert between(copy.read_text(encoding="utf-8"), GALLERY) == before
    shares = tmp_path / "samples.json"
    shares.write_text(json.dumps({"travel sample: names the picked destination": 0.97}))
    card.main([str(measured), str(shares)])
    text = copy.read_text(encoding="utf-8")
    assert "| travel sample: names the picked destination | 97% |" in text
    assert between(text, SUITE) == figures(suite())


def test_the_card_has_its_marks() -> None:
    text = CARD.read_text(encoding="utf-8")
    assert text.count("<!-- figures -->") == text.count("<!-- end of figures -->") == 1
