"""The list of models: the served model under all its names, in the format of the client's API."""

from __future__ import annotations

import datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from app.server.core.service import Service
from app.server.http.access import dialect_of


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter()

    def told(name: str, request: Request) -> dict[str, Any]:
        if dialect_of("", request.headers) == "openai":
            return {
                "id": name,
                "object": "model",
                "created": service.created,
                "owned_by": "prompt-cache-studio",
            }
        created = datetime.datetime.fromtimestamp(service.created, datetime.UTC)
        return {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": created.isoformat().replace("+00:00", "Z"),
            "lifecycle": "active",
            "max_input_tokens": service.engine.model.context_length - 1,
            "max_tokens": service.engine.model.context_length,
        }

    @router.get("/v1/models")
    async def list_models(request: Request) -> Response:
        """Lists the model."""
        names = service.names()
        models = [told(name, request) for name in names]
        if dialect_of("", request.headers) == "openai":
            return JSONResponse({"object": "list", "data": models})
        return JSONResponse({"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]})

    @router.get("/v1/models/{name:path}")
    async def retrieve_model(name: str, request: Request) -> Response:
        """Describes the model."""
        service.require_model(name)
        return JSONResponse(told(name, request))

    return router
