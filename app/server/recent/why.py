"""The explanation of a cache miss."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.server.http.shapes import Count, Reply

Cause = Literal["new", "cold", "expired", "evicted", "changed", "reordered", "other_salt", "other_model"]


class Why(Reply):
    """Why tokens of a request were computed again."""

    reason: Cause
    sentence: str
    suggestion: str = ""
    compared_with: str | None = Field(default=None, description="The id of the earlier answer.")
    block: str | None = Field(default=None, description="The block with the first difference.")
    token: Count | None = Field(default=None, description="The position of the first different token.")
    before: str | None = Field(default=None, description="The text there in the earlier request, shortened.")
    now: str | None = Field(default=None, description="The text there in this request, shortened.")
    lost: Count = Field(default=0, description="Unchanged tokens that were computed again.")
