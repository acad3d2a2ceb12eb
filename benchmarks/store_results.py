"""The trials of the store, from the report of `pml bench store --json`, as tables of RESULTS.md."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import head, row

Report = dict[str, Any]


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
        row("bytes in files ÷ of keys and values", f"{verify['bytes_by_theory']:.3f}", "1.01"),
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
