"""Ollama's endpoints that describe: /api/tags, /api/ps, /api/show and /api/version."""

from __future__ import annotations

from fastapi import APIRouter

from app.server.core.service import Service
from app.server.http.bodies import BodyRoute
from app.server.http.errors import INVALID, ApiError
from app.server.http.openapi_responses import errors
from app.server.ollama import shapes
from app.server.ollama.answers import LATEST, stamp
from engine.model.model import Model
from engine.prompt.conversation.tools import ToolsError

VERSION = "0.13.0"
"""The version of Ollama whose API this is; clients require one."""
NEVER = "9999-12-31T23:59:59Z"  # when the model is unloaded


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    def described(name: str) -> shapes.OllamaModel:
        model = service.engine.model
        return shapes.OllamaModel(
            name=name,
            model=name,
            modified_at=stamp(service.created),
            size=model.stored.bytes,
            digest=model.fingerprint,
            details=_details(model),
        )

    @router.get("/api/version", responses=errors("ollama", never=(415, 429)))
    async def version() -> shapes.Version:
        """Returns the version of the API."""
        return shapes.Version(version=VERSION)

    @router.get("/api/tags", responses=errors("ollama", never=(415, 429)))
    async def tags() -> shapes.OllamaModels:
        """Lists the model under all its names."""
        return shapes.OllamaModels(models=[described(name) for name in service.names()])

    @router.get("/api/ps", responses=errors("ollama", never=(415, 429)))
    async def loaded() -> shapes.LoadedModels:
        """Describes the loaded model."""
        one, model = described(service.names()[0]), service.engine.model
        size = 0 if model.network.device.type == "cpu" else model.stored.bytes
        entry = shapes.LoadedModel(
            **vars(one), expires_at=NEVER, size_vram=size, context_length=model.context_length
        )
        return shapes.LoadedModels(models=[entry])

    @router.post("/api/show", responses=errors("ollama"))
    async def show(body: shapes.OllamaShowBody) -> shapes.ModelDescription:
        """Describes the model."""
        name = (body.model or body.name).removesuffix(LATEST)
        if not name:
            raise ApiError(INVALID, "The name of the model is missing. Send it as model.", "model")
        service.require_model(name)
        model = service.engine.model
        family = str(model.config.model_type)
        own = {**model.generation.settings}
        template = model.tokenizer.chat_template
        return shapes.ModelDescription(
            parameters="\n".join(f"{key} {value}" for key, value in own.items()),
            template=template if isinstance(template, str) else "",
            details=_details(model),
            model_info={
                "general.architecture": family,
                "general.basename": model.stored.name,
                f"{family}.context_length": model.context_length,
                f"{family}.vocab_size": int(model.config.vocab_size),
            },
            capabilities=["completion", *(["tools"] if _calls_tools(model) else []), "embedding"],
            modified_at=stamp(service.created),
        )

    return router


def _details(model: Model) -> shapes.Details:
    family = str(model.config.model_type)
    kind, _, numbers = model.stored.format.partition(" ")
    return shapes.Details(format=kind.lower(), family=family, families=[family], quantization_level=numbers)


def _calls_tools(model: Model) -> bool:
    try:
        model.chat.require_parser()
    except ToolsError:
        return False
    return True
