"""What was not asked for longest is forgotten first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from engine.prompt.template.recent import Recent


def test_what_was_not_asked_for_longest_goes_first() -> None:
    kept: Recent[str] = Recent(3)
    for name in "abc":
        kept.keep(name, name.upper(), 1)
    assert kept.get("a") == "A"
    kept.keep("d", "D", 1)
    assert [kept.get(name) for name in "abcd"] == ["A", None, "C", "D"]


def test_weights_count_and_are_given_back() -> None:
    kept: Recent[str] = Recent(10)
    kept.keep("a", "A", 6)
    kept.keep("a", "B", 4)
    kept.keep("b", "C", 6)
    assert (kept.get("a"), kept.get("b")) == ("B", "C")
    kept.keep("c", "D", 5)
    assert [kept.get(name) for name in "abc"] == [None, None, "D"]
    kept.keep("d", "E", 11)
    assert [kept.get(name) for name in "cd"] == ["D", None]
    kept.keep("e", "F", 10)
    assert [kept.get(name) for name in "ce"] == [None, "F"]


def test_threads_share_it() -> None:
    kept: Recent[int] = Recent(5)

    def work(number: int) -> None:
        for one in range(300):
            kept.keep(one % 9, one, 1 + number % 2)
            kept.get((one + number) % 9)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert len(kept) <= 5
