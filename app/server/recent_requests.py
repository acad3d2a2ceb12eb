"""Endpoints for the latest requests: what each read from the cache, and why it did not read more."""

from __future__ import annotations

from fastapi import APIRouter, Query, Request

from app.server.core.service import Service
from app.server.http.errors import NOT_FOUND, ApiError
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Count, Reply
from app.server.http.streams import gone
from app.server.http.truncate import shown
from app.server.recent.records import Record
from app.server.recent.why import Why

PATH = "/v1/prompt_cache/requests"
MOST_LISTED = 100


class RecentRequest(Reply):
    """A request whose answer has begun."""

    id: str
    request_id: str
    at: float
    model: str
    prompt: Count
    read: Count
    why: Why | None


class RecentRequests(Reply):
    """The latest requests, the latest first."""

    requests: list[RecentRequest]


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter()

    def described(record: Record) -> RecentRequest:
        answer_id, request_id = (*record.names, "", "")[:2]
        return RecentRequest(
            id=answer_id,
            request_id=request_id,
            at=record.at,
            model=record.model,
            prompt=len(record.token_ids),
            read=record.read,
            why=service.why(record),
        )

    @router.get(PATH, responses=errors(never=(415,)))
    async def list_requests(
        request: Request, page_size: int = Query(20, ge=1, le=MOST_LISTED)
    ) -> RecentRequests:
        """Lists the client's latest requests with the reasons of cache misses."""
        client = request.state.client

        def do() -> RecentRequests:
            records = service.records.of(service.owner(client))[:page_size]
            return RecentRequests(requests=[described(record) for record in records])

        return await service.look(do, client, gone(request))

    @router.get(f"{PATH}/{{request_id}}", responses=errors(never=(415,)))
    async def explain_request(request_id: str, request: Request) -> RecentRequest:
        """Explains which tokens of a request were computed again; the id is the answer's or the request's."""
        client = request.state.client
        record = service.records.find(request_id, service.owner(client))
        if record is None:
            words = "The server knows the latest since its start (--recent)."
            missing = f"There is no recent request {shown(request_id)}. {words}"
            raise ApiError(NOT_FOUND, missing, "request_id")
        return await service.look(lambda: described(record), client, gone(request))

    return router
