"""Endpoints for schedulers: a request's cache plan, and the segments in memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Request
from pydantic import ValidationError, WithJsonSchema

from app.server.anthropic import messages
from app.server.core.limits import few_messages
from app.server.core.request import Asked
from app.server.core.service import Service
from app.server.http.access import dialect_of
from app.server.http.bodies import BodyRoute
from app.server.http.openapi_responses import OPERATORS, errors, reference
from app.server.http.shapes import Count, Reply, optional
from app.server.http.streams import gone
from app.server.http.validation_errors import misfit
from app.server.openai import chat
from app.server.openai.bodies import SALT
from app.server.openai.wire import Wire


class PlanBody(Wire):
    """A request to plan."""

    dialect: Literal["openai", "anthropic"] | None = optional(
        "The vendor of this request body. Default: from the headers."
    )
    cache_salt: str | None = optional(SALT)


class ChatPlanBody(PlanBody, chat.ChatBody):
    """A Chat Completions request to plan."""


class MessagePlanBody(PlanBody, messages.CountBody):
    """A Messages API request to plan."""


GivenBody = Annotated[dict[str, Any], Body(), WithJsonSchema(reference(ChatPlanBody, MessagePlanBody))]


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

    def asked_of(given: dict[str, Any], request: Request) -> Asked:
        dialect = given.get("dialect") or dialect_of("", request.headers)
        kind = MessagePlanBody if dialect == "anthropic" else ChatPlanBody
        try:
            body = kind.model_validate(given)
        except ValidationError as error:
            raise misfit(error.errors(), given) from None
        caller = chat.caller_of(service, request, body.cache_salt)
        if isinstance(body, MessagePlanBody):
            return messages.asked_of(body, service.defaults, caller)
        return chat.asked_of(body, service.defaults, caller)

    @router.post(
        "/v1/prompt_cache/plan",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        responses=errors(),
    )
    async def plan_request(request: Request, body: GivenBody) -> Plan:
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
