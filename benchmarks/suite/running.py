"""Runs the parts one after another, each in a process of its own, with a file for each when it is done."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xxhash

from app.base.signals import as_interrupts
from benchmarks.suite.parts import BY_NAME, NOT_YET, PARTS, Part
from benchmarks.suite.sampling import Say
from benchmarks.suite.scale import SCALES, Scale
from engine.base.errors import PromptCacheError
from engine.files.atomic import writing

ROOT = Path(__file__).parents[2]
ROOMS = ("app", "benchmarks", "engine", "sample_schemas")  # whose code decides what is measured
QUIET = 0.1  # share of all cores that other programs may use when a part begins
_LOOK_SECONDS = 1.0


def suite(
    folder: Path, scale: Scale, only: Sequence[str], say: Say, *, again: bool = False
) -> dict[str, dict[str, Any]]:
    """Measures what is not measured yet.

    Args:
        folder: takes a file for each part; made where it is missing.
        scale: how much is measured.
        only: names of parts; all where there are none.
        say: is told what goes on.
        again: measures anew what has been measured.

    Returns:
        The report of every part by name. A part that failed has `error`, and is tried again next time.

    Raises:
        PromptCacheError: there is no such part, or it cannot be measured yet.
    """
    require_parts(only)
    folder.mkdir(parents=True, exist_ok=True)
    reports, here = {}, circumstances()
    for part in PARTS:
        if only and part.name not in only:
            continue
        path = folder / f"{part.name}.json"
        found = None if again else read(path)
        if found and found["scale"] == scale.name and "error" not in found:
            if (other := differing(found, here)) is None:
                say(f"{part.name}: measured before ({path})")
                reports[part.name] = found
                continue
            say(f"{part.name}: measured before with another {other}, so again")
        say(f"{part.name}: {part.title}")
        report = separately(part, scale, path) if scale.own_process else measured(part, scale, say)
        if "error" in report:
            say(f"{part.name} failed: {report['error']}")
        write(path, report)
        reports[part.name] = report
    return reports


def circumstances() -> dict[str, str]:
    """What figures hang on: the code, the machine and the other software; reports of others are no part."""
    from benchmarks.machine import facts
    from benchmarks.peers import all_peers

    code = xxhash.xxh3_128()
    for place in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        code.update(place.relative_to(ROOT).as_posix().encode() + b"\0" + place.read_bytes())
    peers = {peer.name: peer.version or "absent" for peer in all_peers()}
    machine = ", ".join(f"{name} {value}" for name, value in facts().items())
    return {"code": code.hexdigest()[:16], "machine": machine, **peers}


def differing(report: dict[str, Any], here: dict[str, str]) -> str | None:
    """The name of what was otherwise when a report was made; None where all was the same."""
    under = report.get("under", {})
    return next((name for name, value in here.items() if under.get(name) != value), None)


def require_parts(names: Sequence[str]) -> None:
    """Refuses what is no part.

    Raises:
        PromptCacheError: there is no such part, or it cannot be measured yet.
    """
    for name in names:
        if name in NOT_YET:
            raise PromptCacheError(f"{name} is not measured yet: it needs {NOT_YET[name]}.")
        if name not in BY_NAME:
            raise PromptCacheError(f"there is no part {name!r}; there are {', '.join(BY_NAME)}.")


def measured(part: Part, scale: Scale, say: Say) -> dict[str, Any]:
    """Measures one part in this process. A fault becomes `error`, in words."""
    before = busy(_LOOK_SECONDS if scale.own_process else 0.05)
    began = datetime.datetime.now(datetime.UTC)
    started, others = time.perf_counter(), Others()
    report: dict[str, Any] = {
        "part": part.name,
        "scale": scale.name,
        "began": began.isoformat(timespec="seconds"),
        "busy": before,
        "under": circumstances(),
        "groups": [],
    }
    try:
        report["groups"] = [group.to_json() for group in part.measure(scale, say)]
    except Exception as error:
        report["error"] = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - started
    return {**report, "seconds": seconds, "others": others.share(), "machine": _machine()}


def separately(part: Part, scale: Scale, path: Path) -> dict[str, Any]:
    """Measures it in a process of its own, whose words go where ours go."""
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.suite", part.name, str(path), "--scale", scale.name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            status = process.wait()
        except BaseException:
            process.terminate()  # it takes its folders and programs with it, and is waited for
            raise
    report = read(path)
    if report is None:
        words = f"its process ended with status {status} and left no report"
        return {"part": part.name, "scale": scale.name, "groups": [], "error": words, "machine": {}}
    return report


def busy(seconds: float = _LOOK_SECONDS) -> float | None:
    """The share of all cores that is in use now; None where the system does not say.

    Args:
        seconds: how long it is watched.
    """
    before = _ticks()
    time.sleep(seconds if before else 0)
    after = _ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


class Others:
    """How much of all cores other programs use from now on."""

    def __init__(self) -> None:
        self._ticks, self._own = _ticks(), _own_seconds()

    def share(self) -> float | None:
        """Their share so far, 0 to 1; None where the system does not say."""
        now = _ticks()
        if self._ticks is None or now is None or now[1] == self._ticks[1]:
            return None
        idle, whole = now[0] - self._ticks[0], now[1] - self._ticks[1]
        own = (_own_seconds() - self._own) * os.sysconf("SC_CLK_TCK")
        return min(max((whole - idle - own) / whole, 0.0), 1.0)


def _own_seconds() -> float:
    """Of processor time, that of children that have ended included."""
    return sum(os.times()[:4])


def _ticks() -> tuple[int, int] | None:
    """Idle ticks of all cores and ticks in all since the system started; None where nothing counts them."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return None
    ticks = [int(number) for number in first[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def read(path: Path) -> dict[str, Any] | None:
    """The report in a file; None where there is none that is whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"part", "scale", "groups"} <= set(found) else None


def write(path: Path, report: dict[str, Any]) -> None:
    """Puts a report in its place, whole or not at all."""
    with writing(path.parent, path.name, mode=None) as file:
        file.write((json.dumps(report, indent=1) + "\n").encode())


def _machine() -> dict[str, Any]:
    from benchmarks.machine import facts

    return facts()


def main(arguments: Sequence[str]) -> None:
    """Measures one part: its name, the file for its report, and `--scale NAME`."""
    name, path, _, scale = arguments
    started = time.perf_counter()

    def say(what: str) -> None:
        print(f"  {time.perf_counter() - started:6.0f} s  {what}", file=sys.stderr, flush=True)

    with as_interrupts():
        write(Path(path), measured(BY_NAME[name], SCALES[scale], say))
