"""`regress`: the comparison, missing figures, and clean ends. No times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.suite import regress
from benchmarks.suite.regress import Work
from engine.base.errors import PromptCacheError

COMMANDS = """
import json, os, sys
log = os.environ.get("CALLS")
if log:
    with open(log, "a") as file:
        file.write(json.dumps([SIDE, sys.argv[1:]]) + "\\n")
what = sys.argv[2] if sys.argv[1] == "bench" else sys.argv[1]
if what in LACKS:
    sys.exit(f"Error: No such command {what!r}.")
rows = {"ttft": {"uncached": 100.0, "cached": SLOW * 10}, "first": {"first": 120.0, "uncached": 100.0}}
if what in rows:
    print(json.dumps({"results": [{"name": name, "median_ms": ms} for name, ms in rows[what].items()]}))
if what == "run":
    print(json.dumps({"cached": {"tpot_ms": 8.0 * SLOW if "33" in sys.argv else None}}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with two commits, the newer one half as fast; the older one has no `first`."""
    root = tmp_path / "project"
    for name in ("app", "engine"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    git(root, "init", "-q", "-b", "main")
    for side, slow, lacks in (("old", 1, ["first"]), ("new", 2, [])):
        text = f"SIDE, SLOW, LACKS = {side!r}, {slow}, {lacks}\n{COMMANDS}"
        (root / "app" / "__main__.py").write_text(text, encoding="utf-8")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", side)
    return root


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def worktrees(root: Path) -> int:
    return len(git(root, "worktree", "list").splitlines())


def calls(path: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(side, words[1] if words[0] == "bench" else words[0]) for side, words in found]


def test_two_commits_are_compared_and_what_one_lacks_is_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    report = regress.run("HEAD~1", "HEAD", Work(cached=64), rounds=2, root=project)
    assert report["commits"][regress.OLD] == git(project, "rev-parse", "HEAD~1").strip()
    assert report["ratios"]["ttft_cached"] == {"ratio": 2.0, "low": 2.0, "high": 2.0}
    assert report["ratios"]["ttft_uncached"]["ratio"] == 1.0
    assert report["ratios"]["time_per_token"]["ratio"] == 2.0
    assert report["ratios"]["first_run"] is None
    first = next(group for group in report["groups"] if group["name"] == "first_run")
    assert list(first["samples_ms"]) == [regress.NEW]
    assert first["notes"] == ["commit:old failed: LackingError: Error: No such command 'first'."]
    assert worktrees(project) == 1
    made = calls(tmp_path / "calls")
    assert made.count(("old", "first")) == 1, "a missing figure is not asked for again"
    assert made.count(("old", "check")) == made.count(("new", "check")) == 4, "a sample follows a warm-up"


def test_only_some_figures_are_asked_for(project: Path) -> None:
    report = regress.run("HEAD~1", "HEAD", Work(cached=64), rounds=1, only=("ttft_cached",), root=project)
    assert list(report["ratios"]) == ["ttft_cached"]


def test_the_exit_status_tells_of_a_bound_only_where_there_is_one(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_bench: Callable[..., SimpleNamespace],
) -> None:
    before = regress.run
    monkeypatch.setattr(
        regress, "run", lambda old, new, work, **given: before(old, new, work, **given | {"root": project})
    )
    words = ("regress", "HEAD~1", "HEAD", "--rounds", "1", "--only", "ttft_cached")
    told = run_bench(*words)
    assert (told.status, told.err) == (0, "")
    assert "ttft_cached" in told.out
    assert "2.00" in told.out
    beyond = run_bench(*words, "--bound", "1.1", "--json")
    assert (beyond.status, json.loads(beyond.out)["beyond"]) == (1, ["ttft_cached"])
    assert run_bench(*words, "--bound", "2.5").status == 0
    lost = run_bench("regress", "HEAD", "HEAD~1", "--rounds", "1", "--only", "first_run", "--bound", "9")
    assert lost.status == 1
    assert "commit:new failed: LackingError: Error: No such command 'first'." in lost.out
    assert run_bench(*words, "--only", "speed").status == 2
    assert run_bench(*words, "--cached", "2").status == 2


def test_what_cannot_be_compared_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(PromptCacheError, match="no commit 'nowhere'"):
        regress.run("HEAD", "nowhere", Work(), root=project)
    with pytest.raises(PromptCacheError, match="no commit '--all'"):
        regress.run("HEAD", "--all", Work(), root=project)
    (tmp_path / "installed").mkdir()
    with pytest.raises(PromptCacheError, match="Clone the project"):
        regress.run("HEAD", "HEAD", Work(), root=tmp_path / "installed")
    with pytest.raises(PromptCacheError, match="Clone the project"):
        regress.run("HEAD", "HEAD", Work(), root=project / "app")  # in a checkout of something else
    assert worktrees(project) == 1


def test_nothing_is_left_where_it_is_broken_off(project: Path) -> None:
    def interrupted(what: str) -> None:
        assert worktrees(project) == 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regress.run("HEAD~1", "HEAD", Work(), root=project, say=interrupted)
    assert worktrees(project) == 1
    assert not git(project, "status", "--porcelain")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_worktree(project: Path, number: signal.Signals) -> None:
    code = (
        "import signal, time\nfrom pathlib import Path\n"
        "from benchmarks.suite.regress import checked_out, commit\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have them ignored
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        f"root = Path({str(project)!r})\n"
        "with checked_out(root, {'old': commit(root, 'HEAD')}) as folders:\n"
        "    print(folders['old'], flush=True)\n    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(regress.PROJECT)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        os.killpg(process.pid, number)
        process.wait(30)
    assert not folder.parent.exists()
    assert worktrees(project) == 1
