"""Two texts side by side, line by line and word by word, within bounds."""

from __future__ import annotations

from app.studio.runs.text_diff import MOST_ROWS, difference


def spelled(rows: list, side: str) -> list[str]:
    return ["".join(part["text"] for part in row[side]["parts"]) for row in rows if row[side]]


def marked(rows: list, side: str) -> list[str]:
    return [part["text"] for row in rows if row[side] for part in row[side]["parts"] if part["changed"]]


def test_words_that_differ_are_marked_on_both_sides() -> None:
    found = difference("one\nthe red boat\nlast", "one\nthe blue boat\nlast")
    assert (found["removed"], found["added"], found["omitted"], found["coarse"]) == (1, 1, 0, False)
    assert marked(found["rows"], "left") == ["red"]
    assert marked(found["rows"], "right") == ["blue"]
    assert [row["changed"] for row in found["rows"]] == [False, True, False]


def test_every_line_near_a_change_is_shown_once_with_its_number_and_the_rest_is_counted() -> None:
    left = [f"line {k}" for k in range(100)]
    right = [*left[:40], "new", *left[40:80], *left[82:]]
    rows = difference("\n".join(left), "\n".join(right))["rows"]
    for side, lines in (("left", left), ("right", right)):
        for row in rows:
            if (line := row[side]) is not None:
                assert "".join(part["text"] for part in line["parts"]) == lines[line["number"] - 1]
    assert marked(rows, "left") == ["line 80", "line 81"]
    assert marked(rows, "right") == ["new"]
    assert [row["skipped"] for row in rows if row["skipped"]] == [37, 34]
    assert len(spelled(rows, "left")) == 3 + 3 + 3 + 2 + 3


def test_equal_texts_have_no_rows_and_an_empty_text_differs_whole() -> None:
    assert difference("a\nb", "a\nb")["rows"] == []
    found = difference("", "a\nb")
    assert (found["removed"], found["added"]) == (1, 2)
    assert marked(found["rows"], "right") == ["a", "b"]


def test_lines_with_little_in_common_are_marked_whole() -> None:
    rows = difference("alpha beta gamma", "x y z; v!")["rows"]
    assert (marked(rows, "left"), marked(rows, "right")) == (["alpha beta gamma"], ["x y z; v!"])


def test_texts_that_would_take_too_long_are_compared_as_one_block() -> None:
    found = difference("a\nb\n" * 20_000 + "c", "b\na\n" * 20_000 + "d")
    assert found["coarse"]
    assert len(found["rows"]) == MOST_ROWS
    assert found["omitted"] == 40_001 - MOST_ROWS
    difference("\n".join(map(str, range(30_000))), "\n".join(map(str, range(29_999, -1, -1))))
    long = difference("w " * 100_000, "v " * 100_000)["rows"]
    assert all(len(text) <= 1000 for text in spelled(long, "left"))
