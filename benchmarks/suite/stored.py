"""A drawn prompt whose modules are stored, on an engine whose store lasts as long as it is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.answers import sources
from benchmarks.suite.sampling import Say
from benchmarks.suite.scale import Size
from engine.engine import Engine
from engine.model.model import Model
from engine.prepared import PreparedSchema
from engine.store import Store


@contextmanager
def engine_over(model: Model) -> Iterator[Engine]:
    """Opens an engine over an empty store."""
    with (
        tempfile.TemporaryDirectory(prefix="pml-suite-") as folder,
        Engine(model, Store.open(Path(folder))) as engine,
    ):
        yield engine


def stored(engine: Engine, size: Size, say: Say) -> tuple[PreparedSchema, str]:
    """Encodes the modules of a size; returns their schema, and the text of the prompt over all of them."""
    schema, prompt = sources(engine.model, size.cached, size.modules, size.new, 0)
    prepared = engine.schema(schema)
    say(f"encoding {size.modules} modules")
    prepared.encode()
    return prepared, prompt
