"""The measured part of the model card."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.card import BEGIN, CARD, END, RESULTS, figures, written


def result(name: str, score: float) -> dict[str, object]:
    cell = {
        "score": score,
        "score_low": score - 0.05,
        "score_high": score + 0.05,
        "first_token_agreement": 0.99,
        "kl_first_token": 0.001,
        "prompts": 60.0,
    }
    groups = {"by_documents": {"8": cell}, "by_position": {"first": cell}, "by_kind": {"stated": cell}}
    return {"name": name, "ratio": score / 0.8, "same_answer": 0.9, "computed_share": 0.05, **cell, **groups}


def suite() -> dict[str, object]:
    results = [result("uncached", 0.8), result("anchored", 0.78), result("anchored query:0.15", 0.8)]
    report = {"results": results, "prompts": 60}
    return {"worlds": dict.fromkeys(("documents", "travel", "learning", "code"), report)}


def test_figures_stand_between_the_marks_and_nothing_else_changes() -> None:
    text = figures(suite(), {"travel sample: names the picked destination": 0.97})
    card = written(f"before\n{BEGIN}\nold\n{END}\nafter\n", text)
    assert card.startswith("before\n")
    assert card.endswith("after\n")
    assert "old" not in card
    assert "| uncached, exact answer | 0.90 | 0.80 (0.75 to 0.85) |" in card
    assert "| anchored ÷ uncached | 0.98 | 0.975 |" in card
    assert "1.000 (`anchored query:0.15`)" in card
    assert "| answer in the first third | 60 | 0.80 (0.75 to 0.85) | 0.78 |" in card
    assert "| travel sample: names the picked destination | 97% |" in card


def test_a_card_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        written("no marks", "text")


@pytest.mark.parametrize("path", [CARD, RESULTS])
def test_the_documents_have_their_marks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
