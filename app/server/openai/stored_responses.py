"""The latest responses, in memory only, for `previous_response_id` and for clients that fetch them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.server.http.errors import INVALID, NOT_FOUND, ApiError, unsupported
from app.server.http.shapes import Reply
from app.server.http.truncate import shown
from app.server.openai.response_items import Item
from app.server.openai.response_shapes import Response

MOST_BYTES = 64_000_000
_OVERHEAD = 2000  # bytes of a response without texts


class DeletedResponse(Reply):
    """The id of a deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(Reply):
    """The input of a response, with that of the responses before it."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


@dataclass(frozen=True)
class StoredResponse:
    """A response with its input.

    Attributes:
        client: whose it is.
        items: its whole input, with the responses before it.
        response: the response.
        size: its own bytes, without those of earlier responses.
    """

    client: str
    items: tuple[Item, ...]
    response: Response
    size: int

    def conversation(self) -> tuple[Item, ...]:
        """Returns the input of a request that continues the response."""
        output = (one.model_dump(mode="json", exclude_none=True) for one in self.response.output)
        return (*self.items, *map(Item.model_validate, output))

    def page(self, limit: int, order: str, after: str | None) -> InputItems:
        """Returns up to `limit` items of the input, "asc" or "desc", after the one with an id.

        Raises:
            ApiError: an argument is out of range.
        """
        if not 1 <= limit <= 100:
            raise ApiError(INVALID, f"limit is {limit}; it must be 1 to 100.", "limit")
        if order not in ("asc", "desc"):
            raise ApiError(INVALID, f"order is {shown(order)}; it must be asc or desc.", "order")
        listed = [_listed(item, f"item_{number}") for number, item in enumerate(self.items)]
        listed = listed if order == "asc" else listed[::-1]
        ids = [one["id"] for one in listed]
        if after is not None and after not in ids:
            raise ApiError(INVALID, f"after names no item: {shown(after)}.", "after")
        start = 0 if after is None else ids.index(after) + 1
        data = listed[start : start + limit]
        ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return InputItems(data=data, first_id=ends[0], last_id=ends[1], has_more=start + limit < len(listed))


class StoredResponses:
    """The latest responses, up to a number and `MOST_BYTES`. Thread-safe.

    Args:
        most: the maximum number; 0 stores nothing.
    """

    def __init__(self, most: int) -> None:
        self.most, self._bytes = most, 0
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, client: str, items: Sequence[Item], own: Sequence[Item], response: Response) -> None:
        """Stores a response of a client, and drops the oldest ones beyond the limits.

        Args:
            client: the client.
            items: the whole input.
            own: the part of it that the request has sent.
            response: the response.
        """
        size = _OVERHEAD + sum(len(one.model_dump_json()) for one in (*own, *response.output))
        with self._lock:
            self._stored[response.id] = StoredResponse(client, tuple(items), response, size)
            self._bytes += size
            while len(self._stored) > self.most or (self._bytes > MOST_BYTES and len(self._stored) > 1):
                self._bytes -= self._stored.popitem(last=False)[1].size

    def find(self, name: str, client: str, param: str) -> StoredResponse:
        """Returns a response of a client.

        Raises:
            ApiError: there is none with this id, or the server stores none.
        """
        with self._lock:
            found = self._stored.get(name)
        if found is not None and found.client == client:
            return found
        if not self.most:
            words = "pml serve stores no responses without --store-responses. Use it, or send all input."
            if param != "response_id":
                raise unsupported(param, words)
        else:
            words = f"the server has the latest {self.most} responses with store: true. Send the whole input."
        raise ApiError(NOT_FOUND, f"There is no response {shown(name)}: {words}", param)

    def remove(self, name: str, client: str) -> None:
        """Removes a response of a client; raises ApiError if there is none with this id."""
        found = self.find(name, client, "response_id")
        with self._lock:
            if self._stored.pop(name, None) is not None:
                self._bytes -= found.size


def _listed(item: Item, identity: str) -> dict[str, Any]:
    """An item as the API lists it: with an id, and texts as parts."""
    fields = item.model_dump(mode="json", exclude_none=True)
    if isinstance(item.content, str):
        kind = "output_text" if item.role == "assistant" else "input_text"
        more: dict[str, Any] = {"annotations": []} if item.role == "assistant" else {}
        fields["content"] = [{"type": kind, "text": item.content, **more}]
    return {"status": "completed", **fields, "id": fields.get("id") or identity}
