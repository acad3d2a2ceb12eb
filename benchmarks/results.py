"""Writes measured times into `README.md` and `benchmarks/RESULTS.md`, and figures of the store there.

    pml bench ttft --model random:tinyllama-1.1b --dtype bf16 --cached 4096 --new 32 --json > large.json
    pml bench ttft --model random:llama-100m --cached 4096 --new 32 --json > small.json
    pml bench store --json > store.json
    python -m benchmarks.results large.json small.json store.json

What stands between the marks `times` and `store` is replaced, `store` only if its file is given. Every ratio
is of one run and stands once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.markdown import head, row, written

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md"
TIMES, STORE = "times", "store"
GOALS = {  # 1.1B, 0.1B
    "tokens_uncached/tokens_cached": ("110", "80"),
    "tokens_cached/tokens_floor": ("1.3", "1.5"),
    "tokens_copy/tokens_cached": ("", "1.2"),
    "files_later/cached": ("1.05", "1.2"),
    "files_cold/cached": ("1.15", "2"),
}
SHOWN = {  # in README
    "uncached": "nothing cached",
    "cached": "segments in memory",
    "files_later": "segments read from their files",
    "files_first": "the same, first load of a process (digests are checked)",
    "tokens_uncached": "from token ids: nothing cached",
    "tokens_cached": "from token ids: segments in memory, read in place",
    "tokens_copy": "from token ids: copied into one buffer first, the paper's method",
    "tokens_floor": "from token ids: the new tokens alone",
}
Report = dict[str, Any]


def time_of(report: Report, name: str) -> str:
    """A median in words."""
    ms = medians(report)[name]
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


def medians(report: Report) -> dict[str, float]:
    """Milliseconds by row."""
    return {result["name"]: result["median_ms"] for result in report["results"]}


def place(report: Report) -> str:
    """Where it was measured, and over how many tokens."""
    counts, machine = report["tokens"], report["machine"]
    cores = f"{machine['cores']} cores, {machine['threads']} threads, {machine['device']}"
    repeats = len(report["results"][0]["samples_ms"])
    new = counts["prompt"] - counts["from_cache"]
    return (
        f"{machine['processor']}, {cores}, torch {machine['torch']}, Python {machine['python']}; "
        f"{counts['from_cache']:,} tokens from the cache and {new} new ones; median of {repeats}"
    )


def readme(large: Report, small: Report) -> str:
    """The table of the README."""
    lines = head("time to first token", "1.1B parameters, bf16", "0.1B parameters, fp32")
    for name, words in SHOWN.items():
        cells = []
        for report in (large, small):
            base = "tokens_uncached" if name.startswith("tokens_") else "uncached"
            faster = medians(report)[base] / medians(report)[name]
            cells.append(time_of(report, name) + (f" (÷ {faster:.0f})" if faster > 1.5 else ""))
        lines.append(row(words, *cells))
    return "\n".join([f"{place(large)}; ÷ says how many times as fast as with nothing cached:", "", *lines])


def times(large: Report, small: Report) -> str:
    """Every row, every ratio once, every sample."""
    rows = head("", "1.1B, bf16, GQA 32/4", "0.1B, fp32, MHA 12")
    rows += [row(f"`{name}`", time_of(large, name), time_of(small, name)) for name in medians(large)]
    ratios = head("ratio, least to greatest of a round", "1.1B", "goal", "0.1B", "goal")
    for name in large["ratios"]:
        cells: list[str] = []
        for report, goal in zip((large, small), GOALS.get(name, ("", "")), strict=True):
            cells += ["{ratio:.2f} ({low:.2f} to {high:.2f})".format(**report["ratios"][name]), goal]
        ratios.append(row(name.replace("/", " ÷ "), *cells))
    samples = [
        f"- {size}, `{result['name']}`: {', '.join(f'{ms:.0f}' for ms in result['samples_ms'])}"
        for size, report in (("1.1B", large), ("0.1B", small))
        for result in report["results"]
    ]
    parts = [f"{place(large)}.", "\n".join(rows), "\n".join(ratios), "Milliseconds:", "\n".join(samples)]
    return "\n\n".join(parts)


def store(report: Report) -> str:
    """The trials of the store."""
    found = {result["name"]: result for result in report["results"]}
    kills, damages = found["kills"], found["damages"]
    processes, verify = found["processes"], found["verify"]
    lines = head("trial", "result", "goal")
    died = (
        "writing a file {killed_writing_a_file}, entering a row {killed_entering_a_row}, removing "
        "{killed_removing}, reading {killed_reading}, between {killed_between}, opening {killed_opening}"
    ).format(**kills)
    lines += [
        row(
            "a writer is killed: index and files agree, nothing wrong is served",
            f"{kills['right']} of {kills['kills']}",
            "all",
        ),
        row("where the killed writers were", died, ""),
        row("kills after which an unfinished file lay there", kills["half_written"], ""),
        row(
            f"{damages['damages']:,} damaged files: served wrong; noticed; mended",
            f"{damages['served_wrong']}; {damages['noticed']:,}; {damages['mended']:,}",
            "0; all; all",
        ),
        row(
            f"four processes on one store for {processes['seconds']} s: failures; index and files agree",
            f"{processes['failed']}; {'yes' if processes['clean'] else 'no'}",
            "0; yes",
        ),
        *_full_disk(found.get("full disk", {"tried": 0})),
        row("`verify`", f"{verify['seconds_per_gb']:.2f} s per GB", ""),
        row("bytes in files ÷ of keys and values", f"{verify['bytes_by_theory']:.3f}", "1.02"),
        row(
            "computing that `cost` causes ÷ what `lru` causes, drawn trace",
            f"{found['trace']['cost_by_lru']:.2f}",
            "",
        ),
    ]
    return "\n\n".join(["\n".join(lines), compression(report)])


def _full_disk(found: Report) -> list[str]:
    if not found["tried"]:
        return []
    what = "a disk without a free block, while encoding, at opening, at pruning: right answers; clean"
    return [
        row(what, f"{found['answers']} of {found['tried']}; {'yes' if found['clean'] else 'no'}", "all; yes")
    ]


def compression(report: Report) -> str:
    """What fewer bits save and change."""
    names = ("bytes ÷ bf16", "KL per answer token, nats", "worst token", "likeliest token the same")
    lines = head("", *names, "same answer", "TTFT from disk ÷ plain")
    for result in report["results"]:
        name = result["name"].removeprefix("compression ")
        if name in ("int8", "int4"):
            lines.append(
                row(
                    f"`{name}`",
                    f"{result['bytes_by_bf16']:.3f}",
                    f"{result['kl_answer']:.2g}",
                    f"{result['kl_worst']:.2g}",
                    f"{result['answer_agreement']:.2%}",
                    f"{result['same_answer']:.1%}",
                    f"{result['ttft_from_disk_by_plain']:.2f}",
                )
            )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Writes both documents from the files of figures."""
    large, small, *others = (json.loads(Path(path).read_text(encoding="utf-8")) for path in arguments)
    results = written(RESULTS.read_text(encoding="utf-8"), TIMES, times(large, small))
    if others:
        results = written(results, STORE, store(others[0]))
    RESULTS.write_text(results, encoding="utf-8")
    README.write_text(
        written(README.read_text(encoding="utf-8"), TIMES, readme(large, small)), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
