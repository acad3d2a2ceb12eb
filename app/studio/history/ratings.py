"""The user's ratings of a run's answers: thumbs and a note per side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, cast, get_args

from typing_extensions import TypedDict

from app.studio.runs.run_frame import SIDES, Side

LONGEST_NOTE = 4000
Thumb = Literal["", "up", "down"]


class Rating(TypedDict):
    """The rating of an answer; `thumb` is "" without one."""

    thumb: Thumb
    note: str


class Ratings(TypedDict):
    """The ratings of both sides of a run."""

    cached: Rating
    uncached: Rating


def unrated() -> Ratings:
    """Returns the ratings of a run without any."""
    return {"cached": {"thumb": "", "note": ""}, "uncached": {"thumb": "", "note": ""}}


def read_ratings(sent: object) -> Ratings:
    """Returns ratings with every field of its type, from untrusted JSON."""
    ratings = unrated()
    for side in SIDES:
        rating = sent.get(side) if isinstance(sent, Mapping) else None
        thumb, note = (rating.get("thumb"), rating.get("note")) if isinstance(rating, Mapping) else ("", "")
        if thumb in get_args(Thumb):
            ratings[side]["thumb"] = cast(Thumb, thumb)
        if isinstance(note, str):
            ratings[side]["note"] = note[:LONGEST_NOTE]
    return ratings


def ratings_of(column: str) -> Ratings:
    """Returns ratings from their column in the database."""
    try:
        return read_ratings(json.loads(column))
    except (ValueError, RecursionError):
        return unrated()


def as_column(ratings: Ratings) -> str:
    """Returns ratings as a column of the database; "" if there are none."""
    return "" if ratings == unrated() else json.dumps(ratings)


def rated(ratings: Ratings, side: Side, thumb: Thumb | None, note: str | None) -> Ratings:
    """Returns ratings with a changed side; None leaves the current value."""
    former = ratings[side]
    changed: Rating = {
        "thumb": former["thumb"] if thumb is None else thumb,
        "note": former["note"] if note is None else note,
    }
    return (
        {"cached": changed, "uncached": ratings["uncached"]}
        if side == "cached"
        else {**ratings, "uncached": changed}
    )
