"""The cache of parsed documents: the same text has the same tree, within a limit of memory."""

from __future__ import annotations

import gc
import weakref

from engine.pml import parse_prompt

SMALL = "<prompt>A small prompt.</prompt>"


def many_imports(number: int) -> str:
    return f"<prompt>{number}{'<b/>' * 8000}</prompt>"


def test_trees_of_many_elements_leave_the_cache() -> None:
    first = weakref.ref(parse_prompt(many_imports(0)))
    gc.collect()
    assert first() is parse_prompt(many_imports(0))
    small = parse_prompt(SMALL)
    for number in range(1, 10):
        parse_prompt(many_imports(number))
        assert parse_prompt(SMALL) is small, "recent documents stay"
    gc.collect()
    assert first() is None
