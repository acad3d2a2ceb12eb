"""Writes the measured figures into the card of the demo model.

    python -m benchmarks quality --suite demo --json > suite.json
    python -m training.evaluate assets/demo_model --out samples.json
    python -m training.card suite.json samples.json

Replaces the text between the marks of `assets/demo_model/README.md`. Without `samples.json` the figures of
the gallery stay unchanged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.base.markdown import head, row, written

ROOT = Path(__file__).parents[1]
CARD = ROOT / "assets" / "demo_model" / "README.md"
SUITE, GALLERY = "figures", "gallery"
WORLDS = {
    "documents": "questions to documents (exact answer)",
    "travel": "trip plans (place, days and every trait)",
    "learning": "learning plans (subject and every trait)",
    "code": "questions to source files (exact answer)",
}
GOAL_REPAIRS = ("blend:0.15", "query:0.15")  # named before measuring: none is picked by what came out
Report = dict[str, Any]


def scored(cell: Report) -> str:
    """A score with its interval."""
    return f"{cell['score']:.2f} ({cell['score_low']:.2f} to {cell['score_high']:.2f})"


def ratio(cell: Report) -> str:
    """The score ÷ the uncached one, with its interval in pairs."""
    pair = cell["paired"]
    if pair["ratio"] is None:
        return "–"
    return f"{pair['ratio']:.3f} ({pair['ratio_low']:.3f} to {pair['ratio_high']:.3f})"


def worlds_table(worlds: dict[str, Report]) -> list[str]:
    """Scores of every way to answer, by world."""
    names = [result["name"] for result in worlds["documents"]["results"]]
    lines = head("", *(f"{world}, {worlds[world]['prompts']}" for world in worlds))
    for name in names:
        found = [next(r for r in worlds[w]["results"] if r["name"] == name) for w in worlds]
        lines.append(row(name, *(scored(result) for result in found)))
    return lines


def reuse_table(title: str, results: list[Report]) -> list[str]:
    """What reuse does to the tokens of answers."""
    names = ("KL per token, nats", "worst token", "tokens agree", "a token flips", "same answer", "computed")
    lines = head(title, *names)
    for result in results:
        lines.append(
            row(
                result["name"],
                f"{result['kl_answer']:.2g}",
                f"{result['kl_worst']:.2g}",
                f"{result['answer_agreement']:.2%}",
                f"{result['flipped']:.1%}",
                f"{result['same_answer']:.1%}",
                f"{result['computed_share']:.1%}",
            )
        )
    return lines


def goals_table(worlds: dict[str, Report]) -> list[str]:
    """What was aimed at, and what came out."""
    names = {world: {r["name"]: r for r in report["results"]} for world, report in worlds.items()}
    eight = {name: result["by_documents"]["8"] for name, result in names["documents"].items()}
    anchored = eight["anchored"]
    lines = head("eight documents, and plans", "goal", "measured")
    lines.append(row("uncached, exact answer", "0.90", scored(eight["uncached"])))
    lines.append(row("anchored ÷ uncached", "0.98", ratio(anchored)))
    for repair in GOAL_REPAIRS:
        lines.append(row(f"anchored {repair} ÷ uncached", "0.995", ratio(eight[f"anchored {repair}"])))
    lines.append(row("KL per answer token, anchored, nats", "0.05", f"{anchored['kl_answer']:.2g}"))
    lines.append(
        row("KL of the worst answer token, anchored, nats", "none set", f"{anchored['kl_worst']:.2g}")
    )
    for world in ("travel", "learning"):
        cells = [f"{names[world][name]['score']:.2f}" for name in ("uncached", "anchored")]
        lines.append(row(f"{world} plans, uncached and anchored", "0.95 both", " and ".join(cells)))
    return lines


def samples_table(figures: dict[str, float]) -> str:
    """What the gallery's samples give."""
    return "\n".join([*head("gallery", "share"), *(row(n, f"{value:.0%}") for n, value in figures.items())])


def figures(suite: Report) -> str:
    """What the suite gave."""
    worlds, together = suite["files"], suite["all"]
    parts = [
        [f"- {world}: {what}" for world, what in WORLDS.items()],
        goals_table(worlds),
        worlds_table(worlds),
        reuse_table(f"all {together[0]['prompts']} prompts", together),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def main(arguments: list[str]) -> None:
    """Writes the card from the files of figures."""
    suite, *samples = (json.loads(Path(path).read_text(encoding="utf-8")) for path in arguments)
    text = written(CARD.read_text(encoding="utf-8"), SUITE, figures(suite))
    if samples:
        text = written(text, GALLERY, samples_table(samples[0]))
    CARD.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
