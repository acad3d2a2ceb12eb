"""What the Serve page is told: states, changes of requests, who asked, and the chart of what was read."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from app.server.core.metrics import Figures
from app.server.core.usage import Usage
from app.server.http.access import name_of
from app.studio.database import UserDatabase
from app.studio.documents.folder import Folder
from app.studio.documents.samples import Library
from app.studio.model.api import Api, Offer
from app.studio.model.engine_loader import Opening
from app.studio.pages.hits_chart import hits_chart
from app.studio.pages.serve import ServePage
from app.studio.web.endpoints import by_name
from app.studio.workspace.page_state import Parts

KEYS = ("a short one", "a key of more than some length")


class Serving:
    """The page over a server without an engine."""

    def __init__(self, folder: Path, offer: Offer) -> None:
        self.api = Api(offer)
        parts = Parts.of(Opening(patience=0), UserDatabase(folder), Library(Folder(None)), self.api)
        self._asked = by_name([ServePage(parts)])

    def ask(self, question: str, **request: object) -> Any:
        answer = self._asked[question].ask(request)
        assert "error" not in answer, answer
        return answer

    @property
    def figures(self) -> Figures:
        assert self.api.service is not None
        return self.api.service.figures


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(tmp_path, Offer(keys=KEYS, aliases=("other",), origins=frozenset({"http://a.example"})))


def test_before_there_is_a_server_it_is_loading_and_can_be_switched_off(serving: Serving) -> None:
    told = serving.ask("served")
    assert (told["state"], told["model"], told["requests"], told["change"]) == ("loading", "", [], 0)
    assert (told["keys"], told["aliases"], told["origins"]) == (2, ["other"], ["http://a.example"])
    assert serving.ask("draw_hits") == {"figure": {"data": [], "layout": {}}}
    assert serving.ask("switch_api", on=False)["state"] == "off"
    serving.api.build()
    assert serving.ask("served")["state"] == "off", "it stays so when the server is there"
    assert serving.ask("switch_api", on=True)["state"] == "loading"


def test_names_of_the_model_are_set_on_the_page_and_stored(serving: Serving, tmp_path: Path) -> None:
    serving.api.build()
    told = serving.ask("name_model", names=[" gpt-4o ", "other", "gpt-4o", ""])
    assert (told["aliases"], told["own_aliases"]) == (["other"], ["gpt-4o"])
    assert told["since"] > 0
    assert serving.api.service is not None
    assert serving.api.service.aliases == ("other", "gpt-4o")
    assert Serving(tmp_path, Offer()).api.aliases == ("gpt-4o",), "after a restart"
    for name in ("a\nb", "bad name!", "x" * 101):
        with pytest.raises(AssertionError, match="letters, digits"):
            serving.ask("name_model", names=["org/gpt-4o:2024@a", name])


def test_only_what_has_changed_is_told_and_keys_are_not(serving: Serving) -> None:
    serving.api.build()
    for key in (*KEYS, "unknown"):
        one = serving.figures.came("/v1/messages", "anthropic")
        one.client = name_of(key)
        serving.figures.listed(one)
    told = serving.ask("served")
    assert [row["who"] for row in told["requests"]] == ["key 1", "key 2 (…ngth)", ""]
    assert not any(key in str(told) for key in KEYS)
    change = told["change"]
    assert serving.ask("served", change=change)["requests"] == []
    one.first(12.5, Usage(10, 4, 3))
    (row,) = serving.ask("served", change=change)["requests"]
    assert (row["number"], row["ttft_ms"], row["outcome"]) == (3, 12.5, "answering")
    assert row["tokens"] == {"prompt": 10, "read": 4, "written": 3, "rest": 3, "generated": 0}
    assert len(serving.ask("served", change=10**6)["requests"]) == 3, "of another start all is told"


def test_the_chart_has_the_shares_of_each_request_and_of_all_so_far() -> None:
    figures = Figures()
    for prompt, read, written in ((10, 0, 10), (30, 30, 0), (0, 0, 0), (60, 30, 15)):
        one = figures.came("/v1/<b>", "openai")
        figures.listed(one)
        one.first(1.0, Usage(prompt, read, written))
    figures.listed(figures.came("/v1/completions", "openai"))
    read, written, computed, running = hits_chart(list(figures.recent)).data
    assert list(read.y) == [0, 100, 50]
    assert list(written.y) == [100, 0, 25]
    assert list(computed.y) == [0, 0, 25]
    assert list(running.y) == [0, 75, 60]
    assert "&lt;b&gt;" in read.hovertext[0]
    assert "of 60 tokens 30 read (50%), 15 written, 15 computed" in read.hovertext[2]
    assert "60 of 100 tokens" in running.hovertext[-1]
    assert not hits_chart([]).data


EYES = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "no green": ((0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "no blue": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9309, 0.1476), (0.0047, 0.6914, 0.3039)),
}
"""What eyes make of red, green and blue light (Machado and others, 2009)."""
XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8729))  # of white: 1, 1, 1


def seen(colour: str, ground: str, eyes: str) -> list[float]:
    """A colour of a chart on its ground as eyes see it: L, a, b."""

    def parts(words: str) -> tuple[list[float], float]:
        if words.startswith("#"):
            return [int(words[at : at + 2], 16) for at in (1, 3, 5)], 1.0
        *three, share = (float(one) for one in words.removeprefix("rgba(").rstrip(")").split(","))
        return three, share

    (front, share), (back, _) = parts(colour), parts(ground)
    mixed = [(share * one + (1 - share) * other) / 255 for one, other in zip(front, back, strict=True)]
    light = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in mixed]
    for matrix in (EYES[eyes], XYZ):
        light = [max(0.0, sum(a * b for a, b in zip(row, light, strict=True))) for row in matrix]
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in light)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("ground", ["#ffffff", "#121923"])
def test_the_colours_of_the_chart_are_told_apart(ground: str, eyes: str) -> None:
    figures = Figures()
    one = figures.came("/v1/messages", "anthropic")
    figures.listed(one)
    one.first(1.0, Usage(9, 3, 3))
    bars = hits_chart([one]).data[:3]
    assert [bar.name.split()[0].rstrip(":,") for bar in bars] == ["read", "written", "computed"]
    colours = [seen(bar.marker.color, ground, eyes) for bar in bars]
    assert min(itertools.starmap(math.dist, itertools.combinations(colours, 2))) > 20
    assert min(math.dist(colour, seen(ground, ground, eyes)) for colour in colours) > 15


@pytest.mark.parametrize("many", [1, 12, 500])
def test_the_chart_can_be_read_at_any_number(many: int) -> None:
    figures = Figures()
    for _ in range(many):
        one = figures.came("/v1/messages", "anthropic")
        figures.listed(one)
        one.first(1.0, Usage(10, 5))
    figure = hits_chart(list(figures.recent))
    axis = figure.layout.xaxis
    assert 1 <= len(axis.tickvals) <= 5
    assert axis.range[1] - axis.range[0] == max(many, 12)
    assert figure.data[3].mode == ("lines+markers" if many == 1 else "lines")
