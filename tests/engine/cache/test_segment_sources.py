"""Where a segment may come from: what others have just made is read, what is of another form never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.base.stopwatch import Stopwatch
from engine.base.tiers import Reason
from engine.cache.fetched import Request
from engine.engine import Engine
from engine.inference.step_lock import returned
from engine.store import Store
from tests.engine.cases import model_of, schema_of

SCHEMA = """<schema name="s">Read. <module name="a">alpha beta</module>
<module name="b">gamma</module></schema>"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    yield opened
    opened.close()


def recipes_of(engine: Engine) -> Any:
    return engine.schema(schema_of(SCHEMA)).tokenized.recipes("anchored").of_schema(1000)


def fetching(engine: Engine, recipes: Any, **options: Any) -> Any:
    return engine.segment_cache.segments(recipes, Request("s", "anchored", **options), Stopwatch())


@pytest.mark.parametrize("sync", [True, False])
def test_what_another_answer_has_just_made_is_not_encoded_again(engine: Engine, sync: bool) -> None:
    """Whether it was written by then, or still is."""
    recipes = recipes_of(engine)
    steps = fetching(engine, recipes)
    assert next(steps).what.startswith("encoding")
    with returned(fetching(engine, recipes, sync=sync)) as other, returned(steps) as fetched:
        assert sorted(other.encoded) == sorted(recipe.key for recipe in recipes)
        assert fetched.encoded == {}
        assert {use.reason for use in fetched.uses} == {Reason.ELSEWHERE}
        for key, handle in other.handles.items():
            assert fetched.handles[key].segment is handle.segment
