"""The Models page: the loaded model, and another in its place."""

from __future__ import annotations

from dataclasses import asdict
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
from app.studio.model.model_switcher import Switched, in_page_words
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
    "auto": "what suits the model and the device",
    "fp32": "32 bits",
    "bf16": "16 bits, the range of fp32",
    "fp16": "16 bits, half precision",
}


@request
class WantedModel:
    """A model as it is asked for.

    Attributes:
        name: "demo", "random:SHAPE", a folder or a GGUF file, or a Hugging Face id.
    """

    name: Words
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    weights: Literal["auto", "packed", "plain"] = "auto"
    quantize: Literal["none", "int8", "int4"] = "none"

    def choice(self) -> ModelChoice:
        """Returns it as models are opened.

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
    """A model that is to answer.

    Attributes:
        key: key of the work that begins.
        running: whether what the former one computes ends first, or is stopped.
        apart: whether the former one may go before the other is loaded.
        fetch: whether files may be fetched from the Hugging Face hub.
    """

    key: Words
    running: Literal["finish", "stop"] = "finish"
    apart: Flag = False
    fetch: Flag = False


@request
class LookAtModel(WantedModel):
    """A model that may be loaded.

    Attributes:
        ask: whether the Hugging Face hub is asked about it.
    """

    ask: Flag = False


@request
class ForgetModel:
    """A model that was loaded before."""

    name: Words


class RecentList(TypedDict):
    """The models that were loaded before, latest first."""

    recent: list[Annotated[Json, JsonOf(ModelChoice)]]


class Option(TypedDict):
    """A value that can be chosen: what it means, and why it cannot be chosen here, "" where it can."""

    value: str
    meaning: str
    why_not: str


class ModelOptions(TypedDict):
    """What can be chosen besides the model."""

    device: list[Option]
    dtype: list[Option]
    weights: list[Option]
    quantize: list[Option]


class CatalogueModel(TypedDict):
    """A real model that can be fetched by its name; `bytes` are those of its file."""

    name: str
    title: str
    bytes: int
    format: str
    licence: str
    about: str
    here: bool


class ModelsState(TypedDict):
    """The loaded model, what can be chosen, the switch that goes on, and other work that does.

    Without a first model nothing can be chosen yet.
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
    """What was found under a name; no `look` where it cannot be loaded, or only the hub may know it."""

    look: ModelLook | None
    absent: bool
    sentence: str


class KnownTable(TypedDict):
    """Well-known models."""

    models: list[KnownRow]


class SchemaModule(TypedDict):
    """A module's own tokens and bytes, and where its segments are."""

    path: str
    tokens: int
    bytes: int
    cached: Tier


