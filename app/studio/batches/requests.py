"""The requests of the Batch page about batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from app.studio.documents.requests import Count, Flag, Shelve, Whole, Words, request


@request
class BatchSince:
    """The rows of a batch that a page knows.

    Attributes:
        key: the batch's key; "" for the latest.
        known: the number of finished rows that the page has; -1 to get all rows.
        only: whether to return this batch even if another was started since.
    """

    key: Words = ""
    known: Whole = -1
    only: Flag = False


@request
class SomeBatches:
    """Keys of batches."""

    keys: tuple[Words, ...]


@request
class OneBatch:
    """The key of a batch."""

    key: Words


@request
class NameBatch:
    """The user's name for a batch; "" removes it."""

    key: Words
    name: Words


@request
class OneRow:
    """A row of a batch, by its number from 0."""

    key: Words
    number: Count


@request
class ScoreRow(OneRow):
    """A score of an answer by hand, from 0 to 1; None removes it."""

    side: Literal["cached", "uncached"]
    score: Annotated[float, Field(ge=0, le=1)] | None = None


@request
class OpenRow(Shelve):
    """A row of a batch, to open as the workspace."""

    key: Words
    number: Count


@request
class BatchFile:
    """A batch to export as files."""

    key: Words
    form: Literal["csv", "json", "promptfoo", "langfuse"]


@request
class BatchForm:
    """The form values of the page."""

    form: Mapping[str, Any]


@request
class GradeBatch:
    """The answers of a batch to grade.

    Attributes:
        key: the batch's key.
        job: the key of the new job.
        template: the judge's prompt, with `{question}`, `{prompt}` and `{answer}`.
        url: the base URL of a server on this machine; "" for the loaded model.
        model: the server's model; "" for its first one.
    """

    key: Words
    job: Words
    template: Words
    url: Words = ""
    model: Words = ""
