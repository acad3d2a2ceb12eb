"""Writes the measured figures into the demo model's card and into the benchmarks' results.

    pml bench quality --suite demo --json > suite.json
    python -m training.evaluate assets/demo_model --out samples.json
    python -m training.card suite.json samples.json

What stands between the two marks of `assets/demo_model/README.md` and `benchmarks/RESULTS.md` is replaced.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CARD, RESULTS = ROOT / "assets" / "demo_model" / "README.md", ROOT / "benchmarks" / "RESULTS.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
WORLDS = {
    "documents": "questions to documents (exact answer)",
    "travel": "trip plans (place, days and every trait)",
    "learning": "learning plans (subject and every trait)",
    "code": "questions to source files (exact answer)",
}
Report = dict[str, Any]


def row(*cells: object) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(str(c) for c in cells)} |"


def head(*cells: str) -> list[str]:
    """The head of a Markdown table."""
    return [row(*cells), f"|{'---|' * len(cells)}"]


def scored(cell: Report) -> str:
    """A score with its interval."""
    return f"{cell['score']:.2f} ({cell['score_low']:.2f} to {cell['score_high']:.2f})"


def worlds_table(worlds: dict[str, Report]) -> list[str]:
    """Scores of every way to answer, by world."""
    names = [result["name"] for result in worlds["documents"]["results"]]
    lines = head("", *(f"{world}, {worlds[world]['prompts']}" for world in worlds))
    for name in names:
        found = [next(r for r in worlds[w]["results"] if r["name"] == name) for w in worlds]
        lines.append(row(name, *(scored(result) for result in found)))
    return lines


def reuse_table(report: Report) -> list[str]:
    """What reuse does to the answers of document questions."""
    lines = head("documents", "score ÷ uncached", "first token agrees", "KL, nats", "same answer", "computed")
    for result in report["results"]:
        lines.append(
            row(
                result["name"],
                f"{result['ratio']:.3f}",
                f"{result['first_token_agreement']:.3f}",
                f"{result['kl_first_token']:.2g}",
                f"{result['same_answer']:.2f}",
                f"{result['computed_share']:.1%}",
            )
        )
    return lines


def groups_table(report: Report) -> list[str]:
    """Document questions by how many documents, by where the answer stands, by kind."""
    results = {result["name"]: result for result in report["results"]}
    lines = head("documents", "questions", "uncached", "anchored")
    titles = {"by_documents": "{} in the prompt", "by_position": "answer in the {} third", "by_kind": "{}"}
    for group, title in titles.items():
        for key, cell in results["uncached"][group].items():
            anchored = results["anchored"][group][key]
            lines.append(
                row(title.format(key), f"{cell['prompts']:.0f}", scored(cell), f"{anchored['score']:.2f}")
            )
    return lines


def goals_table(worlds: dict[str, Report]) -> list[str]:
    """What was aimed at, and what came out."""
    names = {world: {r["name"]: r for r in report["results"]} for world, report in worlds.items()}
    documents = names["documents"]
    eight = {name: result["by_documents"]["8"] for name, result in documents.items()}
    uncached, anchored = eight["uncached"], eight["anchored"]
    repairs = {n: r for n, r in eight.items() if n.startswith("anchored ") and not n.endswith("link:8")}
    best = max(repairs, key=lambda name: (repairs[name]["score"], -repairs[name]["kl_first_token"]))
    lines = head("eight documents, and plans", "goal", "measured")
    lines.append(row("uncached, exact answer", "0.90", scored(uncached)))
    lines.append(row("anchored ÷ uncached", "0.98", f"{anchored['score'] / uncached['score']:.3f}"))
    lines.append(row("first token agrees, anchored", "0.97", f"{anchored['first_token_agreement']:.3f}"))
    lines.append(row("KL of the first token, anchored", "0.05", f"{anchored['kl_first_token']:.2g}"))
    mended = f"{repairs[best]['score'] / uncached['score']:.3f} (`{best}`)"
    lines.append(row("with a repair of at most 15% ÷ uncached", "0.995", mended))
    for world in ("travel", "learning"):
        cells = [f"{names[world][name]['score']:.2f}" for name in ("uncached", "anchored")]
        lines.append(row(f"{world} plans, uncached and anchored", "0.95 both", " and ".join(cells)))
    return lines


def samples_table(figures: dict[str, float]) -> list[str]:
    """What the gallery's samples give."""
    return [*head("gallery", "share"), *(row(name, f"{value:.0%}") for name, value in figures.items())]


def figures(suite: Report, samples: dict[str, float]) -> str:
    """The part that is measured; that of the gallery only where `samples` has figures."""
    worlds = suite["worlds"]
    parts = [
        [f"- {world}: {what}" for world, what in WORLDS.items()],
        goals_table(worlds),
        worlds_table(worlds),
        reuse_table(worlds["documents"]),
        groups_table(worlds["documents"]),
        samples_table(samples) if samples else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def written(card: str, text: str) -> str:
    """The document with `text` between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = card.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document needs the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


if __name__ == "__main__":
    suite_path, samples_path = Path(sys.argv[1]), Path(sys.argv[2])
    suite, samples = (json.loads(path.read_text(encoding="utf-8")) for path in (suite_path, samples_path))
    for path, text in ((CARD, figures(suite, samples)), (RESULTS, figures(suite, {}))):
        path.write_text(written(path.read_text(encoding="utf-8"), text), encoding="utf-8")
