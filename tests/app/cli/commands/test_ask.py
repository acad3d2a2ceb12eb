"""`pml ask`: which modules are imported, what is said of them, and that their order costs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("place")

Pml = Callable[..., SimpleNamespace]
DOCS = """<schema name="docs"><user>
<module name="guide">
  <module name="install">Run the installer, then restart the machine.</module>
  <module name="faq">Why is it slow? The disk is full.</module>
</module>
<module name="api">The installer has a flag for a slow disk.</module>
<module name="big">A disk is round. {big}</module>
</user></schema>"""


@pytest.fixture
def docs(place: Path) -> str:
    (place / "docs.pml").write_text(DOCS.format(big="Round and round. " * 40), encoding="utf-8")
    return "docs.pml"


@pytest.fixture
def ask(run_pml: Pml, docs: str) -> Callable[..., dict[str, Any]]:
    """Asks with `--json` and returns the object."""

    def call(question: str, *options: str) -> dict[str, Any]:
        words = ("--max-new-tokens", "3", "--server", "never", "--json", *options)
        done = run_pml("ask", docs, question, *words)
        assert done.status == 0, done.err
        report: dict[str, Any] = json.loads(done.out)
        return report

    return call


def paths(report: dict[str, Any]) -> list[str]:
    return [one["path"] for one in report["modules"]]


def test_the_best_modules_answer(ask: Callable[..., dict[str, Any]]) -> None:
    report = ask("How do I install it, and restart?", "--top", "2")
    assert paths(report)[0] == "guide/install"
    scores = [one["score"] for one in report["modules"]]
    assert scores == sorted(scores, reverse=True)
    assert report["answer"]["text"] is not None
    assert report["question"] == "How do I install it, and restart?"


def test_other_questions_in_another_order_encode_nothing(ask: Callable[..., dict[str, Any]]) -> None:
    first = ask("slow disk installer flag", "--top", "3")
    assert first["answer"]["tokens"]["encoded"] > 0
    again = ask("full full full disk", "--top", "3", "--budget", "300")
    assert set(paths(again)) <= set(paths(first))
    assert paths(again) != paths(first)[: len(paths(again))]
    assert again["answer"]["tokens"]["encoded"] == 0


def test_people_read_the_answer_and_where_it_is_from(run_pml: Pml, docs: str) -> None:
    done = run_pml("ask", docs, "restart machine", "--max-new-tokens", "2", "--server", "never")
    assert done.status == 0, done.err
    assert "From:\n  1. guide/install\n" in done.out
    assert "computed for the question" in done.out


def test_a_budget_leaves_out_what_does_not_fit(ask: Callable[..., dict[str, Any]]) -> None:
    assert "big" in paths(ask("round disk"))
    assert sorted(paths(ask("round disk", "--budget", "100"))) == ["api", "guide/faq"]


@pytest.mark.long
def test_what_does_not_fit_the_window_is_left_out_and_said(run_pml: Pml, place: Path) -> None:
    page = "The installer is slow. " * 800
    texts = "".join(f'<module name="p{n}">{page}</module>' for n in range(3))
    (place / "long.pml").write_text(f'<schema name="long"><user>{texts}</user></schema>', encoding="utf-8")
    words = ("--max-new-tokens", "2", "--server", "never")
    done = run_pml("ask", "long.pml", "slow installer", *words)
    assert done.status == 0, done.err
    assert "did not fit the context window" in done.err
    whole = f'<schema name="long"><module name="p">{page * 3}</module></schema>'
    (place / "whole.pml").write_text(whole, encoding="utf-8")
    done = run_pml("ask", "whole.pml", "slow installer", *words)
    assert done.status == 1
    assert "pml import --split" in done.err.replace("\n", " ")
    large, small = (
        f'<module name="slow-installer">{page * 3}</module>',
        '<module name="small">A slow installer.</module>',
    )
    (place / "first.pml").write_text(f'<schema name="first"><user>{large}{small}</user></schema>', "utf-8")
    told = json.loads(run_pml("ask", "first.pml", "slow installer", "--json", "--top", "1", *words).out)
    assert [one["path"] for one in told["modules"]] == ["small"]
    assert told["left_out"] == ["slow-installer"]


def test_nothing_found_says_what_to_do(run_pml: Pml, docs: str) -> None:
    for question in ("zebra", "", "***", "NEAR()"):
        done = run_pml("ask", docs, question, "--server", "never")
        assert (done.status, done.out) == (1, "")
        assert "no module of docs.pml has a word of the question" in done.err
    done = run_pml("ask", docs, "restart", "--budget", "2", "--server", "never")
    assert done.status == 1
    assert "Give a larger --budget" in done.err
    report = json.loads(run_pml("ask", docs, "zebra", "--json").out)
    assert "no module" in report["error"]


def test_the_index_is_kept_in_the_folder_of_the_store_and_cleared_with_it(
    ask: Callable[..., dict[str, Any]], run_pml: Pml, place: Path
) -> None:
    ask("slow disk")
    (kept,) = (place / "cache" / "search").iterdir()
    data = kept.read_bytes()
    kept.write_bytes(data[:-9])
    ask("slow disk")
    assert kept.read_bytes() == data
    verified = run_pml("cache", "verify")
    assert (verified.status, "does not belong to the store" in verified.out) == (0, False)
    assert run_pml("cache", "clear").status == 0
    assert list((place / "cache" / "search").iterdir()) == []


def test_a_faulty_schema_is_told_as_elsewhere(run_pml: Pml, place: Path) -> None:
    (place / "bad.pml").write_text("<schema", encoding="utf-8")
    assert "E104" in run_pml("ask", "bad.pml", "Why?").err
    assert run_pml("ask", "none.pml", "Why?").status == 2
