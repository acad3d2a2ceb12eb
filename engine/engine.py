"""One model with one store: what schemas are prepared for, and prompts are answered by.

    with Engine.open("demo") as engine:
        schema = engine.schema(Path("travel.pml"))
        answer = schema.prompt('<prompt schema="travel">…</prompt>').answer()

A schema is parsed and laid out once, a prompt planned once (`engine.prepared`); `engine.inference.generate`
is the way of an answer.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.arguments import document_text, prompt_series, require_mode, settings_with
from engine.base.choices import PlacementPolicy, Quantize, Scope, Weights
from engine.base.errors import SettingsError
from engine.base.events import SIDES, Answer, Side
from engine.batch.cache_lookup import Outlook, outlook
from engine.batch.idle import Idle
from engine.batch.loop import BatchLoop
from engine.batch.scheduler import MOST
from engine.batch.serial import OneByOne
from engine.batch.series import BothAnswers, answered, answered_apart
from engine.batch.submission import Answerer, Mark
from engine.batch.ticket import Ticket
from engine.cache.memory import MemoryTier
from engine.cache.segment_cache import SegmentCache
from engine.files.places import from_home
from engine.inference.model_settings import without_effect
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Computing, Progress
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Diagnostic, Prompt, PromptError, Schema, parse_schema
from engine.prepared import (
    Mode,
    PreparedPrompt,
    PreparedSchema,
    WithSettings,
    require_prompt,
)
from engine.prepared_conversation import PreparedConversation, prepare_conversation
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.spec import ModelSpec
from engine.prompt.tokenized import TokenizedSchema
from engine.runtime import Workshop
from engine.store import Store, Verify

log = logging.getLogger(__name__)

MEMORY_BUDGET = 4 << 30  # bytes of segments held in memory
_SCHEMAS_HELD = 16
_RUNS_HELD = (
    10_000  # of all of them, beside the latest: with a million objects the collector pauses for a second
)


class Engine:
    """One model with one store.

    Args:
        model: the model that answers.
        store: the store that keeps segments.
        memory: the most bytes of segments held in memory, or on the GPU where the model runs there.
        deterministic: whether what is submitted is computed one prompt after the other, to the last bit as by
            itself; else together, where rounding may differ.
        parallel: the most submitted prompts that are under way at once; None for as many as are worth it.

    Raises:
        SettingsError: `parallel` is no number of prompts.
    """

    def __init__(
        self,
        model: Model,
        store: Store,
        memory: int = MEMORY_BUDGET,
        *,
        deterministic: bool = False,
        parallel: int | None = None,
    ) -> None:
        _require_prompts(parallel)
        self.model, self.store = model, store
        if note := without_effect(model):
            log.warning("%s", note)
        self.memory_tier = MemoryTier(memory, model.network.device)
        self.segment_cache = SegmentCache(model, store, self.memory_tier)
        self.computing = Computing()  # one step at a time: two would spoil each other's clock
        self.answerer: Answerer = (
            OneByOne(self.segment_cache, self.computing)
            if deterministic
            else BatchLoop(self.segment_cache, self.computing, MOST if parallel is None else parallel)
        )
        self.spec = ModelSpec(
            model.name,
            model.tokenizer,
            model.chat,
            model.stand_in,
            model.context_length,
            self.segment_cache.identity,
            model.unknown_tokens,
        )
        self.idle = Idle(self.computing, model.network)
        self._workshop = Workshop(self.segment_cache, self.computing, self.idle)
        self._schemas: OrderedDict[tuple[str, Path | None, str], PreparedSchema] = OrderedDict()
        self._schemas_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        model: str | Path = "demo",
        *,
        device: str = "auto",
        dtype: str = "auto",
        weights: Weights = "auto",
        quantize: Quantize = "none",
        cache_dir: str | Path | None = None,
        verify: Verify = "first",
        memory: int = MEMORY_BUDGET,
        date: datetime.date | None = None,
        deterministic: bool = False,
        parallel: int | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Opens the store and loads a model.

        Args:
            model: "demo", "random:SHAPE", a local folder, or a Hugging Face id.
            device: "auto", "cpu", "cuda" or "mps".
            dtype: "auto", "fp32", "bf16" or "fp16".
            weights: "plain", "packed" for the processor, or "auto": packed where they win when measured.
            quantize: "int8" or "int4" to round weights; segments of a rounded model are another model's.
            cache_dir: folder of the store; None for the user's cache folder.
            verify: when a stored file's digest is checked: "always", "first" (in this process) or "never".
            memory: the most bytes of segments held in memory, or on the GPU.
            date: the date that a chat template may write; None for the day of each prompt.
            deterministic: whether submitted prompts are computed one after the other, to the last bit as by
                themselves.
            parallel: the most submitted prompts that are under way at once; None for as many as are worth it.
            progress: called with (bytes done, bytes in all, what) while the files of a model that was not
                seen before are digested.

        Raises:
            ModelError: the model cannot be used.
            SettingsError: `memory` is no number of bytes, or `parallel` no number of prompts.
            StoreError: the folder cannot be used.
        """
        if type(memory) is not int or memory < 0:
            raise SettingsError(
                f"memory is {memory!r}; it must be a whole number of bytes, at least 0: 2 << 30 is 2 GiB."
            )
        _require_prompts(parallel)
        store = Store.open(None if cache_dir is None else from_home(cache_dir), verify=verify)
        try:
            loaded = load(
                str(model),
                device=device,
                dtype=dtype,
                weights=weights,
                quantize=quantize,
                progress=progress,
            )
            loaded.chat.date = date
            return cls(loaded, store, memory, deterministic=deterministic, parallel=parallel)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Closes the store and forgets what is in memory, once the step that is computed is done.

        What was prepared computes nothing any more, and answers that are under way end with ClosedError.
        """
        self.computing.close()
        self.idle.close()
        self.answerer.close()
        self.segment_cache.count_answers()
        self.memory_tier.clear()
        self.store.close()

    def check_when_idle(self) -> None:
        """Has answers under a promise checked from now on, while nothing else is computed.

        For a program that stays; one that ends after its answer calls `PreparedPrompt.check`.
        """
        self.idle.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def schema(
        self, source: str | Path | Schema, *, base: Path | None = None, salt: str = ""
    ) -> PreparedSchema:
        """Prepares a schema: parses it, tokenizes it, and lays it out.

        Args:
            source: PML text, a file with it, or a tree without errors. The same text is prepared once, unless
                it reads other files or many others were prepared since.
            base: the folder that `src` attributes of a text are looked up in; of a file its own.
            salt: schemas and conversations of another salt share nothing with it, in memory or on disk.

        Raises:
            PathError: the text is no document but the name of one.
            PromptError: it has errors, all of which are told, or the chat template refuses its roles.
            TextFileError: the file cannot be read as text.
            TypeError: the source is none of these.
        """
        if isinstance(source, Schema):
            return self._prepared(source, salt)
        text = document_text(source, "schema")
        folder = base or (source.resolve().parent if isinstance(source, Path) else None)
        with self._schemas_lock:
            held = self._schemas.get((text, folder, salt))
            if held is not None:
                self._schemas.move_to_end((text, folder, salt))
                return held
        parsed = parse_schema(text, base=folder)
        if parsed.tree is None or not parsed.ok:
            raise PromptError(parsed.diagnostics)
        prepared = self._prepared(parsed.tree, salt)
        if "src" not in text:  # what other files say may change
            with self._schemas_lock:
                self._schemas[text, folder, salt] = prepared
                runs = sum(len(one.tokenized.layout.runs) for one in self._schemas.values())
                while len(self._schemas) > _SCHEMAS_HELD or (runs > _RUNS_HELD and len(self._schemas) > 1):
                    _, former = self._schemas.popitem(last=False)
                    runs -= len(former.tokenized.layout.runs)
        return prepared

    def conversation(
        self, messages: Sequence[Message], tools: Tools = NO_TOOLS, *, salt: str = ""
    ) -> PreparedConversation:
        """Prepares a conversation: a prompt without a schema.

        Args:
            messages: its turns, in order, made of blocks.
            tools: what the assistant may call. Where the chat template has no place for them, planning it
                raises a ToolsError.
            salt: conversations and schemas of another salt share nothing with it, in memory or on disk.

        Raises:
            SettingsError: there is no message, something in them is none, or names or results do not fit.
            ToolsError: calls of tools are none, or stand where they cannot.
        """
        return prepare_conversation(messages, self._salted(salt), self._workshop, tools)

    def check(
        self,
        schema: str | Path | Schema,
        prompt: str | Path | Prompt | None = None,
        *,
        scope: Scope = "anchored",
        placement: PlacementPolicy = "compact",
    ) -> tuple[Diagnostic, ...]:
        """Returns what is wrong with a document for this model, and advice; nothing is raised for its faults.

        Args:
            schema: PML text, a file with it, or a tree.
            prompt: None to check the schema; else the prompt is checked, binding included.
            scope: what modules see while they are encoded.
            placement: the placement of the prompt.

        Raises:
            PathError: a text is no document but the name of one.
            SettingsError: there is no such scope or placement.
            TextFileError: a file cannot be read as text.
        """
        try:
            prepared = self.schema(schema)
            if prompt is None:
                return prepared.check(scope=scope)
            return prepared.prompt(prompt).check(scope=scope, placement=placement)
        except PromptError as error:
            return error.diagnostics

    def submit(
        self,
        prompt: PreparedPrompt,
        settings: RunSettings | None = None,
        *,
        mode: Side = "cached",
        marks: Sequence[Mark] = (),
        warm: bool = False,
        **changes: Any,
    ) -> Ticket:
        """Has one side of a prompt answered behind the caller's back, and returns at once.

        The ticket gives events and the answer to threads and to asyncio. A ticket that is dropped cancels its
        prompt.

        Args:
            prompt: a prompt of this engine.
            settings: the settings of the run.
            mode: "cached", or "uncached" to compute every token afresh.
            marks: prefixes of a conversation that are written to disk when the prompt is computed.
            warm: compute the prompt for those to come, and answer nothing: the ticket's answer has no text,
                was stopped by "length", and says what was read and written.
            changes: single settings by name.

        Raises:
            ClosedError: the engine was closed.
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range, a mark ends at no border of a block, or the prompt
                is another engine's or none.
        """
        require_mode(mode, SIDES)
        given = settings_with(settings, changes)
        self._require_own(prompt)
        (one,) = prompt.submissions(given, mode=mode)
        return self.answerer.submit(one.marked_at(marks, warm=warm))

    def answer_all(
        self,
        prompts: Iterable[WithSettings | Exception],
        settings: RunSettings | None = None,
        *,
        mode: Mode = "cached",
        as_they_end: bool = False,
        apart: bool = False,
        stopped: Callable[[], bool] | None = None,
        **changes: Any,
    ) -> Generator[tuple[int, Answer | BothAnswers | Exception], None, None]:
        """Answers many prompts; what is wrong with one ends that one only.

        Prompts are taken one by one as there is room, so there may be more than fit into memory. What several
        of them lack is computed once. Closing the generator cancels what is under way.

        Args:
            prompts: prompts of this engine, with settings of their own where they have any; an error in the
                place of one is given back in its turn.
            settings: the settings of each other run.
            mode: one side, or "both"; their times can be compared only where the engine is `deterministic`,
                or where they are answered `apart`.
            as_they_end: give back what has ended first; else in the order of the prompts.
            apart: answer one side of one prompt after the other, the sides taking turns at being first.
            stopped: asked in the midst of answers whether nobody wants any more; then the generator ends.
            changes: single settings by name.

        Yields:
            The number of a prompt, from 0, with its answer, the answers of both sides, or what ended it.

        Raises:
            SettingsError: a setting is out of its range, or `prompts` is no series.
        """
        require_mode(mode, (*SIDES, "both"))
        given = settings_with(settings, changes)
        series = (
            one if isinstance(one, Exception | tuple) else (one, given) for one in prompt_series(prompts)
        )

        def submit(one: tuple[PreparedPrompt, RunSettings], mode: Mode = mode) -> tuple[Ticket, ...]:
            prompt, own = one
            return self._submitted(prompt, own, mode)

        def submit_side(one: tuple[PreparedPrompt, RunSettings], side: Side) -> Ticket:
            return submit(one, side)[0]

        if apart:
            orders: list[tuple[Side, ...]] = [SIDES, SIDES[::-1]] if mode == "both" else [(mode,)]
            return answered_apart(series, submit_side, orders, stopped=stopped or (lambda: False))
        return answered(
            series,
            submit,
            ahead=self.answerer.appetite,
            as_they_end=as_they_end,
            stopped=stopped,
        )

    def outlook(self, prompt: PreparedPrompt, settings: RunSettings | None = None, **changes: Any) -> Outlook:
        """Returns what an answer would read, from where, and what it would compute and why; computes nothing.

        Args:
            prompt: a prompt of this engine.
            settings: the settings of the run.
            changes: single settings by name.

        Raises:
            ClosedError: the engine was closed.
            PromptError: the prompt, or a segment that it reads, does not fit the context window.
            SettingsError: a setting is out of its range.
        """
        self.computing.require_open()
        (submission,) = prompt.submissions(settings_with(settings, changes))
        tree = self.answerer.tree if isinstance(self.answerer, BatchLoop) else None
        return outlook(self.segment_cache, tree, submission)

    def placement(self, wanted: PlacementPolicy = "compact") -> PlacementPolicy:
        """Returns how prompts are laid out: as wanted, but by the schema where a model cannot relocate.

        Raises:
            SettingsError: there is no such placement.
        """
        return self.spec.placement(RunSettings(placement=wanted).placement)

    def count_tokens(self, text: str) -> int:
        """Returns how many tokens a text has by itself.

        Raises:
            CharacterError: it holds half of a surrogate pair.
        """
        return len(self.model.tokenize(text))

    def __repr__(self) -> str:
        return f"<Engine of {self.model.name!r} on {self.model.device}>"

    def _submitted(self, prompt: PreparedPrompt, settings: RunSettings, mode: Mode) -> tuple[Ticket, ...]:
        self._require_own(prompt)
        return tuple(self.answerer.submit(one) for one in prompt.submissions(settings, mode=mode))

    def _require_own(self, prompt: PreparedPrompt) -> None:
        self.computing.require_open()
        require_prompt(prompt)
        if not prompt.is_for(self._workshop):
            raise SettingsError("The prompt was prepared by another engine. Prepare it with this one.")

    def _prepared(self, tree: Schema, salt: str) -> PreparedSchema:
        return PreparedSchema(TokenizedSchema(tree, self._salted(salt)), self._workshop)

    def _salted(self, salt: str) -> ModelSpec:
        if not isinstance(salt, str):
            raise SettingsError(f"salt is {salt!r}; it must be a text, and is empty for none.")
        return replace(self.spec, identity=replace(self.spec.identity, salt=salt)) if salt else self.spec


def _require_prompts(parallel: object) -> None:
    if parallel is not None and (type(parallel) is not int or parallel < 1):
        raise SettingsError(
            f"parallel is {parallel!r}; it must be a whole number of prompts, at least 1, or None."
        )
