"""The Benchmark page: a sweep from the question to the file, its chart and its table, and a stop."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server

POINTS = "32 64 96"


def open_benchmark(page: Page) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Benchmark").click()
    expect(page.get_by_role("heading", name="Benchmark", exact=True)).to_be_visible()


def test_a_sweep_is_measured_drawn_listed_saved_and_shown_again(author: Page, studio: Server) -> None:
    open_benchmark(author)
    status, expected = author.locator(".page-head [role=status]"), author.locator(".expected")
    field, start = author.get_by_role("textbox", name="Points"), author.get_by_role("button", name="Measure")
    expect(expected).to_contain_text(re.compile(r"4 points, about .* \(estimated "))
    expect(author.get_by_role("spinbutton", name="Cached tokens")).to_be_disabled()
    field.fill("32 far")
    expect(expected).to_have_text("“far” in Points is not a whole number above 0.")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill(POINTS)
    author.get_by_role("spinbutton", name="Samples per point").fill("1")
    expect(expected).to_contain_text("3 points")
    expect(author.locator(".sweep [aria-invalid]")).to_have_count(0)
    start.press("Enter")
    expect(status).to_contain_text("Measured in", timeout=120_000)
    rows = author.get_by_role("region", name="Measured times").locator("tbody tr")
    expect(rows).to_have_count(12)
    expect(rows.nth(3)).to_contain_text("lower bound")
    expect(author.locator(".conclusion")).to_contain_text("times as fast")
    chart = author.locator(".studio-benchmark .chart")
    expect(chart).to_contain_text("lower bound: new tokens only")
    author.get_by_role("radio", name="Stages").check()
    expect(chart).to_contain_text("prefill")

    author.reload()
    expect(rows).to_have_count(12)
    expect(chart).to_contain_text("lower bound: new tokens only")
    with author.expect_download() as saved:
        author.get_by_role("button", name="Save as JSON").click()
    report = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))
    assert [one["value"] for one in report["results"][::4]] == [32, 64, 96]
    assert report["machine"]["cores"]
    with author.expect_download() as saved:
        author.get_by_role("button", name="Save as CSV").click()
    table = list(csv.DictReader(Path(saved.value.path()).read_text(encoding="utf-8").splitlines()))
    assert len(table) == 12
    for one in report["results"]:
        one["samples_ms"] = [0.1, 60_000.0]
    with closing(sqlite3.connect(studio.folder / "data" / "studio.sqlite")) as file:
        assert file.execute("update sweeps set report = ?", [json.dumps(report)]).rowcount == 1
        file.commit()
    author.reload()
    expect(author.locator(".conclusion")).to_contain_text("the ranges overlap: no clear difference")
    author.get_by_role("button", name="Delete").click()
    author.get_by_role("button", name="Delete the times").click()
    expect(status).to_have_text("Deleted.")


@pytest.mark.long
def test_a_sweep_that_is_stopped_keeps_its_points_and_no_run_goes_on_beside_it(author: Page) -> None:
    open_benchmark(author)
    status = author.locator(".page-head [role=status]")
    author.get_by_role("textbox", name="Points").fill("32 1000 2000 4000")
    author.get_by_role("spinbutton", name="Samples per point").fill("20")
    author.get_by_role("button", name="Measure").click()
    expect(status).to_contain_text(re.compile("measuring cached [124]000"), timeout=120_000)
    author.get_by_role("link", name="Author").click()
    author.locator("#run").click()
    expect(author.locator(".run-status")).to_contain_text("A benchmark is running alone")
    open_benchmark(author)
    author.get_by_role("button", name="Stop", exact=True).click()
    expect(status).to_contain_text(
        re.compile(r"Stopped\. 1 point of 4 was measured and saved\."), timeout=120_000
    )
    expect(author.get_by_role("region", name="Measured times").locator("tbody tr")).to_have_count(4)
    expect(author.locator(".result")).to_contain_text("stopped early")
    author.get_by_role("button", name="Delete").click()
    author.get_by_role("button", name="Delete the times").click()
    expect(status).to_have_text("Deleted.")
