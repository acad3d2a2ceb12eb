"""The Author page: checks, edits and sizes of both documents, runs and fidelity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from typing_extensions import TypedDict

from app.studio.decisions.prompt_decisions import (
    BegunDecisions,
    Decided,
    DecidePrompt,
    PageQuestion,
    decide,
    own_questions,
    read_questions,
)
from app.studio.documents import documents
from app.studio.documents.documents import (
    Exported,
    Mark,
    Picks,
    TreeRow,
    WordsOfBoth,
    diagnostics_json,
    first_error,
)
from app.studio.documents.module_search import Finder
from app.studio.documents.name_changes import Renamed, renamed
from app.studio.documents.prompt_view import Reads, Strip, measured, nothing, read_tiers, reads
from app.studio.documents.requests import (
    AddScaffold,
    Check,
    Count,
    EditPrompt,
    Export,
    Find,
    FixDocument,
    Kind,
    Measure,
    OfNow,
    OneRun,
    OneText,
    Read,
    RenameName,
    Texts,
    Words,
    Work,
    request,
)
from app.studio.history import RunSummary
from app.studio.history.fidelity import KnownFidelity, MeasuredFidelity, Measurements
from app.studio.history.runner import RunRequest, model_of
from app.studio.history.runs_chart import runs_chart
from app.studio.history.shown import shown
from app.studio.pages.encode_schema import EncodedAll, encode_all
from app.studio.pages.page import Page
from app.studio.runs.run_frame import Belongs, ModelOfRun, RunFrame
from app.studio.runs.run_state import belongs
from app.studio.runs.settings import PageSettings
from app.studio.web.chart import Drawn, sent
from app.studio.web.digests import digest, digest_of_schema
from app.studio.web.endpoints import endpoint
from app.studio.web.jobs import Job
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.base.tiers import Tier
from engine.pml import Diagnostic, PromptError, add_scaffold

if TYPE_CHECKING:
    from engine import Engine

_REPORT = JsonOf(named="engine.cache.schema_encoding:EncodeReport")


class Basis(TypedDict):
    """The schema that the prompt was checked against, with its tree if the page does not have it."""

    digest: str
    stale: bool
    tree: NotRequired[list[TreeRow]]
    words: NotRequired[WordsOfBoth]


class CheckedSchema(TypedDict):
    """Marks of the schema, and its name or ""."""

    diagnostics: list[Mark]
    name: str
    ok: bool
    modules: int


class CheckedPrompt(TypedDict):
    """Marks of the prompt, its schema's name, the text of the user's last turn, and questions to decide."""

    diagnostics: list[Mark]
    name: str
    question: str
    decides: list[PageQuestion]


class DigestsOfBoth(TypedDict):
    """Digests of both documents, as runs store them."""

    schema: str
    prompt: str


class CheckedTexts(TypedDict):
    """The check of both documents; `texts` has their digests."""

    texts: DigestsOfBoth
    schema: CheckedSchema
    prompt: CheckedPrompt
    basis: Basis
    picks: Picks


class ModuleSize(TypedDict):
    """Tokens of a module without and with its contents; bytes and tier of its keys and values.

    `cached` is the tier of the segments that the prompt reads, or of a prompt with all modules.
    """

    tokens: int
    total: int
    bytes: int
    cached: Tier


class MarksOfBoth(TypedDict):
    """Marks of both documents."""

    schema: list[Mark]
    prompt: list[Mark]


class Measured(TypedDict):
    """Sizes by module path, and diagnostics that need a tokenizer."""

    sizes: dict[str, ModuleSize]
    positions: NotRequired[int]
    strip: Strip | None
    of: NotRequired[Belongs]
    settings: NotRequired[Annotated[Json, JsonOf(dict[str, Any])]]
    model: NotRequired[ModelOfRun]
    diagnostics: MarksOfBoth


class FoundModules(TypedDict):
    """Paths of modules, best first."""

    paths: list[str]


class Prompted(TypedDict):
    """A prompt after an edit."""

    prompt: str


class Written(TypedDict):
    """A text after an edit."""

    text: str


class Fixed(Written):
    """A document after a quick fix."""

    kind: Kind


class Counted(TypedDict):
    """A number of tokens."""

    tokens: int


@request
class OwnRuns:
    """The stored runs of a schema.

    Attributes:
        schema: the schema's name.
    """

    schema: Words


@request
class TimeAgain(Work):
    """A run of this session to time more often."""

    number: Count


@request
class OneKeptRun:
    """The id of a stored run.

    Attributes:
        schema: the schema in the editor.
    """

    id: Words
    schema: Words = ""


class DrawnRuns(Drawn):
    """The chart of runs, and the runs, newest first."""

    runs: list[RunSummary]


class OldRun(TypedDict):
    """An earlier run."""

    run: RunFrame


class AuthorPage(Page):
    """The server side of the Author page."""

    name, title = "author", "Author"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._documents, self._library = parts, parts.documents, parts.library
        self._runs, self._jobs, self._tokenizing = parts.runs, parts.jobs, parts.tokenizing
        self._finder = Finder()
        self._measurements = Measurements(parts.jobs, parts.kept)

    # Documents

    @endpoint
    def check(self, request: Check) -> CheckedTexts:
        """Returns diagnostics of both documents, the picks, and the module tree if the page needs it."""
        schema, prompt = request.schema, request.prompt
        checked = self._documents.check(schema, prompt, fallback=request.fallback, base=self._base(request))
        tree = checked.basis.tree
        basis: Basis = {"digest": digest_of_schema(checked.basis.source, tree), "stale": checked.stale}
        if basis["digest"] != request.known:
            basis["tree"] = documents.tree_json(tree) if tree else []
            basis["words"] = documents.words_json(tree)
        own, of_prompt = checked.schema.tree, checked.prompt.tree
        return {
            "texts": {"schema": digest_of_schema(schema, checked.schema.tree), "prompt": digest(prompt)},
            "schema": {
                "diagnostics": diagnostics_json(checked.schema.diagnostics, schema),
                "name": own.name if own else "",
                "ok": checked.schema.ok,
                "modules": len(own.modules()) if own else 0,
            },
            "prompt": {
                "diagnostics": diagnostics_json(checked.of_prompt, prompt),
                "name": (of_prompt.schema if of_prompt else None) or "",
                "question": documents.question(of_prompt),
                "decides": own_questions(of_prompt),
            },
            "basis": basis,
            "picks": documents.picks_json(tree, prompt) if tree else {"paths": [], "arguments": {}},
        }

    @endpoint
    def measure(self, request: Measure) -> Measured:
        """Returns tokens of modules and of the prompt by position, and diagnostics that need a tokenizer."""
        schema, prompt, base = request.schema, request.prompt, self._base(request)
        parsed = self._documents.schema(schema, base)
        tree = parsed.tree
        if not parsed.ok:
            return {"sizes": {}, "strip": None, "diagnostics": {"schema": [], "prompt": []}}
        settings = PageSettings.sight(request.settings)
        known = {(d.code, d.span) for d in self._documents.check(schema, prompt, base=base).of_prompt}
        with self._parts.taken() as engine:
            model = model_of(engine)
            try:
                prepared = engine.schema(schema, base=base)
            except PromptError as error:
                marks = diagnostics_json(error.diagnostics, schema)
                return {"sizes": {}, "strip": None, "diagnostics": {"schema": marks, "prompt": []}}
            layout = prepared.layout(scope=settings.scope)
            in_schema = prepared.check(scope=settings.scope)
            in_prompt, strip = measured(prepared, schema, prompt, settings)
            read = read_tiers(strip)
        return {
            "sizes": {
                module.path: {
                    "tokens": module.tokens,
                    "total": module.total_tokens,
                    "bytes": module.bytes,
                    "cached": read.get(module.path, module.cached),
                }
                for module in layout.modules
            },
            "positions": layout.total_positions,
            "strip": strip,
            "of": belongs((digest_of_schema(schema, tree), digest(prompt)), settings, model),
            "settings": settings.to_json(),
            "model": model,
            "diagnostics": {
                "schema": diagnostics_json(in_schema, schema),
                "prompt": diagnostics_json(
                    [d for d in in_prompt if d not in in_schema and (d.code, d.span) not in known], prompt
                ),
            },
        }

    @endpoint
    def read_prompt(self, request: Read) -> Reads:
        """Returns the model's input by passages, or an error."""
        schema, base = request.schema, self._base(request)
        parsed = self._documents.schema(schema, base)
        if not parsed.ok:
            return nothing(parsed.diagnostics)
        settings = PageSettings.sight(request.settings)
        with self._tokenizing:
            try:
                prepared = self._parts.engine.schema(schema, base=base)
            except PromptError as error:
                return nothing(error.diagnostics)
            return reads(prepared, schema, request.prompt, settings, borders=request.borders)

    @endpoint
    def find_modules(self, request: Find) -> FoundModules:
        """Returns modules that match a search; none if the schema is not valid."""
        tree = self._documents.schema(request.schema, self._base(request)).tree
        return {"paths": list(self._finder.find(tree, request.words)) if tree else []}

    @endpoint
    def edit_prompt(self, request: EditPrompt) -> Prompted:
        """Returns the prompt after one change in the picker."""
        tree = self._documents.schema(request.schema, self._base(request)).tree
        if tree is None or tree.module(request.edit.path) is None:
            raise PromptCacheError("The schema no longer has this module. The picker was updated.")
        return {"prompt": documents.edited_prompt(tree, request.prompt, request.edit)}

    @endpoint
    def fix_document(self, request: FixDocument) -> Fixed:
        """Returns a document after a quick fix: the request's, or the schema of its prompt."""
        base = self._base(request)

        def diagnose(text: str) -> tuple[Diagnostic, ...]:
            if request.kind == "schema":
                parsed = self._documents.schema(text, base)
                if not request.code.startswith("E5") or not parsed.ok:
                    return parsed.diagnostics
                with self._tokenizing:
                    return (*parsed.diagnostics, *self._parts.engine.schema(text, base=base).check())
            return self._documents.check(request.schema, text, base=base).of_prompt

        if request.kind == "prompt" and request.code.startswith("E5"):
            with self._tokenizing:
                found = self._parts.engine.schema(request.schema, base=base).prompt(request.prompt).check()
            sources = request.schema, request.prompt
            text = documents.mended_schema(*sources, request.code, request.at, request.fix, found)
            return {"text": text, "kind": "schema"}
        source = request.schema if request.kind == "schema" else request.prompt
        text = documents.mended_document(source, request.code, request.at, request.fix, diagnose)
        return {"text": text, "kind": request.kind}

    @endpoint
    def preview_fix(self, request: FixDocument) -> documents.FixPreview:
        """Returns the lines and the assembled prompt after a quick fix."""
        fixed, base = self.fix_document(request), self._base(request)
        both = {"schema": request.schema, "prompt": request.prompt}
        after = {**both, fixed["kind"]: fixed["text"]}
        was, now = (self._documents.check(**texts, base=base) for texts in (both, after))
        return documents.fix_preview(both[fixed["kind"]], fixed["text"], was, now)

    @endpoint
    def rename_name(self, request: RenameName) -> Renamed:
        """Returns the name at the caret, and both documents after it is changed."""
        return renamed(request, self._base(request))

    @endpoint
    def format_document(self, request: OneText) -> Written:
        """Returns a document in its canonical format."""
        return {"text": documents.formatted(request.text)}

    @endpoint
    def export_as(self, request: Export) -> Exported:
        """Returns the schema or the prompt in another form."""
        base = self._base(request)
        checked = self._documents.check(request.schema, request.prompt, base=base)
        return documents.exported(request.form, checked, base)

    @endpoint
    def count_tokens(self, request: OneText) -> Counted:
        """Returns the number of tokens of a text."""
        with self._tokenizing:
            return {"tokens": self._parts.engine.count_tokens(request.text) if request.text else 0}

    @endpoint
    def add_scaffold(self, request: AddScaffold) -> Written:
        """Adds a scaffold to the schema."""
        base = self._library.base_of(request.origin)
        return {"text": add_scaffold(request.schema, list(request.modules), base)}

    # Runs

    @endpoint
    def run_prompt(self, request: Work) -> JobState[Annotated[Json, JsonOf(RunFrame)]]:
        """Starts a run of the prompt."""
        with self._parts.taken() as engine:
            return self._runs.start(self._wanted(request, engine)).state()

    @endpoint
    def time_again(self, request: TimeAgain) -> JobState[Annotated[Json, JsonOf(RunFrame)]]:
        """Starts to time the first token of a run more often."""
        with self._parts.taken() as engine:
            return self._runs.time_again(self._wanted(request, engine), request.number).state()

    @endpoint
    def decide_prompt(self, request: DecidePrompt) -> BegunDecisions:
        """Starts to answer the prompt's questions, or else those of the form, on both sides."""
        with self._parts.taken() as engine:
            wanted = self._wanted(request, engine)
            questions, faults = read_questions(request.prompt, request.questions)
            if faults:
                return {"job": None, "faults": faults}

            def work(job: Job) -> Decided:
                return decide(job, wanted, questions)

            job = self._jobs.start(Job(request.key, work, "decide", "waiting for its turn"))
        return {"job": job.state(), "faults": []}

    @endpoint
    def draw_own_runs(self, request: OwnRuns) -> DrawnRuns:
        """Returns the stored runs of a schema, and their chart."""
        runs = [run for run in self._parts.kept.summaries() if run["schema"] == request.schema]
        return {"figure": sent(runs_chart(runs[::-1])), "runs": runs}

    @endpoint
    def show_run(self, request: OneRun) -> OldRun:
        """Returns a run of this session."""
        run = self._runs.find(request.number)
        if run is None:
            raise PromptCacheError(
                "That run no longer exists: the studio was restarted since. Run the prompt again."
            )
        return {"run": run.frame()}

    @endpoint
    def show_kept_run(self, request: OneKeptRun) -> OldRun:
        """Returns a stored run."""
        return {"run": shown(self._parts.kept.find([request.id])[0], request.schema)}

    @endpoint
    def measure_fidelity(self, request: Work) -> JobState[Annotated[Json, JsonOf(MeasuredFidelity)]]:
        """Starts to measure fidelity, by module."""
        with self._parts.taken() as engine:
            return self._measurements.start(self._wanted(request, engine)).state()

    @endpoint
    def find_fidelity(self, request: OfNow) -> KnownFidelity:
        """Returns the stored or running measurement of the open documents."""
        settings = PageSettings.read(request.settings)
        return self._measurements.find((request.schema, request.prompt), settings, self._parts.engine)

    @endpoint
    def encode_all(self, request: Work) -> JobState[Annotated[Json, _REPORT]]:
        """Starts to encode all missing modules of the schema, regardless of the prompt."""
        base = self._base(request)
        fault = first_error(self._documents.schema(request.schema, base).diagnostics)
        if fault is not None:
            raise PromptError((fault,))
        settings = PageSettings.read(request.settings)
        with self._parts.taken() as engine:
            prepared = engine.schema(request.schema, base=base)

            def work(job: Job) -> EncodedAll:
                return encode_all(job, prepared, settings.scope)

            return self._jobs.start(Job(request.key, work, "encode all", "waiting for its turn")).state()

    def _wanted(self, request: Work, engine: Engine) -> RunRequest:
        base = self._base(request)
        checked = self._documents.check(request.schema, request.prompt, base=base)
        fault = first_error(checked.schema.diagnostics) or first_error(checked.of_prompt)
        if fault is not None:
            raise PromptError((fault,))
        if checked.schema.tree is None:
            raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
        settings = PageSettings.read(request.settings)
        prepared = engine.schema(request.schema, base=base)
        texts = digest_of_schema(request.schema, checked.schema.tree), digest(request.prompt)
        sources = request.schema, request.origin
        arguments = request.prompt, settings, request.mode, texts, *sources
        return RunRequest(request.key, engine, prepared, *arguments)

    def _base(self, request: Texts) -> Path | None:
        return self._library.base_of(request.origin)
