"""OpenAI's Embeddings API."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field, model_validator

from app.server.core.pml_requests import client_schema
from app.server.core.request import Caller, Over
from app.server.core.schema_files import SchemaFiles
from app.server.core.service import Service
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, TOO_LONG, ApiError, error_of, unsupported
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Count, Reply, optional
from app.server.http.streams import gone
from app.server.openai.bodies import MODEL, SALT
from app.server.openai.chat import caller_of
from app.server.openai.scored_text import prompts_of
from app.server.openai.wire import Wire, refuse_what_is_not_built
from engine import Engine
from engine.base.errors import SettingsError
from engine.base.events import Listener
from engine.embeddings.embedder import Embedder, TextError, Vectors
from engine.embeddings.templates import BUILT_IN
from engine.pml import PromptError
from engine.prepared import PreparedSchema

_MOST = 2048  # inputs of a request, as in OpenAI's API
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "add_special_tokens": ((True,), "send tokens to control them."),
    "embd_normalize": ((2,), "use normalize."),
    "embed_dtype": (("float32",), "embeddings are float32."),
    "endianness": (("native", "little"), "embeddings are little-endian."),
}


class EmbeddingBody(Wire):
    """An Embeddings request."""

    model: str = Field(description=MODEL)
    input: str | Many[str] | Many[Whole] | Many[Many[Whole]] = Field(
        description="A text or its tokens, or a list of 1 to 2,048 of them."
    )
    encoding_format: Literal["float", "base64"] | None = optional(
        "`base64` encodes little-endian float32 numbers.", "float"
    )
    dimensions: Whole | None = optional("The number of leading dimensions to return. Default: all.")
    pooling: Literal["last", "mean"] | None = optional("`last` token, or `mean` over the text.", "last")
    template: str | None = optional(
        "`prompteol`, `echo`, or a schema, by name or as PML, whose parameter `text` takes each text."
    )
    normalize: bool | None = optional("Whether to scale embeddings to length 1.", True)
    cache_salt: str | None = optional(SALT)

    @model_validator(mode="before")
    @classmethod
    def _refuse_messages(cls, body: Any) -> Any:
        """Refuses a conversation before its missing input."""
        if isinstance(body, dict) and body.get("messages") is not None:
            raise unsupported("messages", "send each text in input; template takes a schema with turns.")
        return body


class Embedding(Reply):
    """The embedding of a text."""

    object: Literal["embedding"] = "embedding"
    index: Count
    embedding: list[float] | str


class EmbeddingUsage(Reply):
    """The tokens of the request."""

    prompt_tokens: Count
    total_tokens: Count


class EmbeddingList(Reply):
    """The embeddings of all texts, in order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post("/v1/embeddings", responses=errors("openai"))
    async def create_embedding(body: EmbeddingBody, request: Request) -> EmbeddingList:
        """Embeds texts."""
        vectors, usage = await embedded(service, body, request)
        counts = EmbeddingUsage(prompt_tokens=usage.prompt, total_tokens=usage.prompt)
        return EmbeddingList(data=_data(vectors, body.encoding_format), model=body.model, usage=counts)

    return router


async def embedded(service: Service, body: EmbeddingBody, request: Request) -> tuple[Vectors, Usage]:
    """Returns the vectors of a request.

    Raises:
        ApiError: a field or a text is invalid, or the server is full or not ready.
    """
    refuse_what_is_not_built(body, service.defaults, _REFUSED)
    texts = prompts_of(body.input, "input", _MOST)
    noted = request.state.noted
    noted.asks(body.model)
    service.require_model(body.model)
    engine, files, caller = service.engine, service.schemas, caller_of(service, request, body.cache_salt)

    def work(listener: Listener) -> tuple[Vectors, Usage]:
        service.forget_expired(engine)
        template = _template(engine, files, body.template, caller)
        try:
            embedder = _embedder(engine, template, body)
            made = embedder.embed(texts, listener=listener)
        except TextError as error:
            place = "input" if texts is not body.input else f"input[{error.number}]"
            raise _refusal(error, engine, place) from error
        return made.vectors, Usage(sum(made.tokens))

    vectors, usage = await service.work(work, gone(request), noted)
    noted.done(usage)
    return vectors, usage


def _template(
    engine: Engine, files: SchemaFiles, given: str | None, caller: Caller
) -> str | PreparedSchema | None:
    """Returns a request's template; raises ApiError if it is unknown or invalid."""
    if given is None or given in BUILT_IN:
        return given
    return client_schema(engine, files, Over(given, owner=caller.owner), caller.salt, "template")


def _embedder(engine: Engine, template: str | PreparedSchema | None, body: EmbeddingBody) -> Embedder:
    """Returns the embedder of a request; raises ApiError of the invalid field."""
    try:
        return engine.embedder(
            body.pooling or "last",
            template,
            dimensions=body.dimensions,
            normalize=body.normalize is not False,
        )
    except (PromptError, SettingsError) as error:
        field = "dimensions" if str(error).startswith("dimensions") else "template"
        raise error_of(error, prompt=field) from error


def _refusal(error: TextError, engine: Engine, field: str) -> ApiError:
    """Returns the error for a text that cannot be embedded."""
    if error.tokens:
        words = f"{field} is too long: {error.tokens} tokens > {engine.model.context_length} maximum"
        return ApiError(TOO_LONG, words, field)
    return ApiError(INVALID, f"{field} {error.why}", field)


def _data(vectors: Vectors, encoding: str | None) -> list[Embedding]:
    """Returns embeddings as lists of numbers, or in base64."""
    if encoding == "base64":
        rows = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    else:
        rows = vectors.tolist()
    return [Embedding(index=number, embedding=row) for number, row in enumerate(rows)]
