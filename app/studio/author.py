"""What the Author page asks of the server: one method per question, each from one JSON object to another."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import plotly.graph_objects as go
from starlette.responses import Response

from app.studio import documents
from app.studio.chart import ttft_chart
from app.studio.documents import Documents, diagnostics_json, digest, first_error
from app.studio.drafts import Drafts, StaleDraftError, Workspace
from app.studio.fidelity import Explanations
from app.studio.folder import ChangedFileError, ElsewhereError, NotUtf8Error, Stamp
from app.studio.requests import Json, endpoint, repeats_of, settings_of, text_of, whole_number_of
from app.studio.runs import MAX_NEW_TOKENS, MAX_REPEATS, Run, RunRequest, Runs
from app.studio.samples import FIRST_SAMPLE, Library
from engine import Engine, PreparedSchema, RunSettings
from engine.choices import PLACEMENTS
from engine.errors import PromptCacheError
from engine.pml import Diagnostic, PromptError, add_scaffold, document_kind, parse_prompt

logger = logging.getLogger(__name__)

SCOPES = ("anchored", "isolated", "scaffold")
ABOUT_DEMO = (
    "The bundled model is tiny and was made for the gallery's samples: it shows what caching does, reads "
    "prompts of their kind, and knows nothing else. For real answers: pml studio --model OWNER/NAME "
    "(or a folder)."
)


@dataclass(frozen=True)
class Author:
    """The server side of the Author page."""

    engine: Engine
    documents: Documents
    drafts: Drafts
    library: Library
    runs: Runs
    explanations: Explanations
    _tokenizing: threading.Lock

    @classmethod
    def of(cls, engine: Engine, drafts: Drafts, library: Library) -> Author:
        """An author page over these parts."""
        return cls(engine, Documents(), drafts, library, Runs(engine), Explanations(), threading.Lock())

    def endpoints(self) -> list[Callable[[Any], Response]]:
        """The questions the page may ask, as functions for the page's JavaScript."""
        return [
            endpoint(method)
            for method in (
                self.open_workspace,
                self.check,
                self.measure,
                self.edit_prompt,
                self.fix_document,
                self.format_document,
                self.export_as,
                self.count_tokens,
                self.save_draft,
                self.open_sample,
                self.open_file,
                self.open_text,
                self.save_file,
                self.save_as,
                self.list_files,
                self.shelve,
                self.shelf,
                self.open_shelved,
                self.show_run,
                self.stop_run,
                self.explain,
                self.explained,
                self.stop_explaining,
                self.add_scaffold,
            )
        ]

    # Documents

    def open_workspace(self, _request: Json) -> Json:
        """Everything a page needs to start: the draft, or the first sample where there is none."""
        workspace = self.drafts.load()
        if workspace is None:
            workspace = self.drafts.replace(self.library.sample(FIRST_SAMPLE))
        return {
            "workspace": asdict(workspace),
            "model": self.model_json(),
            "samples": self.library.gallery(),
            "folder": self.library.folder.path is not None,
            "files": self.library.folder.names(),
            "scopes": list(SCOPES),
            "placements": list(PLACEMENTS),
            "limits": {"max_new_tokens": MAX_NEW_TOKENS, "repeats": MAX_REPEATS},
            "runs": [run.to_json() for run in self.runs.history],
        }

    def check(self, request: Json) -> Json:
        """Faults of both documents, the picks, and the module tree if it is not the one the page `known`s."""
        schema, prompt = text_of(request, "schema"), text_of(request, "prompt")
        base = self.library.base_of(text_of(request, "origin"))
        fallback = request.get("fallback")
        checked = self.documents.check(
            schema, prompt, fallback=fallback if isinstance(fallback, str) else None, base=base
        )
        tree = checked.basis.tree
        basis: Json = {
            "digest": digest(checked.basis.source),
            "stale": checked.stale,
            "name": tree.name if tree else "",
        }
        if basis["digest"] != request.get("known"):
            basis["tree"] = documents.tree_json(tree) if tree else []
            basis["words"] = documents.words_json(tree)
        return {
            "schema": {
                "diagnostics": diagnostics_json(checked.schema.diagnostics, schema),
                "ok": checked.schema.ok,
                "modules": len(checked.schema.tree.modules()) if checked.schema.tree else 0,
            },
            "prompt": {"diagnostics": diagnostics_json(checked.of_prompt, prompt)},
            "basis": basis,
            "picks": documents.picks_json(tree, prompt) if tree else {"paths": [], "arguments": {}},
        }

    def measure(self, request: Json) -> Json:
        """Tokens of every module, of the prompt along its positions, and faults that need a tokenizer."""
        schema, prompt = text_of(request, "schema"), text_of(request, "prompt")
        base = self.library.base_of(text_of(request, "origin"))
        nothing: Json = {"schema": [], "prompt": []}
        if not self.documents.schema(schema, base).ok:
            return {"sizes": {}, "strip": None, "diagnostics": nothing}
        settings = settings_of(request.get("settings"))
        with self._tokenizing:
            try:
                prepared = self.engine.schema(schema, base=base)
            except PromptError as error:
                found = diagnostics_json(error.diagnostics, schema)
                return {"sizes": {}, "strip": None, "diagnostics": {**nothing, "schema": found}}
            layout = prepared.layout(scope=settings.scope)
            in_schema = prepared.check(scope=settings.scope)
            in_prompt, strip = self._measured(prepared, prompt, settings)
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

    def _measured(
        self, schema: PreparedSchema, prompt: str, settings: RunSettings
    ) -> tuple[tuple[Diagnostic, ...], Json | None]:
        """Faults of a prompt that need a tokenizer, and the prompt along its positions if it has none."""
        tree = parse_prompt(prompt)
        if tree.tree is None or not tree.ok:
            return (), None
        try:
            prepared = schema.prompt(tree.tree)
            faults = prepared.check(scope=settings.scope, placement=settings.placement)
            if first_error(faults) is not None:
                return faults, None
            plan = prepared.plan(settings)
        except PromptError as error:
            return error.diagnostics, None
        strip = {
            "pieces": plan.strip(),
            "total": plan.total_tokens,
            "cached": plan.cached_tokens,
            "new": plan.new_tokens,
        }
        return faults, strip

    def edit_prompt(self, request: Json) -> Json:
        """The prompt after one change in the picker."""
        parsed = self.documents.schema(
            text_of(request, "schema"), self.library.base_of(text_of(request, "origin"))
        )
        edit = request.get("edit")
        if (
            parsed.tree is None
            or not isinstance(edit, dict)
            or parsed.tree.module(str(edit.get("path"))) is None
        ):
            raise PromptCacheError(
                "The schema has no such module any more. The picker is brought up to date."
            )
        return {"prompt": documents.edited_prompt(parsed.tree, text_of(request, "prompt"), edit)}

    def fix_document(self, request: Json) -> Json:
        """A document after the quick fix of one of its faults."""
        texts = {kind: text_of(request, kind) for kind in ("schema", "prompt")}
        kind = "prompt" if request.get("kind") == "prompt" else "schema"
        base = self.library.base_of(text_of(request, "origin"))

        def diagnose(text: str) -> tuple[Diagnostic, ...]:
            if kind == "schema":
                return self.documents.schema(text, base).diagnostics
            return self.documents.check(texts["schema"], text, base=base).of_prompt

        code, place = text_of(request, "code"), whole_number_of(request, "from")
        return {"text": documents.mended_document(texts[kind], code, place, diagnose)}

    def format_document(self, request: Json) -> Json:
        """A document in its canonical form."""
        return {"text": documents.formatted(text_of(request, "text"))}

    def export_as(self, request: Json) -> Json:
        """The schema, or the prompt, in another form."""
        base = self.library.base_of(text_of(request, "origin"))
        checked = self.documents.check(text_of(request, "schema"), text_of(request, "prompt"), base=base)
        return documents.exported(text_of(request, "form"), checked, base)

    def count_tokens(self, request: Json) -> Json:
        """How many tokens a text has."""
        text = text_of(request, "text")
        with self._tokenizing:
            return {"tokens": self.engine.count_tokens(text) if text else 0}

    # Drafts and files

    def save_draft(self, request: Json) -> Json:
        """Keeps the page's texts; answers `conflict` where another tab was faster."""
        sent = workspace_of(request)
        try:
            kept = self.drafts.save(
                sent, base=whole_number_of(request, "base"), force=bool(request.get("force"))
            )
        except StaleDraftError as stale:
            return {"conflict": asdict(stale.current), "message": str(stale)}
        return {"revision": kept.revision, "saved": kept.saved}

    def open_sample(self, request: Json) -> Json:
        """A sample instead of the open workspace, which goes to the shelf."""
        return self._opened(
            self.library.sample(text_of(request, "name"), whole_number_of(request, "prompt")), request
        )

    def list_files(self, _request: Json) -> Json:
        """The documents that are in the user's folder now."""
        return {"files": self.library.folder.names()}

    def open_file(self, request: Json) -> Json:
        """A document of the user's folder instead of the open schema or prompt, or what to ask."""
        name = text_of(request, "name")
        try:
            text, stamp = self.library.folder.read(name, text_of(request, "encoding") or "utf-8")
        except NotUtf8Error as other:
            return {"encoding": other.encoding, "message": str(other)}
        return self._opened_text(text, name, self.library.folder.origin(name), asdict(stamp), request)

    def open_text(self, request: Json) -> Json:
        """A document that the browser has read, instead of the open schema or prompt."""
        name, stamp = text_of(request, "name"), Stamp.of_json(request.get("stamp"))
        return self._opened_text(text_of(request, "text"), name, f"browser:{name}", asdict(stamp), request)

    def save_file(self, request: Json) -> Json:
        """Writes a document back to the file of the user's folder that it came from."""
        origin, folder = text_of(request, "origin"), self.library.folder
        if not origin.startswith("file:"):
            raise PromptCacheError(
                "This document did not come from the studio's folder, so no file was written."
            )
        known = Stamp.of_json(request.get("stamp"))
        try:
            name = folder.name_of(origin, here=bool(request.get("here")))
            stamp = folder.save(name, text_of(request, "text"), known, force=bool(request.get("force")))
        except ElsewhereError as other:
            return {"refused": "elsewhere" if other.known else "unknown", "message": str(other)}
        except ChangedFileError as changed:
            return {"refused": "gone" if changed.gone else "changed", "message": str(changed)}
        return {"saved": name, "origin": folder.origin(name), "stamp": asdict(stamp)}

    def save_as(self, request: Json) -> Json:
        """Writes a document to a new file of the user's folder."""
        name, like = text_of(request, "name"), Stamp.of_json(request.get("stamp"))
        stamp = self.library.folder.create(name, text_of(request, "text"), like)
        return {
            "saved": name,
            "origin": self.library.folder.origin(name),
            "stamp": asdict(stamp),
            "files": self.library.folder.names(),
        }

    def shelve(self, request: Json) -> Json:
        """Puts a page's texts among the earlier workspaces; no `key` where they are the open ones."""
        page = request.get("page")
        if not isinstance(page, dict):
            raise PromptCacheError(
                "The page did not send its texts, so nothing was kept. Reload it and try again."
            )
        key = self.drafts.shelve(workspace_of(page))
        return {} if key is None else {"key": key}

    def shelf(self, _request: Json) -> Json:
        """Earlier workspaces, latest first."""
        return {
            "shelf": [
                {
                    "key": key,
                    "name": kept.name,
                    "saved": kept.saved,
                    "schema": kept.schema[:400],
                    "prompt": kept.prompt[:400],
                }
                for key, kept in self.drafts.shelf()
            ]
        }

    def open_shelved(self, request: Json) -> Json:
        """An earlier workspace instead of the open one."""
        return self._opened(self.drafts.shelved(text_of(request, "key")), request)

    def _opened(self, workspace: Workspace, request: Json) -> Json:
        self._keep_page(request)
        return {"workspace": asdict(self.drafts.replace(workspace))}

    def _opened_text(self, text: str, name: str, origin: str, stamp: Json, request: Json) -> Json:
        kind = document_kind(text)
        if kind is None:
            raise PromptCacheError(
                f"{name!r} is no PML document. Open a file whose root is <schema> or <prompt>."
            )
        page = self._keep_page(request)
        if kind == "prompt":
            opened = replace(page, prompt=text, prompt_origin=origin, files={**page.files, kind: stamp})
        else:
            opened = replace(page, name=name, schema=text, origin=origin, files={**page.files, kind: stamp})
        return {"workspace": asdict(self.drafts.replace(opened)), "kind": kind}

    def _keep_page(self, request: Json) -> Workspace:
        page = request.get("page")
        if not isinstance(page, dict):
            raise PromptCacheError(
                "The page did not send its texts, so nothing was opened. Reload the page and try again."
            )
        kept = workspace_of(page)
        self.drafts.save(kept, base=whole_number_of(page, "base"), force=True)
        return kept

    # Runs

    def run(self, request: Json) -> Iterator[tuple[str, go.Figure | None]]:
        """Frames of one run as JSON; the last comes with the chart."""
        key = text_of(request, "key")
        try:
            wanted = self._request_of(request, key)
        except PromptCacheError as error:
            yield json.dumps({"key": key, "state": "refused", "message": str(error)}), None
            return
        run: Run | None = None
        for run in self.runs.stream(wanted):
            yield json.dumps(run.to_json()), None
        if run is not None and run.number:
            yield json.dumps(run.to_json()), self.chart()

    def _request_of(self, request: Json, key: str) -> RunRequest:
        schema, prompt = text_of(request, "schema"), text_of(request, "prompt")
        base = self.library.base_of(text_of(request, "origin"))
        checked = self.documents.check(schema, prompt, base=base)
        fault = first_error(checked.schema.diagnostics) or first_error(checked.of_prompt)
        if fault is not None:
            raise PromptError((fault,))
        if checked.schema.tree is None:
            raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
        settings = settings_of(request.get("settings"))
        with self._tokenizing:
            prepared = self.engine.schema(schema, base=base)
        return RunRequest(prepared, prompt, settings, repeats_of(request.get("settings")), key)

    def chart(self) -> go.Figure:
        """The chart of this session's runs."""
        return ttft_chart(self.runs.history)

    def show_run(self, request: Json) -> Json:
        """One earlier run of this session, as its last frame."""
        run = self.runs.find(whole_number_of(request, "number"))
        if run is None:
            raise PromptCacheError(
                "That run is not kept any more: the studio was restarted since. Run the prompt again."
            )
        return {"run": run.to_json()}

    def stop_run(self, request: Json) -> Json:
        """Stops a run at its next step."""
        self.runs.stop(text_of(request, "key"))
        return {}

    # What reuse changed

    def explain(self, request: Json) -> Json:
        """Begins to measure how faithful the cached answer is, and through which module it is not."""
        wanted = self._request_of(request, text_of(request, "key"))
        prompt = wanted.schema.prompt(wanted.prompt)
        self.explanations.start(wanted.key, prompt, wanted.settings)
        return self.explanations.state(wanted.key)

    def explained(self, request: Json) -> Json:
        """How far a measurement is, or what came of it."""
        return self.explanations.state(text_of(request, "key"))

    def stop_explaining(self, request: Json) -> Json:
        """Stops a measurement at its next step."""
        self.explanations.stop(text_of(request, "key"))
        return {}

    def add_scaffold(self, request: Json) -> Json:
        """The schema with one more scaffold."""
        modules = request.get("modules")
        paths = [str(path) for path in modules] if isinstance(modules, list) else []
        return {"text": add_scaffold(text_of(request, "schema"), paths)}

    def model_json(self) -> Json:
        """The loaded model in a few words."""
        model = self.engine.model
        return {
            "about": ABOUT_DEMO if model.name == "demo" else "",
            "name": model.name,
            "family": model.family,
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "context_length": model.context_length,
            "bytes_per_token": model.bytes_per_token,
            "summary": model.probe.summary,
        }


def workspace_of(request: Mapping[str, Any]) -> Workspace:
    """The workspace that the page sent."""
    settings, files = request.get("settings"), request.get("files")
    return Workspace(
        name=text_of(request, "name"),
        schema=text_of(request, "schema"),
        prompt=text_of(request, "prompt"),
        origin=text_of(request, "origin"),
        settings=dict(settings) if isinstance(settings, Mapping) else {},
        prompt_origin=text_of(request, "prompt_origin"),
        files=dict(files) if isinstance(files, Mapping) else {},
    )
