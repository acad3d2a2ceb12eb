"""The Models page: the loaded model, and the switch to another one."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import TypedDict

from app.models.model_choice import (
    KnownRow,
    ModelChoice,
    ModelDetails,
    ModelLook,
    details,
    known_rows,
    look_json,
    plain_name,
)
from app.studio.documents.requests import Flag, Nothing, Texts, Words, request
from app.studio.model.local_server import models_of, server_at
from app.studio.model.model_switcher import SWITCH, Switched, in_page_words
from app.studio.model.second_model import ComparedModels, compare_with_model, compare_with_server
from app.studio.pages.page import Page
from app.studio.web.endpoints import endpoint
from app.studio.web.jobs import Job
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.choices import DEVICES, QUANTIZATIONS, RANDOM, WEIGHTS
from engine.base.errors import ModelError, PromptCacheError
from engine.base.tiers import Tier

if TYPE_CHECKING:
    from app.models.model_fit import Fit
    from engine.model.model_info import Look

DTYPES = {
    "auto": "chosen for the model and the device",
    "fp32": "32 bits",
    "bf16": "16 bits, the range of fp32",
    "fp16": "16 bits, half precision",
}


@request
class WantedModel:
    """A model to load.

    Attributes:
        name: "demo", "random:SHAPE", a folder or a GGUF file, or a Hugging Face id.
    """

    name: Words
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    weights: Literal["auto", "packed", "plain"] = "auto"
    quantize: Literal["none", "int8", "int4"] = "none"

    def choice(self) -> ModelChoice:
        """Returns the model's options.

        Raises:
            PromptCacheError: there is no name.
        """
        name = plain_name(self.name)
        if not name:
            raise PromptCacheError(
                "Name a model first: a folder, a GGUF file, or a Hugging Face id (OWNER/NAME)."
            )
        return ModelChoice(name, self.device, self.dtype, self.weights, self.quantize)


@request
class SwitchModel(WantedModel):
    """A model to switch to.

    Attributes:
        key: the key of the new job.
        running: whether runs of the previous model finish or stop.
        apart: whether the previous model may be closed before the new one is loaded.
        fetch: whether to download files from the Hugging Face hub.
    """

    key: Words
    running: Literal["finish", "stop"] = "finish"
    apart: Flag = False
    fetch: Flag = False


@request
class LookAtModel(WantedModel):
    """A model to inspect.

    Attributes:
        ask: whether to query the Hugging Face hub.
    """

    ask: Flag = False


@request
class CompareModel(WantedModel):
    """A model to run a stored run's prompt on.

    Attributes:
        key: the key of the new job.
        run: the id of the stored run.
        apart: whether the loaded model may be closed meanwhile.
    """

    key: Words
    run: Words
    apart: Flag = False


@request
class AskServer:
    """A server with OpenAI's API on this machine.

    Attributes:
        base_url: its base URL, such as http://127.0.0.1:8080/v1.
        api_key: its key; it is not stored.
    """

    base_url: Words
    api_key: Words = field(default="", repr=False)


@request
class CompareServer(AskServer):
    """A server's model to run a stored run's prompt on.

    Attributes:
        key: the key of the new job.
        run: the id of the stored run.
        model: the model's name.
    """

    key: Words
    run: Words
    model: Words


@request
class ForgetModel:
    """A recent model to remove from the list."""

    name: Words


class ServerModels(TypedDict):
    """The models of a server."""

    models: list[str]


class RecentList(TypedDict):
    """The recent models, latest first."""

    recent: list[Annotated[Json, JsonOf(ModelChoice)]]


class Option(TypedDict):
    """An option: its meaning, and why it is unavailable here or ""."""

    value: str
    meaning: str
    why_not: str


class ModelOptions(TypedDict):
    """The options besides the model."""

    device: list[Option]
    dtype: list[Option]
    weights: list[Option]
    quantize: list[Option]


class CatalogueModel(TypedDict):
    """A real model that can be downloaded by name; `bytes` is its file size."""

    name: str
    title: str
    bytes: int
    format: str
    licence: str
    about: str
    here: bool


class ModelsState(TypedDict):
    """The loaded model, the options, the running switch, and other running work.

    There are no options before the first model is loaded.
    """

    loaded: ModelDetails | None
    wanted: Annotated[Json, JsonOf(ModelChoice)]
    options: ModelOptions | None
    switching: JobState[Annotated[Json, JsonOf(Switched)]] | None
    running: int
    recent: list[Annotated[Json, JsonOf(ModelChoice)]]
    catalogue: list[CatalogueModel]
    shapes: list[str]


class Looked(TypedDict):
    """The model of a name; no `look` if it cannot be loaded, or the hub must be queried."""

    look: ModelLook | None
    absent: bool
    sentence: str


class KnownTable(TypedDict):
    """Well-known models."""

    models: list[KnownRow]


class SchemaModule(TypedDict):
    """A module's own tokens and bytes, and the tiers of its segments."""

    path: str
    tokens: int
    bytes: int
    cached: Tier


