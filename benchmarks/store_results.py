"""Tables of RESULTS.md from the report of `pml bench store --json`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import head, row

Report = dict[str, Any]


def store(report: Report) -> str:
    """The tables of the trials."""
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
            "kills of a writer: correct afterwards",
            f"{kills['right']} of {kills['kills']}",
            "all",
        ),
        row("step of the killed writers", died, ""),
        row("kills that left an unfinished file", kills["half_written"], ""),
        row(
            f"{damages['damages']:,} damaged files: wrong answers; detected; repaired",
            f"{damages['served_wrong']}; {damages['noticed']:,}; {damages['mended']:,}",
            "0; all; all",
        ),
        row(
            f"four processes for {processes['seconds']} s: errors; index and files agree",
            f"{processes['failed']}; {'yes' if processes['clean'] else 'no'}",
            "0; yes",
        ),
        *_full_disk(found.get("full disk", {"tried": 0})),
        row("`verify`", f"{verify['seconds_per_gb']:.2f} s per GB", ""),
        row("bytes in files ÷ bytes of keys and values", f"{verify['bytes_by_theory']:.3f}", "1.01"),
        row(
            "computing under policy `cost` ÷ `lru`, random trace",
            f"{found['trace']['cost_by_lru']:.2f}",
            "",
        ),
    ]
    return "\n\n".join(["\n".join(lines), compression(report)])


def _full_disk(found: Report) -> list[str]:
    if not found["tried"]:
        return []
    what = "full disk at encoding, opening, pruning: correct answers; clean"
    return [
        row(what, f"{found['answers']} of {found['tried']}; {'yes' if found['clean'] else 'no'}", "all; yes")
    ]


def compression(report: Report) -> str:
    """The table of compression."""
    names = ("bytes ÷ bf16", "KL", "worst KL", "same token")
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
