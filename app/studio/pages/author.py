"""The Author page: checks, edits and sizes of the two documents, runs, and what reuse changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

import gradio as gr
import plotly.graph_objects as go
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from app.studio import documents
from app.studio.answers import JobState, Json, JsonOf
from app.studio.chart import ttft_chart
from app.studio.documents import (
    Exported,
    Mark,
    Picks,
    TreeRow,
    WordsOfBoth,
    diagnostics_json,
    digest,
    digest_of_both,
    first_error,
)
from app.studio.endpoints import endpoint, read
from app.studio.jobs import Job
from app.studio.pages.page import Page, host
from app.studio.parts import Parts
from app.studio.requests import (
    AddScaffold,
    Check,
    EditPrompt,
    Export,
    Find,
    FixDocument,
    Measure,
    OneRun,
    OneText,
    Texts,
    Work,
)
from app.studio.runs import RunFrame, RunRequest
from app.studio.searching import Finder
from app.studio.settings import PageSettings
from engine.errors import PromptCacheError
from engine.inference.findings import Fidelity
from engine.inference.params import RunSettings
from engine.pml import Diagnostic, PromptError, add_scaffold, parse_prompt
from engine.tiers import Tier

if TYPE_CHECKING:
    from engine import PreparedSchema

_WORK = TypeAdapter(Work)
RUNS_AT_ONCE = 8  # tabs; each that is followed keeps one of the threads that answer the page


class Basis(TypedDict):
    """The schema that the prompt was checked against; its tree where the page does not know it."""

    digest: str
    stale: bool
    tree: NotRequired[list[TreeRow]]
    words: NotRequired[WordsOfBoth]


class CheckedSchema(TypedDict):
    """Marks of the schema; its name, "" where it has none."""

    diagnostics: list[Mark]
    name: str
    ok: bool
    modules: int


class CheckedPrompt(TypedDict):
    """Marks of the prompt; the name of the schema that it is written for."""

    diagnostics: list[Mark]
    name: str


class CheckedTexts(TypedDict):
    """One look at both documents; `texts` names the two of them."""

    texts: str
    schema: CheckedSchema
    prompt: CheckedPrompt
    basis: Basis
    picks: Picks


class ModuleSize(TypedDict):
    """Tokens of a module, its own and all it holds; bytes of its keys and values, and where they are."""

    tokens: int
    total: int
    bytes: int
    cached: Tier


class Piece(TypedDict):
    """A part of the prompt along its positions."""

    kind: Literal["anonymous", "module", "argument", "text"]
    path: str
    start: int
    tokens: int
    cached: Tier
    bytes: int
    label: str


class Strip(TypedDict):
    """The prompt along its positions."""

    pieces: Annotated[list[Json], JsonOf(list[Piece])]
    total: int
    cached: int
    new: int


class MarksOfBoth(TypedDict):
    """Marks of both documents."""

    schema: list[Mark]
    prompt: list[Mark]


class Measured(TypedDict):
    """Sizes by module path, and what only a tokenizer can see."""

    sizes: dict[str, ModuleSize]
    positions: NotRequired[int]
    strip: Strip | None
    diagnostics: MarksOfBoth


class FoundModules(TypedDict):
    """Paths of modules, the best first."""

    paths: list[str]


class Prompted(TypedDict):
    """A prompt after an edit."""

    prompt: str


class Written(TypedDict):
    """A text after an edit."""

    text: str


class Counted(TypedDict):
    """A number of tokens."""

    tokens: int


class OldRun(TypedDict):
    """An earlier run of this session."""

    run: RunFrame


class AuthorPage(Page):
    """The server side of the Author page."""

    name, title = "author", "Author"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._documents, self._library = parts, parts.documents, parts.library
        self._runs, self._jobs, self._tokenizing = parts.runs, parts.jobs, parts.tokenizing
        self._finder = Finder()

    def build(self, blocks: gr.Blocks, shell: gr.HTML) -> None:
        """Puts the editors, the chart and the list of runs into the column."""
        host(self.name)
        with gr.Column(elem_id="ttft"):
            chart = gr.Plot(self.chart(), show_label=False, container=False, elem_id="ttft-chart")
            host("history")

        def run(event: gr.EventData) -> Iterator[tuple[str, go.Figure | dict[str, Any]]]:
            for frame, figure in self.run(getattr(event, "request", None)):
                yield frame, gr.skip() if figure is None else figure

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        shell.run(run, None, [shell, chart], concurrency_limit=RUNS_AT_ONCE, **quiet)
        blocks.load(self.chart, None, chart, **quiet)

    # Documents

    @endpoint
    def check(self, request: Check) -> CheckedTexts:
        """Faults of both documents, the picks, and the module tree if it is not the one the page `known`s."""
        schema, prompt = request.schema, request.prompt
        checked = self._documents.check(schema, prompt, fallback=request.fallback, base=self._base(request))
        tree = checked.basis.tree
        basis: Basis = {"digest": digest(checked.basis.source), "stale": checked.stale}
        if basis["digest"] != request.known:
            basis["tree"] = documents.tree_json(tree) if tree else []
            basis["words"] = documents.words_json(tree)
        own, of_prompt = checked.schema.tree, checked.prompt.tree
        return {
            "texts": digest_of_both(schema, prompt),
            "schema": {
                "diagnostics": diagnostics_json(checked.schema.diagnostics, schema),
                "name": own.name if own else "",
                "ok": checked.schema.ok,
                "modules": len(own.modules()) if own else 0,
            },
            "prompt": {
                "diagnostics": diagnostics_json(checked.of_prompt, prompt),
                "name": (of_prompt.schema if of_prompt else None) or "",
            },
            "basis": basis,
            "picks": documents.picks_json(tree, prompt) if tree else {"paths": [], "arguments": {}},
        }

    @endpoint
    def measure(self, request: Measure) -> Measured:
        """Tokens of every module, of the prompt along its positions, and faults that need a tokenizer."""
        schema, prompt, base = request.schema, request.prompt, self._base(request)
        if not self._documents.schema(schema, base).ok:
            return {"sizes": {}, "strip": None, "diagnostics": {"schema": [], "prompt": []}}
        settings = PageSettings.sight(request.settings)
        with self._tokenizing:
            try:
                prepared = self._parts.engine.schema(schema, base=base)
            except PromptError as error:
                found = diagnostics_json(error.diagnostics, schema)
                return {"sizes": {}, "strip": None, "diagnostics": {"schema": found, "prompt": []}}
            layout = prepared.layout(scope=settings.scope)
            in_schema = prepared.check(scope=settings.scope)
            in_prompt, strip = _measured(prepared, prompt, settings)
        return {
            "sizes": {
                module.path: {
                    "tokens": module.tokens,
                    "total": module.total_tokens,
                    "bytes": module.bytes,
                    "cached": module.cached,
                }
                for module in layout.modules
            },
            "positions": layout.total_positions,
            "strip": strip,
            "diagnostics": {
                "schema": diagnostics_json(in_schema, schema),
                "prompt": diagnostics_json([d for d in in_prompt if d not in in_schema], prompt),
            },
        }

    @endpoint
    def find_modules(self, request: Find) -> FoundModules:
        """The modules whose texts have words of the search field; none where the schema is none."""
        tree = self._documents.schema(request.schema, self._base(request)).tree
        return {"paths": list(self._finder.find(tree, request.words)) if tree else []}

    @endpoint
    def edit_prompt(self, request: EditPrompt) -> Prompted:
        """The prompt after one change in the picker."""
        tree = self._documents.schema(request.schema, self._base(request)).tree
        if tree is None or tree.module(request.edit.path) is None:
            raise PromptCacheError(
                "The schema has no such module any more. The picker is brought up to date."
            )
        return {"prompt": documents.edited_prompt(tree, request.prompt, request.edit)}

    @endpoint
    def fix_document(self, request: FixDocument) -> Written:
        """A document after the quick fix of one of its faults."""
        base = self._base(request)

        def diagnose(text: str) -> tuple[Diagnostic, ...]:
            if request.kind == "schema":
                parsed = self._documents.schema(text, base)
                if not request.code.startswith("E5") or not parsed.ok:
                    return parsed.diagnostics
                with self._tokenizing:
                    return (*parsed.diagnostics, *self._parts.engine.schema(text, base=base).check())
            return self._documents.check(request.schema, text, base=base).of_prompt

        source = request.schema if request.kind == "schema" else request.prompt
        return {"text": documents.mended_document(source, request.code, request.at, diagnose)}

    @endpoint
    def format_document(self, request: OneText) -> Written:
        """A document in its canonical form."""
        return {"text": documents.formatted(request.text)}

    @endpoint
    def export_as(self, request: Export) -> Exported:
        """The schema, or the prompt, in another form."""
        base = self._base(request)
        checked = self._documents.check(request.schema, request.prompt, base=base)
        return documents.exported(request.form, checked, base)

    @endpoint
    def count_tokens(self, request: OneText) -> Counted:
        """How many tokens a text has."""
        with self._tokenizing:
            return {"tokens": self._parts.engine.count_tokens(request.text) if request.text else 0}

    @endpoint
    def add_scaffold(self, request: AddScaffold) -> Written:
        """The schema with one more scaffold."""
        base = self._library.base_of(request.origin)
        return {"text": add_scaffold(request.schema, list(request.modules), base)}

    # Runs

    def run(self, sent: object) -> Iterator[tuple[str, go.Figure | None]]:
        """Yields the states of one run as JSON; the last comes with the chart."""
        try:
            job = self._runs.start(self._wanted(read(_WORK, sent)))
        except PromptCacheError as error:
            key = sent.get("key") if isinstance(sent, dict) else ""
            refused: JobState[Json] = {
                "key": str(key),
                "what": "",
                "done": 0,
                "total": 0,
                "over": True,
                "fault": str(error),
                "result": None,
            }
            yield json.dumps(refused), None
            return
        for state in job.states():
            result = state["result"]
            told = state["over"] and result is not None and result["number"]
            yield json.dumps(state), self.chart() if told else None

    def chart(self) -> go.Figure:
        """The chart of this session's runs."""
        return ttft_chart(self._runs.history)

    @endpoint
    def show_run(self, request: OneRun) -> OldRun:
        """One earlier run of this session, as its last frame."""
        run = self._runs.find(request.number)
        if run is None:
            raise PromptCacheError(
                "That run is not kept any more: the studio was restarted since. Run the prompt again."
            )
        return {"run": run.frame()}

    @endpoint
    def measure_fidelity(self, request: Work) -> JobState[Annotated[Json, JsonOf(Fidelity)]]:
        """Begins to measure how faithful the cached answer is, and through which module it is not."""
        wanted = self._wanted(request)
        prompt = wanted.schema.prompt(wanted.prompt)

        def measure(job: Job) -> Fidelity:
            return prompt.fidelity(wanted.settings, job.progress)

        return self._jobs.start(Job(wanted.key, measure, "fidelity", "waiting for its turn")).state()

    def _wanted(self, request: Work) -> RunRequest:
        base = self._base(request)
        checked = self._documents.check(request.schema, request.prompt, base=base)
        fault = first_error(checked.schema.diagnostics) or first_error(checked.of_prompt)
        if fault is not None:
            raise PromptError((fault,))
        if checked.schema.tree is None:
            raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
        settings = PageSettings.read(request.settings)
        with self._tokenizing:
            prepared = self._parts.engine.schema(request.schema, base=base)
        texts = digest_of_both(request.schema, request.prompt)
        return RunRequest(request.key, prepared, request.prompt, settings, texts)

    def _base(self, request: Texts) -> Path | None:
        return self._library.base_of(request.origin)


def _measured(
    schema: PreparedSchema, prompt: str, settings: RunSettings
) -> tuple[tuple[Diagnostic, ...], Strip | None]:
    """Faults of a prompt that need a tokenizer, and the prompt along its positions if it has none."""
    parsed = parse_prompt(prompt)
    if parsed.tree is None or not parsed.ok:
        return (), None
    try:
        prepared = schema.prompt(parsed.tree)
        faults = prepared.check(scope=settings.scope, placement=settings.placement)
        if first_error(faults) is not None:
            return faults, None
        plan = prepared.plan(settings)
    except PromptError as error:
        return error.diagnostics, None
    return faults, {
        "pieces": plan.strip(),
        "total": plan.total_tokens,
        "cached": plan.cached_tokens,
        "new": plan.new_tokens,
    }