class SchemaSizes(TypedDict):
    """The size of a schema in the loaded model, each module once; the budgets of memory and disk."""

    model: str
    name: str
    modules: list[SchemaModule]
    anonymous_tokens: int
    tokens: int
    bytes: int
    bytes_per_token: int
    memory: int
    disk: int


class ModelsPage(Page):
    """The server side of the Models page."""

    name, title = "models", "Models"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @endpoint
    def models_state(self, _request: Nothing) -> ModelsState:
        """Returns the loaded model, the options, and the running switch."""
        parts = self._parts
        loading, begun = parts.switching.under_way, parts.opening.number > 0
        switch = loading if loading is not None and loading.name == SWITCH else None
        return {
            "loaded": details(parts.engine.model) if parts.opening.there else None,
            "wanted": asdict(parts.switching.choice),
            "options": offered() if begun else None,  # torch is loaded by then
            "switching": switch.state() if switch is not None else None,
            "running": sum(job is not switch for job in parts.jobs.under_way),
            "recent": [asdict(choice) for choice in parts.switching.recent.kept()],
            "catalogue": catalogue() if begun else [],
            "shapes": shapes() if begun else [],
        }

    @endpoint
    def look_at_model(self, request: LookAtModel) -> Looked:
        """Inspects a model and whether it fits; queries the hub only on request."""
        self._require_begun()
        from engine.model.model_info import AbsentError

        try:
            look, fit = self._fit(request.choice(), ask=request.ask)
        except AbsentError as absent:
            return {"look": None, "absent": True, "sentence": str(absent)}
        except ModelError as error:
            return {"look": None, "absent": False, "sentence": in_page_words(str(error))}
        return {"look": look_json(look, fit), "absent": False, "sentence": fit.sentence}

    @endpoint
    def switch_model(self, request: SwitchModel) -> JobState[Annotated[Json, JsonOf(Switched)]]:
        """Starts to load another model; it answers once it is loaded."""
        self._require_begun()
        choice = request.choice()
        apart = self._must_part(choice, fetch=request.fetch, apart=request.apart)
        job: Job = self._parts.switching.start(request.key, choice, request.running, apart=apart)
        return job.state()

    @endpoint
    def compare_model(self, request: CompareModel) -> JobState[Annotated[Json, JsonOf(ComparedModels)]]:
        """Starts to run a stored run's prompt on another model; the loaded one answers again afterwards."""
        self._require_begun()
        parts, choice = self._parts, request.choice()
        apart = self._must_part(choice, fetch=False, apart=request.apart)
        (first,) = parts.kept.find([request.run])
        job = compare_with_model(request.key, parts.switching, parts.runs, first, choice, apart=apart)
        return job.state()

    @endpoint
    def server_models(self, request: AskServer) -> ServerModels:
        """Returns the models of a server on this machine."""
        return {"models": models_of(server_at(request.base_url, key=request.api_key))}

    @endpoint
    def compare_server(self, request: CompareServer) -> JobState[Annotated[Json, JsonOf(ComparedModels)]]:
        """Starts to run a stored run's prompt on a server of this machine."""
        if not request.model.strip():
            raise PromptCacheError("Name the server's model first.")
        server = server_at(request.base_url, request.model, request.api_key)
        (first,) = self._parts.kept.find([request.run])
        job = compare_with_server(request.key, self._parts.jobs, self._parts.kept, first, server)
        return job.state()

    @endpoint
    def forget_model(self, request: ForgetModel) -> RecentList:
        """Removes a model from the recent ones; its files remain."""
        self._parts.switching.recent.remove(request.name)
        return {"recent": [asdict(choice) for choice in self._parts.switching.recent.kept()]}

    @endpoint
    def known_models(self, _request: Nothing) -> KnownTable:
        """Returns the bytes per token in well-known models."""
        self._require_begun()
        return {"models": known_rows()}

    @endpoint
    def schema_sizes(self, request: Texts) -> SchemaSizes:
        """Returns the schema's size in the loaded model, each module once."""
        base = self._parts.library.base_of(request.origin)
        if not self._parts.documents.schema(request.schema, base).ok:
            raise PromptCacheError("The schema has errors. Fix them on the Author page, then try again.")
        with self._parts.tokenizing:
            engine = self._parts.engine
            prepared = engine.schema(request.schema, base=base)
            layout = prepared.layout()
        tokens = layout.anonymous_tokens + sum(module.tokens for module in layout.modules)
        return {
            "model": engine.model.name,
            "name": prepared.name,
            "modules": [
                {"path": size.path, "tokens": size.tokens, "bytes": size.bytes, "cached": size.cached}
                for size in layout.modules
            ],
            "anonymous_tokens": layout.anonymous_tokens,
            "tokens": tokens,
            "bytes": tokens * engine.model.bytes_per_token,
            "bytes_per_token": engine.model.bytes_per_token,
            "memory": engine.memory_tier.budget,
            "disk": engine.store.settings.budget,
        }

    def _require_begun(self) -> None:
        """Rejects requests that need torch, which loads with the first model."""
        if not self._parts.opening.number:
            raise PromptCacheError("The model is still loading. Try again in a moment.")

    def _must_part(self, choice: ModelChoice, *, fetch: bool, apart: bool) -> bool:
        """Returns whether the loaded model must be closed before another one is loaded.

        Args:
            choice: the other model.
            fetch: whether its files may be downloaded.
            apart: whether the loaded model may be closed.

        Raises:
            PromptCacheError: the other model cannot be loaded, or does not fit.
        """
        from engine.model.model_info import AbsentError

        try:
            try:
                _, fit = self._fit(choice, ask=False)
            except AbsentError:
                if not fetch:
                    raise
                _, fit = self._fit(choice, ask=True)
        except ModelError as error:
            raise PromptCacheError(in_page_words(str(error))) from error
        if fit.verdict == "refused" or (fit.verdict == "apart" and not apart):
            raise PromptCacheError(fit.sentence)
        return fit.verdict == "apart"

    def _fit(self, choice: ModelChoice, *, ask: bool) -> tuple[Look, Fit]:
        from app.models.model_fit import Beside, fit
        from engine.model.model_info import look, look_up

        find = look_up if ask else look
        model = find(choice.name, device=choice.device, dtype=choice.dtype, quantize=choice.quantize)
        loaded = self._parts.opening.there
        return model, fit(model, Beside(*self._parts.switching.beside) if loaded else None)


def catalogue() -> list[CatalogueModel]:
    """Returns real models to download, and whether their files are present."""
    from engine.checkpoint.model_catalogue import CATALOGUE, here

    return [
        {
            "name": model.name,
            "title": model.title,
            "bytes": model.bytes,
            "format": model.format,
            "licence": model.licence,
            "about": model.about,
            "here": here(model.name) is not None,
        }
        for model in CATALOGUE.values()
    ]


def shapes() -> list[str]:
    """Returns names of models with random weights."""
    from engine.checkpoint.synthetic import shapes as named

    return [f"{RANDOM}{shape}" for shape in named()]


def offered() -> ModelOptions:
    """Returns the options besides the model, with those that this machine lacks."""
    from engine.model.devices import missing

    lacking = missing()
    return {
        "device": [
            {"value": key, "meaning": words, "why_not": lacking.get(key, "")}
            for key, words in DEVICES.items()
        ],
        "dtype": [{"value": key, "meaning": words, "why_not": ""} for key, words in DTYPES.items()],
        "weights": [{"value": key, "meaning": words, "why_not": ""} for key, words in WEIGHTS.items()],
        "quantize": [{"value": key, "meaning": words, "why_not": ""} for key, words in QUANTIZATIONS.items()],
    }