class SchemaSizes(TypedDict):
    """What a schema takes in the loaded model, every module once; budgets of memory and of the disk."""

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
        """The loaded model, what can be chosen, and the switch that goes on."""
        parts = self._parts
        switch, begun = parts.switching.under_way, parts.opening.number > 0
        return {
            "loaded": details(parts.engine.model) if parts.opening.there else None,
            "wanted": asdict(parts.switching.choice),
            "options": offered() if begun else None,  # torch is there by then
            "switching": switch.state() if switch is not None else None,
            "running": sum(job is not switch for job in parts.jobs.under_way),
            "recent": [asdict(one) for one in parts.switching.recent.kept()],
            "catalogue": catalogue() if begun else [],
            "shapes": shapes() if begun else [],
        }

    @endpoint
    def look_at_model(self, request: LookAtModel) -> Looked:
        """What is under a name and whether it fits; the hub is asked only where that is wanted."""
        self._require_begun()
        from engine.model.model_info import AbsentError

        try:
            look, found = self._fit(request.choice(), ask=request.ask)
        except AbsentError as absent:
            return {"look": None, "absent": True, "sentence": str(absent)}
        except ModelError as error:
            return {"look": None, "absent": False, "sentence": in_page_words(str(error))}
        return {"look": look_json(look, found), "absent": False, "sentence": found.sentence}

    @endpoint
    def switch_model(self, request: SwitchModel) -> JobState[Annotated[Json, JsonOf(Switched)]]:
        """Begins to load another model; it answers once it is there."""
        self._require_begun()
        from engine.model.model_info import AbsentError

        choice = request.choice()
        try:
            try:
                _, found = self._fit(choice, ask=False)
            except AbsentError:
                if not request.fetch:
                    raise
                _, found = self._fit(choice, ask=True)
        except ModelError as error:
            raise PromptCacheError(in_page_words(str(error))) from error
        if found.verdict == "refused" or (found.verdict == "apart" and not request.apart):
            raise PromptCacheError(found.sentence)
        apart = found.verdict == "apart"
        job: Job = self._parts.switching.start(request.key, choice, request.running, apart=apart)
        return job.state()

    @endpoint
    def forget_model(self, request: ForgetModel) -> RecentList:
        """Takes a model out of the recent ones; nothing of it is deleted."""
        self._parts.switching.recent.remove(request.name)
        return {"recent": [asdict(one) for one in self._parts.switching.recent.kept()]}

    @endpoint
    def known_models(self, _request: Nothing) -> KnownTable:
        """What one token takes in well-known models."""
        self._require_begun()
        return {"models": known_rows()}

    @endpoint
    def schema_sizes(self, request: Texts) -> SchemaSizes:
        """What the schema takes in the loaded model, every module once."""
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
                {"path": one.path, "tokens": one.tokens, "bytes": one.bytes, "cached": one.cached}
                for one in layout.modules
            ],
            "anonymous_tokens": layout.anonymous_tokens,
            "tokens": tokens,
            "bytes": tokens * engine.model.bytes_per_token,
            "bytes_per_token": engine.model.bytes_per_token,
            "memory": engine.memory_tier.budget,
            "disk": engine.store.settings.budget,
        }

    def _require_begun(self) -> None:
        """Refuses what needs torch, which comes with the first model."""
        if not self._parts.opening.number:
            raise PromptCacheError("The model is still being loaded. Try again in a moment.")

    def _fit(self, choice: ModelChoice, *, ask: bool) -> tuple[Look, Fit]:
        from app.models.model_fit import Beside, fit
        from engine.model.model_info import look, look_up

        find = look_up if ask else look
        found = find(choice.name, device=choice.device, dtype=choice.dtype, quantize=choice.quantize)
        there = self._parts.opening.there
        return found, fit(found, Beside(*self._parts.switching.beside) if there else None)


def catalogue() -> list[CatalogueModel]:
    """Real models that can be fetched, and whether they are here."""
    from engine.checkpoint.model_catalogue import CATALOGUE, here

    return [
        {
            "name": one.name,
            "title": one.title,
            "bytes": one.bytes,
            "format": one.format,
            "licence": one.licence,
            "about": one.about,
            "here": here(one.name) is not None,
        }
        for one in CATALOGUE.values()
    ]


def shapes() -> list[str]:
    """Names of models of random weights."""
    from engine.checkpoint.synthetic import shapes as named

    return [f"{RANDOM}{one}" for one in named()]


def offered() -> ModelOptions:
    """What can be chosen besides the model, and what this machine cannot do."""
    from engine.model.devices import missing

    lacking = missing()
    return {
        "device": [
            {"value": one, "meaning": words, "why_not": lacking.get(one, "")}
            for one, words in DEVICES.items()
        ],
        "dtype": [{"value": one, "meaning": words, "why_not": ""} for one, words in DTYPES.items()],
        "weights": [{"value": one, "meaning": words, "why_not": ""} for one, words in WEIGHTS.items()],
        "quantize": [{"value": one, "meaning": words, "why_not": ""} for one, words in QUANTIZATIONS.items()],
    }
