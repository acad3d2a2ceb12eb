"""The list of models: the served model under all its names, in the format of the client's API."""

from __future__ import annotations

import datetime
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.server.core.service import Service
from app.server.http.access import dialect_of
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Count, Reply

FORMAT = "Anthropic's format if the request has the header anthropic-version."


class ModelMeta(Reply):
    """Facts about a model, by llama-server's names."""

    n_ctx_train: Count = Field(description="The most tokens of a prompt with its answer.")
    n_vocab: Count


class OpenAIModel(Reply):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "prompt-cache-studio"
    max_model_len: Count = Field(description="The context length, by vLLM's name.")
    meta: ModelMeta


class TypeSafeModel(Reply):
    """A model in the form of TypeSafe's API."""

    name: str
    description: str = "The model of this server."
    release_date: str


class OpenAIModels(Reply):
    """The model under all its names. OpenAI's clients read `data`, TypeSafe's read `models`."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]
    models: list[TypeSafeModel]


class AnthropicModel(Reply):
    """A model."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: Count
    max_tokens: Count


class AnthropicModels(Reply):
    """The model under all its names."""

    data: list[AnthropicModel]
    has_more: Literal[False] = False
    first_id: str
    last_id: str


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter()

    def in_openai(name: str) -> OpenAIModel:
        model = service.engine.model
        meta = ModelMeta(n_ctx_train=model.context_length, n_vocab=int(model.config.vocab_size))
        return OpenAIModel(id=name, created=service.created, max_model_len=model.context_length, meta=meta)

    def in_anthropic(name: str) -> AnthropicModel:
        created = datetime.datetime.fromtimestamp(service.created, datetime.UTC)
        return AnthropicModel(
            id=name,
            display_name=name,
            created_at=created.isoformat().replace("+00:00", "Z"),
            max_input_tokens=service.engine.model.context_length - 1,
            max_tokens=service.engine.model.context_length,
        )

    @router.get("/v1/models", response_description=FORMAT, responses=errors(never=(415, 429)))
    async def list_models(request: Request) -> OpenAIModels | AnthropicModels:
        """Lists the model."""
        names = service.names()
        if dialect_of("", request.headers) == "openai":
            day = datetime.datetime.fromtimestamp(service.created, datetime.UTC).date().isoformat()
            of_typesafe = [TypeSafeModel(name=name, release_date=day) for name in names]
            return OpenAIModels(data=[in_openai(name) for name in names], models=of_typesafe)
        models = [in_anthropic(name) for name in names]
        return AnthropicModels(data=models, first_id=names[0], last_id=names[-1])

    @router.get("/v1/models/{name:path}", response_description=FORMAT, responses=errors(never=(415, 429)))
    async def retrieve_model(name: str, request: Request) -> OpenAIModel | AnthropicModel:
        """Describes the model."""
        service.require_model(name)
        return in_openai(name) if dialect_of("", request.headers) == "openai" else in_anthropic(name)

    return router
