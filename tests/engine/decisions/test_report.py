"""The figures of decisions equal those computed by hand."""

from __future__ import annotations

import math

import pytest

from engine.decisions.questions import choice
from engine.decisions.readout import decision
from engine.decisions.report import Bin, FitError, Labelled, fit, report, tempered


def test_a_fitted_temperature_does_in_a_readout_what_the_fit_predicts() -> None:
    by_order = [(-1.0, -4.0, -2.0), (-5.0, -0.5, -3.0)]
    question = choice("Which?", ["a", "b", "c"])
    plain, cooled = (decision(question, by_order, t).probabilities for t in (2.0, 6.0))
    assert cooled == pytest.approx(tempered(plain, 3.0))
    assert decision(question, [(0.0, -1000.0)], 100).probabilities[1] == pytest.approx(
        math.exp(-10), rel=1e-3
    )


ROWS = [
    Labelled((0.9, 0.05, 0.05), 0, 0.5),
    Labelled((0.7, 0.2, 0.1), 1),
    Labelled((0.3, 0.62, 0.08), 1),
    Labelled((0.62, 0.3, 0.08), 0),
]


def test_figures_of_four_rows() -> None:
    found = report(["a", "b", "c"], ROWS)
    assert found.confusion == ((2, 0, 0), (1, 1, 0), (0, 0, 0))
    assert found.accuracy == 3 / 4
    # a: precision 2/3, recall 1, F1 4/5. b: precision 1, recall 1/2, F1 2/3. c occurs nowhere.
    assert found.macro_f1 == pytest.approx((4 / 5 + 2 / 3) / 2)
    # bins 0.6: two right at 0.62; 0.7: one wrong at 0.7; 0.9: one right at 0.9
    assert found.bins == (Bin(2, 0.62, 1.0), Bin(1, 0.7, 0.0), Bin(1, 0.9, 1.0))
    assert found.ece == pytest.approx((2 * 0.38 + 0.7 + 0.1) / 4)
    assert found.order_flips == 0.5 / 4
    assert found.to_json()["confusion"][0] == (2, 0, 0)


def test_certain_answers_have_a_bin() -> None:
    assert report(["yes", "no"], [Labelled((1.0, 0.0), 0)]).bins == (Bin(1, 1.0, 1.0),)


def test_a_temperature_makes_confident_answers_honest() -> None:
    # Sure at 0.99 and right 3 of 4 times: the likeliest temperature gives 0.75, so 3 = 99 ** (1 / T).
    rows = [Labelled((0.99, 0.01), int(at in (3, 7, 4, 0))) for at in range(16)]
    found = fit(rows)
    assert (found.fitted_on, found.held_out) == (8, 8)
    assert found.temperature == pytest.approx(math.log(99) / math.log(3), rel=1e-4)
    assert tempered((0.99, 0.01), found.temperature)[0] == pytest.approx(0.75, abs=1e-4)
    assert found.ece_before == pytest.approx(0.99 - 0.75)
    assert found.ece_after == pytest.approx(0, abs=1e-4)


def test_answers_without_errors_get_a_bounded_temperature() -> None:
    found = fit([Labelled((0.6, 0.4), 0)] * 10)
    assert found.temperature == pytest.approx(0.05, rel=1e-3)
    assert found.helps
    wrong = [Labelled((1.0, 0.0), 1)] * 10
    assert fit(wrong).temperature == pytest.approx(20, rel=1e-3)
    assert fit(wrong, 50.0).temperature == pytest.approx(100, rel=1e-3)
    assert fit([Labelled((0.6, 0.4), 0)] * 10, 0.02).temperature == pytest.approx(0.01, rel=1e-3)


def test_a_fit_says_when_it_does_not_help_and_when_rows_are_missing() -> None:
    rows = [Labelled((0.6, 0.4), int(at % 2 and at % 5 != 0)) for at in range(20)]
    assert not fit(rows).helps
    with pytest.raises(FitError, match="at least 10 rows"):
        fit(rows[:9])
