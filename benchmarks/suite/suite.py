"""All figures with goals, part after part. Each part has a file of its own."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import click
import xxhash

from app.cli.base.options import debug_option, json_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Name, UserPath
from app.studio.sweeps.crowd import Size as Asked
from app.studio.sweeps.machine import facts
from benchmarks.base.case import Case, Pace, Report, Say, Size
from benchmarks.speed import attention, batch, decode, editor, first, modules, store, ttft
from benchmarks.suite.goals import LABELS, Reports, rows
from engine.base.errors import PromptCacheError
from engine.files.atomic import writing

ROOT = Path(__file__).parents[2]
ROOMS = ("app", "benchmarks", "engine", "sample_schemas")  # their code decides the figures
QUIET = 0.1  # share of the processor for other programs
NOT_YET = {"T12": "a GPU and a 7B model", "T15": "a run of `python -m benchmarks serve`"}
_COUNTS = (1, 2, 4, 8, 16, 32)  # prompts at once
_WATCHED_SECONDS = 0.5


@dataclass(frozen=True)
class Scale:
    """The amount of work."""

    name: str
    large: Size
    small: tuple[Size, Size]
    pace: Pace
    few: int = 3  # samples of long sides
    lengths: tuple[int, ...] = (256, 1024)  # cached tokens
    module_counts: tuple[int, ...] = (1, 4, 8, 16, 64, 256)
    answered: int = 64  # tokens of a timed answer
    decoded: int = 512  # cached tokens before it, for the large model
    quoting: int | None = None  # prompts with quoting answers; None for all
    edited: tuple[int, int] = (1024, 16)  # tokens and modules of an edited schema
    many: tuple[int, int] = (4096, 50)  # tokens and modules of a prompt
    readers: tuple[int, int] = (32, 4096)  # prompts and tokens of the attention
    crowd: Asked = field(default_factory=Asked)
    arrivals: batch.Rates = field(default_factory=batch.Rates)
    arriving_tokens: int = 32
    parses: int = 100
    keys: int = 60  # 0 for no browser
    starts: int = 5
    with_studio: bool = True


_MODELS = (("random:tinyllama-1.1b", "bf16"), ("random:llama-100m", "fp32"), ("random:llama-100m", "bf16"))
_LARGE, *_SMALL = (
    Size(label, model, dtype, peers=True) for label, (model, dtype) in zip(LABELS, _MODELS, strict=True)
)
FULL = Scale("full", _LARGE, (_SMALL[0], _SMALL[1]), Pace(7, (5, 3)))
TINY = Scale(
    "tiny",
    *(
        Size(LABELS[0], "demo", "fp32", 64, 4, 8),
        (Size(LABELS[1], "demo", "fp32", 64, 4, 8), Size(LABELS[2], "demo", "bf16", 64, 4, 8)),
        Pace(1, (1, 1)),
    ),
    few=1,
    lengths=(16,),
    module_counts=(1, 8, 64),
    answered=4,
    decoded=32,
    quoting=1,
    edited=(64, 16),
    many=(64, 10),
    readers=(4, 64),
    crowd=Asked(64, 4, 8, 2),
    arrivals=batch.Rates(2, (1.0,)),
    arriving_tokens=4,
    parses=2,
    keys=0,
    starts=1,
    with_studio=False,
)
SCALES = {scale.name: scale for scale in (FULL, TINY)}


def _sizes(scale: Scale) -> tuple[Size, ...]:
    return (scale.large, *scale.small)


def _text(size: Size, name: str = "", without: Sequence[str] = ()) -> Case:
    names = ("uncached", "cached", "files_later")
    return ttft.text(name or size.label, size, names, peers=True, without=without)


def _lengths(scale: Scale) -> list[Case]:
    return [
        _text(size.of(count), f"{size.label}, {count:,} cached")
        for size in _sizes(scale)
        for count in scale.lengths
    ]


def _files(scale: Scale) -> list[Case]:
    names = ("cached", "files_later", "files_first", "files_cold")
    return [ttft.text(size.label, size, names) for size in _sizes(scale)]


def _tokens(scale: Scale, *names: str) -> list[Case]:
    return [ttft.tokens(size.label, size, names) for size in _sizes(scale)]


def _module_counts(scale: Scale) -> list[Case]:
    size, counts = scale.small[-1], scale.module_counts
    chosen = [count for count in counts if count in (1, 8, 64, max(counts))]
    return [
        modules.first_token("time to first token", size, counts),
        modules.per_token("time per token", size, chosen, scale.answered),
    ]


def _first_runs(scale: Scale) -> list[Case]:
    return [
        first.runs("travel sample", Size("", "demo", cached=64), first.TRAVEL),
        first.runs(scale.large.label, scale.large, names=("uncached", "first_written")),
    ]


def _crowds(scale: Scale) -> list[Case]:
    cases, few = attention.table(*scale.readers), scale.few
    for count in _COUNTS:
        kinds = {8: batch.KINDS, max(_COUNTS): batch.CHECKED}.get(count, ("batch",))
        name = f"{count} prompts at once" if count > 1 else "1 prompt"
        cases.append(batch.answers(name, scale.large, scale.crowd, count, kinds, rounds=few))
    return [*cases, batch.newcomer("a newcomer", scale.large, scale.crowd, rounds=few)]


def _arrivals(scale: Scale) -> list[Case]:
    asked = replace(scale.crowd, new=scale.arriving_tokens)
    return [batch.arriving("random arrivals", scale.small[-1], asked, scale.arrivals)]


def _decoding(scale: Scale) -> list[Case]:
    sizes = (scale.large.of(scale.decoded), scale.small[-1])
    how = {"prompts": scale.quoting, "quoted": scale.answered, "peers": scale.large.peers}
    return [
        *(decode.step(size.label, size, scale.answered) for size in sizes),
        *(decode.quoting(f"{size.label}, quoting", size, **how) for size in sizes),
        decode.quoting("bundled model, quoting", None, **how),
    ]


def _starts(scale: Scale) -> list[Case]:
    cases = [first.starts("from the shell", studio=scale.with_studio, rounds=scale.starts)]
    return (
        [*cases, first.served("with a studio running", rounds=scale.starts)] if scale.with_studio else cases
    )


@dataclass(frozen=True)
class Part:
    """A part of the suite: a name for `--only`, a heading, its measurements, and how to read the figures."""

    name: str
    title: str
    cases: Callable[[Scale], list[Case]]
    reading: str = ""


_T1 = "TTFT starts at the prompt text, for other software at token ids."
_T3 = "From token ids, against a forward pass of the new tokens alone."
_T4 = "From token ids, against a copy of all modules into one buffer."
_T11 = "Attention: one layer over 32 prompts. The time one by one is extrapolated from four prompts."
_RATE = "The highest rate at which a token takes at most twice its time alone; 0: below the measured rates."
_T13 = "Quoting answers repeat their documents. The large networks replay the bundled model's tokens."
_EDITS, _MANY = "0.1B fp32", "transformers:full"  # the latter takes a minute a run
PARTS = (
    Part("T1", "Time to first token, 1.1B", lambda scale: [_text(scale.large, without=(_MANY,))], _T1),
    Part("T2", "Time to first token, 0.1B", lambda scale: [_text(size) for size in scale.small]),
    Part("T3", "Against the floor", lambda scale: _tokens(scale, "cached", "floor"), _T3),
    Part("T4", "Against the paper's method", lambda scale: _tokens(scale, "cached", "copy"), _T4),
    Part("T5", "Segments from files", _files),
    Part("T6", "Number of modules", _module_counts),
    Part("T7", "Cost of an edit", lambda scale: [modules.edits(_EDITS, scale.small[0].of(*scale.edited))]),
    Part("T8", "First run", _first_runs),
    Part("T9", "Overhead", lambda scale: [modules.overhead(_EDITS, scale.small[0].of(*scale.many))]),
    Part(
        "T10",
        "Errors while typing",
        lambda scale: [editor.errors("2,000 lines", scale.parses, scale.keys)],
        "A key press includes a wait of 90 ms.",
    ),
    Part("T11", "Many prompts at once", _crowds, _T11),
    Part("arrivals", "Random arrivals", _arrivals, _RATE),
    Part("T13", "Decoding", _decoding, _T13),
    Part("T14", "Start of a process", _starts),
    Part(
        "M1",
        "Storage",
        lambda scale: [
            store.trial(size.label, partial(store.stored, size.of(min(size.cached, 1024))))
            for size in _sizes(scale)
        ],
    ),
    Part("lengths", "Number of cached tokens", _lengths),
)
BY_NAME = {part.name: part for part in PARTS}


def run(folder: Path, scale: Scale, only: Sequence[str], tell: Say, *, again: bool = False) -> Reports:
    """Measures missing parts."""
    folder.mkdir(parents=True, exist_ok=True)
    reports, here = {}, circumstances()
    for part in PARTS:
        if only and part.name not in only:
            continue
        path = folder / f"{part.name}.json"
        found = None if again else read(path)
        if found and found["scale"] == scale.name and "error" not in found:
            under = found.get("under", {})
            other = next((name for name, value in here.items() if under.get(name) != value), None)
            if other is None:
                tell(f"{part.name}: measured before ({path})")
                reports[part.name] = found
                continue
            tell(f"{part.name}: measured before with another {other}, so again")
        tell(f"{part.name}: {part.title}")
        report = measured(part, scale, tell)
        if "error" in report:
            tell(f"{part.name} failed: {report['error']}")
        write(path, report)
        reports[part.name] = report
    return reports


def circumstances() -> dict[str, str]:
    """The code, the machine and the other programs; a part with others is measured again."""
    from benchmarks.peers import all_peers

    code = xxhash.xxh3_128()
    for place in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        code.update(place.relative_to(ROOT).as_posix().encode() + b"\0" + place.read_bytes())
    machine = ", ".join(f"{name} {value}" for name, value in facts().items())
    peers = {peer.name: peer.version or "absent" for peer in all_peers()}
    return {"code": code.hexdigest()[:16], "machine": machine, **peers}


def measured(part: Part, scale: Scale, tell: Say) -> Report:
    """Measures one part. An error becomes `error`."""
    before = _ticks()
    time.sleep(_WATCHED_SECONDS)
    busy = _share(before, _ticks(), 0.0)
    began, started = datetime.datetime.now(datetime.UTC), time.perf_counter()
    report: Report = {"part": part.name, "scale": scale.name, "began": began.isoformat(timespec="seconds")}
    report |= {"busy": busy, "under": circumstances(), "groups": [], "machine": facts()}
    before, own = _ticks(), sum(os.times()[:4])
    try:
        for case in part.cases(scale):
            report["groups"].append(case.measure(scale.pace, tell).to_json())
    except Exception as error:
        report["error"] = f"{type(error).__name__}: {error}"
    others = _share(before, _ticks(), sum(os.times()[:4]) - own)
    return {**report, "seconds": time.perf_counter() - started, "others": others}


def _ticks() -> tuple[int, int] | None:
    """Idle ticks and all ticks of all cores; None if the system does not count them."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return None
    ticks = [int(number) for number in line[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _share(before: tuple[int, int] | None, after: tuple[int, int] | None, own_seconds: float) -> float | None:
    """The share of all cores that other programs used between two counts."""
    if before is None or after is None or after[1] == before[1]:
        return None
    idle, whole = after[0] - before[0], after[1] - before[1]
    return min(max((whole - idle - own_seconds * os.sysconf("SC_CLK_TCK")) / whole, 0.0), 1.0)


def read(path: Path) -> Report | None:
    """The report in a file; None if there is no complete one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"part", "scale", "groups"} <= set(found) else None


def write(path: Path, report: Report) -> None:
    """Writes a report atomically."""
    with writing(path.parent, path.name, mode=None) as file:
        file.write((json.dumps(report, indent=1) + "\n").encode())


def caveats(reports: Reports) -> list[str]:
    """A sentence for each condition that makes figures less reliable."""
    found = []
    if len({json.dumps(report.get("under"), sort_keys=True) for report in reports.values()}) > 1:
        found.append("Some parts ran with other versions of the software or on another machine.")
    shares = {name: max(one.get("busy") or 0, one.get("others") or 0) for name, one in reports.items()}
    loud = [f"{name} ({share:.0%})" for name, share in shares.items() if share > QUIET]
    if loud:
        found.append(f"Other programs used this share of the processor: {', '.join(loud)}.")
    if any(report["scale"] != "full" for report in reports.values()):
        found.append("The scale is tiny, so the figures only show that the suite works.")
    return found


@click.command()
@click.option(
    "--out",
    "folder",
    type=UserPath(path_type=Path, file_okay=False),
    help="Takes a file for each part. Default: bench, or bench-tiny.",
)
@click.option("--only", multiple=True, metavar="PART", help="Only this part; may be given again.")
@click.option("--again", is_flag=True, help="Measure all parts again.")
@click.option(
    "--scale",
    type=Name([*SCALES]),
    default="full",
    show_default=True,
    help="tiny: a minute on the bundled model, without useful figures.",
)
@json_option
@debug_option
def suite(folder: Path | None, only: tuple[str, ...], again: bool, scale: str, as_json: bool) -> None:
    """Measure all figures with goals: an hour and more on two cores.

    Parts that the same code has measured here are kept, so an interrupted suite resumes. Other programs take
    turns with ours if they are installed. `python -m benchmarks results FOLDER` writes RESULTS.md.
    """
    for name in only:
        if name in NOT_YET:
            raise click.UsageError(f"{name} is not measured yet: it needs {NOT_YET[name]}.")
        if name not in BY_NAME:
            raise click.UsageError(f"there is no part {name!r}; there are {', '.join(BY_NAME)}.")
    place = folder or Path("bench" if scale == "full" else f"bench-{scale}")
    reports = run(place, SCALES[scale], only, lambda what: say(what, err=True), again=again)
    failed = {name: report["error"] for name, report in reports.items() if "error" in report}
    if as_json:
        print_json({"reports": reports, "failed": failed, "not_yet": NOT_YET})
    else:
        head = ["", "FIGURE", "OF", "MEASURED", "GOAL", ""]
        lines = [table(head, [row for row in rows(reports) if row[0] in reports]), *caveats(reports)]
        lines += [f"{name} not yet: needs {needs}" for name, needs in ({} if only else NOT_YET).items()]
        say("\n\n".join(lines))
    if failed:
        raise PromptCacheError(f"failed: {', '.join(failed)}")
