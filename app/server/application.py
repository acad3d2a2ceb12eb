"""The application: routes, error handlers and access checks."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route

from app.server import models, recent_requests, schemas
from app.server.anthropic import cache_plan, messages
from app.server.core.access_log import Noting
from app.server.core.service import Service, State
from app.server.decisions import decisions, relevance, system_one
from app.server.http.absolute_urls import taking_urls
from app.server.http.access import Access, Application, Door, Receive, Scope, Send, dialect_of
from app.server.http.endpoints import Endpoints
from app.server.http.errors import FAULT, NO_METHOD, RETRY_SECONDS, ApiError, error_of
from app.server.http.openapi_responses import OPERATORS, errors
from app.server.http.shapes import Reply
from app.server.http.truncate import cut
from app.server.http.validation_errors import misfit
from app.server.ollama import answers as ollama_answers
from app.server.ollama import models as ollama_models
from app.server.openai import chat, completions, embeddings, responses
from app.server.openapi import description
from engine.base.errors import PromptCacheError

EXPOSED = ["x-request-id", "request-id", "x-typesafe-request-id", "retry-after"]


class Health(Reply):
    """The state of the server."""

    status: State


def application(service: Service) -> FastAPI:
    """Returns the routes of the server, without access checks."""
    app = FastAPI(
        title="Prompt Cache Studio",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,  # only some clients follow redirects
    )
    app.openapi = partial(description, app)  # type: ignore[method-assign]
    app.state.figures = service.figures
    questions = (decisions, system_one, relevance)
    parts = (chat, completions, responses, embeddings, *questions, messages, models)
    resources = (schemas, cache_plan, recent_requests, ollama_answers, ollama_models)
    routers = [part.routes(service) for part in (*parts, *resources)]
    for router in routers:
        app.include_router(router)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={503: {"model": Health}})
    async def health(response: Response) -> Health:
        """Returns the state of the server."""
        response.status_code = 200 if service.state == "ok" else 503
        return Health(status=service.state)

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        response_description=f"Metrics in Prometheus' text format. {OPERATORS}",
        responses=errors(never=(415, 429)),
    )
    async def metrics(request: Request) -> Response:
        """Returns the metrics in Prometheus' text format."""
        service.require_operator(getattr(request.state, "operator", None))
        return Response(service.figures.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [*app.routes, *itertools.chain.from_iterable(router.routes for router in routers)]
    app.state.endpoints = Endpoints(route for route in routes if isinstance(route, Route))

    async def told(request: Request, error: Exception) -> Response:
        return _told(request, error)

    for kind in (ApiError, PromptCacheError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, told)
    return app


def behind_the_door(app: FastAPI, access: Access) -> Application:
    """Wraps the application with CORS for allowed sites, access checks and the request log."""
    door: Any = Door(app, access)
    if access.origins:
        door = _crossing(door, access.origins)
    return taking_urls(Noting(door, app.state.figures, app.state.endpoints.name_of))


def _crossing(door: Application, origins: frozenset[str]) -> Application:
    """Adds CORS for allowed sites, outside the access checks, so that their pages can read errors."""
    allowing = CORSMiddleware(
        door,
        allow_origins=sorted(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        allow_private_network=True,  # browsers ask for it if an internet site calls this machine
        expose_headers=EXPOSED,
    )

    async def entered(scope: Scope, receive: Receive, send: Send) -> None:
        origin = next((value for name, value in scope.get("headers", ()) if name == b"origin"), b"")
        await (allowing if origin.decode("latin-1") in origins else door)(scope, receive, send)

    return entered


def _told(request: Request, error: Exception) -> Response:
    """Responds with an error in the client's API."""
    request_id = getattr(request.state, "request_id", "")
    endpoints: Endpoints = request.app.state.endpoints
    match error:
        case RequestValidationError():
            api_error = misfit(error.errors(), error.body)
        case HTTPException(status_code=404 | 405):
            api_error = endpoints.refusal(request.method, request.scope["path"])
        case HTTPException():
            api_error = ApiError(FAULT, f"{error.detail}: {cut(request.method)} {cut(request.url.path)}.")
        case _:
            api_error = error_of(error, request_id)
    dialect = dialect_of(request.url.path, request.headers)
    headers = {"retry-after": str(RETRY_SECONDS)} if api_error.kind.retry else {}
    if api_error.kind is NO_METHOD:
        headers["allow"] = ", ".join(endpoints.methods_at(request.scope["path"]))
    if api_error.kind is FAULT:  # close the connection after an unexpected error
        headers["connection"] = "close"
    return JSONResponse(
        api_error.body(dialect, request_id).model_dump(), api_error.kind.status_in(dialect), headers
    )
