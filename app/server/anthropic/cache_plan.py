"""Endpoints for schedulers: a request's cache plan, and the segments in memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ValidationError, WithJsonSchema

from app.server.anthropic import messages
from app.server.core.limits import few_messages
from app.server.core.request import Asked
from app.server.core.service import Service
from app.server.http.access import dialect_of
from app.server.http.bodies import BodyRoute
from app.server.http.errors import INVALID, ApiError, Dialect
from app.server.http.openapi_responses import OPERATORS, errors, reference
from app.server.http.shapes import Count, Reply, optional
from app.server.http.streams import gone
from app.server.http.validation_errors import misfit
from app.server.openai import chat
from app.server.openai.wire import Wire

Read = TypeVar("Read", bound=BaseModel)


class PlanTarget(Wire):
    """The API of a request to plan."""

    dialect: Dialect | None = optional("The vendor of this request body. Default: from the headers.")


class ChatPlanBody(PlanTarget, chat.ChatBody):
    """A Chat Completions request to plan."""


class MessagePlanBody(PlanTarget, messages.CountBody):
    """A Messages API request to plan."""


PlanBody = Annotated[dict[str, Any], Body(), WithJsonSchema(reference(ChatPlanBody, MessagePlanBody))]


class PlanPart(Reply):
    """A part of the prompt, by position."""

    kind: str
    path: str
    start: Count
    tokens: Count
    tier: Literal["memory", "disk", "none"]
    outcome: Literal["hit", "miss"]
    reason: str


class Plan(Reply):
    """The segments that a request would read and compute."""

    total: Count
    read: Count
    computed: Count
    parts: list[PlanPart]


class Resident(Reply):
    """A segment."""

    key: str
    bytes: Count


class Residency(Reply):
    """The segments in memory."""

    model: str
    fingerprint: str
    bytes: Count
    budget: Count
    segments: list[Resident]


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    def asked_of(body: dict[str, Any], request: Request) -> Asked:
        caller = chat.caller_of(service, request, _text(body.get("cache_salt")))
        if (body.get("dialect") or dialect_of("", request.headers)) == "anthropic":
            return messages.asked_of(_read(MessagePlanBody, body), service.defaults, caller)
        return chat.asked_of(_read(ChatPlanBody, body), service.defaults, caller)

    @router.post(
        "/v1/prompt_cache/plan",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        response_description="The plan.",
        responses=errors(),
    )
    async def plan_request(request: Request, body: PlanBody) -> Plan:
        """Returns which segments a request would read, from which tier, and which it would compute."""
        asked = asked_of(body, request)
        client = request.state.client
        result = await service.planned(
            asked, lambda engine, prompt: engine.outlook(prompt, asked.settings), client, gone(request)
        )
        return Plan.model_validate(result.to_json())

    @router.get(
        "/v1/prompt_cache/residency",
        response_description=f"The segments in memory. {OPERATORS}",
        responses=errors(never=(415,)),
    )
    async def list_residents(request: Request) -> Residency:
        """Lists the segments in memory, so that a router can pick a server."""
        service.require_operator(getattr(request.state, "operator", None))
        engine = service.engine

        def sizes() -> dict[str, int]:
            service.forget_expired(engine)
            return engine.memory_tier.sizes()

        result = await service.look(sizes, request.state.client, gone(request))
        tier = engine.memory_tier
        return Residency(
            model=engine.model.stored.name,
            fingerprint=engine.model.fingerprint,
            bytes=tier.bytes,
            budget=tier.budget,
            segments=[Resident(key=key, bytes=size) for key, size in sorted(result.items())],
        )

    return router


def _read(kind: type[Read], body: dict[str, Any]) -> Read:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise misfit(error.errors(), body) from None


def _text(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise ApiError(INVALID, "cache_salt must be a text.", "cache_salt")
    return given
