"""One model with one store. It prepares schemas and answers prompts.

    with Engine.open("demo") as engine:
        schema = engine.schema(Path("travel.pml"))
        answer = schema.prompt('<prompt schema="travel">…</prompt>').answer()

The engine parses and lays out a schema once, and plans a prompt once (`engine.prepared`).
`engine.inference.generate` computes an answer.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cachetools import LRUCache

from engine.arguments import document_text, prompt_series, require_mode, settings_with
from engine.base.choices import PlacementPolicy, Quantize, Scope, Weights
from engine.base.errors import SettingsError
from engine.base.events import SIDES, Answer, Listener, Side
from engine.batch.cache_lookup import Outlook, outlook
from engine.batch.idle import Idle
from engine.batch.loop import BatchLoop
from engine.batch.scheduler import MOST
from engine.batch.series import BothAnswers, answered, answered_apart
from engine.batch.ticket import Ticket
from engine.cache.memory import MemoryTier
from engine.cache.segment_cache import SegmentCache
from engine.embeddings.embedder import Embedder, Pooling, Vectors
from engine.embeddings.templates import BUILT_IN, PLAIN, template_of
from engine.files.places import from_home
from engine.inference.continuation import Continuation, continuing
from engine.inference.model_settings import without_effect
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import Computing, Progress
from engine.inference.submission import Mark
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Diagnostic, Prompt, PromptError, Schema, parse_schema, reads_files
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

MEMORY_BUDGET = 4 << 30  # bytes of segments in memory
_SCHEMAS = 16  # prepared schemas in the cache
_RUNS = 10_000  # runs of their layouts: a million objects make the garbage collector pause for a second


def _weight(schema: PreparedSchema) -> int:
    """Returns the runs of a schema's layout, at least a share of the cache, and at most all of it."""
    return min(max(len(schema.tokenized.layout.runs), _RUNS // _SCHEMAS), _RUNS)


class Engine:
    """One model with one store.

    Args:
        model: the model that answers.
        store: the segments on disk.
        memory: the byte limit of segments in memory, or on the GPU if the model runs there.
        deterministic: whether submitted prompts run one at a time, bit-exact as if alone. Prompts run
            together otherwise, and rounding may differ.
        parallel: the most submitted prompts in progress at once; None for an automatic limit.

    Raises:
        SettingsError: `parallel` is not a valid number of prompts.
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
        # One step at a time: two would disturb each other's timings.
        self.computing = Computing(model.network)
        most = MOST if parallel is None else parallel
        self.answerer = BatchLoop(self.segment_cache, self.computing, most, deterministic=deterministic)
        self.spec = ModelSpec(
            model.name,
            model.tokenizer,
            model.chat,
            model.stand_in,
            model.context_length,
            self.segment_cache.identity,
            model.unknown_tokens,
        )
        self.idle = Idle(self.computing)
        self._workshop = Workshop(self.segment_cache, self.computing, self.idle)
        self._schemas: LRUCache[tuple[str, Path | None, str], PreparedSchema] = LRUCache(_RUNS, _weight)
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
            weights: "plain", "packed" for the processor, or "auto": packed if a measurement favours it.
            quantize: "int8" or "int4" to round weights. A rounded model has separate segments.
            cache_dir: the folder of the store; None for the user's cache folder.
            verify: when to check a stored file's digest: "always", "first" (in this process) or "never".
            memory: the byte limit of segments in memory, or on the GPU.
            date: the date for the chat template; None for the day of each prompt.
            deterministic: whether submitted prompts run one at a time, bit-exact as if alone.
            parallel: the most submitted prompts in progress at once; None for an automatic limit.
            progress: called with (bytes done, total bytes, label) while the files of a new model are
                digested.

        Raises:
            ModelError: the model cannot be used.
            SettingsError: `memory` or `parallel` is not a valid number.
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
        """Closes the store and frees the memory once the current step ends.

        Prepared schemas and prompts stop computing, and answers in progress end with ClosedError.
        """
        self.computing.close()
        self.idle.close()
        self.answerer.close()
        self.segment_cache.count_answers()
        self.memory_tier.clear()
        self.store.close()

    def check_when_idle(self) -> None:
        """Starts to check answers with a KL limit while the engine is idle.

        For long-running programs. A program that ends after its answer calls `PreparedPrompt.check_answer`.
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
        """Parses, tokenizes and lays out a schema.

        Args:
            source: PML text, the path of a file with it, or a tree without errors. The engine reuses its
                result for the same text, unless the text reads other files or many other schemas followed.
            base: the folder of relative `src`, also in its prompts; by default the file's own folder.
            salt: schemas and conversations with different salts share nothing, in memory or on disk.

        Raises:
            PathError: the text is a file name, not a document.
            PromptError: the schema has errors, all listed, or the chat template refuses its roles.
            TextFileError: the file cannot be read as text.
            TypeError: the source has another type.
        """
        if isinstance(source, Schema):
            return self._prepared(source, salt, base)
        text = document_text(source, "schema")
        folder = base or (source.resolve().parent if isinstance(source, Path) else None)
        with self._schemas_lock:
            cached = self._schemas.get((text, folder, salt))
        if cached is not None:
            return cached
        parsed = parse_schema(text, base=folder)
        if parsed.tree is None or not parsed.ok:
            raise PromptError(parsed.diagnostics)
        prepared = self._prepared(parsed.tree, salt, folder)
        if not reads_files(text):  # other files may change
            with self._schemas_lock:
                self._schemas[text, folder, salt] = prepared
        return prepared

    def conversation(
        self, messages: Sequence[Message], tools: Tools = NO_TOOLS, *, salt: str = ""
    ) -> PreparedConversation:
        """Prepares a conversation: a prompt without a schema.

        Args:
            messages: its turns, in order, made of blocks.
            tools: the tools that the assistant may call. Planning raises a ToolsError if the chat template
                does not support them.
            salt: conversations and schemas with different salts share nothing, in memory or on disk.

        Raises:
            SettingsError: the conversation is empty, has an item that is not a message, or names or results
                that do not fit.
            ToolsError: tool calls are malformed or misplaced.
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
        """Returns a document's diagnostics for this model, with advice. Errors of the document do not raise.

        Args:
            schema: PML text, the path of a file with it, or a tree.
            prompt: the prompt to check, including its binding; None to check the schema.
            scope: what modules see while they are encoded.
            placement: the placement of the prompt.

        Raises:
            PathError: a text is a file name, not a document.
            SettingsError: the scope or placement is unknown.
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
        logprobs: int | None = None,
        **changes: Any,
    ) -> Ticket:
        """Submits one side of a prompt and returns at once.

        The ticket gives events and the answer to threads and to asyncio. Dropping the ticket cancels the
        prompt.

        Args:
            prompt: a prompt of this engine.
            settings: the settings of the run.
            mode: "cached", or "uncached" to compute every token.
            marks: prefixes of a conversation to write to disk when the prompt is computed.
            warm: compute the prompt for later answers, without an answer. The ticket's answer has no text,
                has the stop reason "length", and reports the tokens read and written.
            logprobs: return the log-probability of each token with this many alternatives; None for none.
            changes: single settings by name.

        Raises:
            ClosedError: the engine is closed.
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range, a mark is not at the end of a block, or the prompt does
                not belong to this engine.
        """
        require_mode(mode, SIDES)
        run = settings_with(settings, changes)
        self._require_own(prompt)
        (submission,) = prompt.submissions(run, mode=mode)
        return self.answerer.submit(replace(submission.marked_at(marks, warm=warm), logprobs=logprobs))

    def continue_tokens(
        self,
        tokens: Sequence[int],
        settings: RunSettings | None = None,
        *,
        answer: bool = True,
        scored: bool = False,
        logprobs: int | None = None,
        labels: Sequence[int] = (),
        said: Callable[[Continuation], None] = lambda _: None,
        listener: Listener | None = None,
        **changes: Any,
    ) -> Continuation:
        """Continues a prompt of tokens, which are read as they are and computed in full.

        Args:
            tokens: the prompt, at least one token.
            settings: the settings of the run.
            answer: whether to generate tokens after it.
            scored: whether to return the log-probability of each token of the prompt but the first.
            logprobs: return those of each new token, all with this many alternatives; None for none.
            labels: tokens whose log-probabilities after the prompt are returned.
            said: receives the parts: first the prompt with its scores, then each new token. Must be quick.
            listener: asked during a step if the work is still wanted.
            changes: single settings by name.

        Raises:
            CancelledError: the listener cancelled the work.
            PromptError: the prompt does not fit the context window.
            SettingsError: a setting is out of range, or a token is not of the vocabulary.
        """
        run = settings_with(settings, changes)
        options: Any = {"answer": answer, "scored": scored, "top": logprobs, "labels": labels, "said": said}
        work = continuing(self.model, tokens, run, **options)
        return self.computing.finish(work, "uncached", listener=listener)

    def answer_all(
        self,
        prompts: Iterable[WithSettings | Exception],
        settings: RunSettings | None = None,
        *,
        mode: Mode = "cached",
        as_they_end: bool = False,
        apart: bool = False,
        stopped: Callable[[], bool] | None = None,
        check: bool = True,
        **changes: Any,
    ) -> Generator[tuple[int, Answer | BothAnswers | Exception], None, None]:
        """Answers many prompts. An error ends its own prompt only.

        The engine draws prompts as it has room, so the series may exceed the memory. It computes segments
        that several prompts lack once. Closing the generator cancels the answers in progress.

        Args:
            prompts: prompts of this engine, each alone or with its own settings. An error in place of a
                prompt is returned in its turn.
            settings: the settings of each run without its own.
            mode: one side, or "both". The times of both sides are comparable only if the engine is
                `deterministic` or the sides are answered `apart`.
            as_they_end: return answers as they finish, not in the order of the prompts.
            apart: answer one side of one prompt at a time, and alternate the first side.
            stopped: polled during answers; the generator ends once it returns true.
            check: whether answers with a KL limit are checked when the engine is idle.
            changes: single settings by name.

        Yields:
            The index of a prompt, from 0, with its answer, the answers of both sides, or its error.

        Raises:
            SettingsError: a setting is out of range, or `prompts` is not a series.
        """
        require_mode(mode, (*SIDES, "both"))
        run = settings_with(settings, changes)
        series = (one if isinstance(one, Exception | tuple) else (one, run) for one in prompt_series(prompts))

        def submit(one: tuple[PreparedPrompt, RunSettings], mode: Mode = mode) -> tuple[Ticket, ...]:
            prompt, own = one
            self._require_own(prompt)
            sides = prompt.submissions(own, mode=mode)
            if not check:
                sides = tuple(replace(side, ended=lambda _: None) for side in sides)
            return tuple(map(self.answerer.submit, sides))

        def submit_side(one: tuple[PreparedPrompt, RunSettings], side: Side) -> Ticket:
            return submit(one, side)[0]

        if apart:
            orders: list[tuple[Side, ...]] = [SIDES, SIDES[::-1]] if mode == "both" else [(mode,)]
            return answered_apart(series, submit_side, orders, stopped=stopped)
        return answered(
            series, submit, ahead=self.answerer.appetite, as_they_end=as_they_end, stopped=stopped
        )

    def embedder(
        self,
        pooling: Pooling = "last",
        template: str | Path | Schema | PreparedSchema | None = None,
        *,
        dimensions: int | None = None,
        normalize: bool = True,
    ) -> Embedder:
        """Returns an embedder of texts.

        Args:
            pooling: "last" for the last token's hidden state, or "mean" for the mean over the text.
            template: "prompteol", "echo", a schema with a parameter `text`, or None for the text alone.
            dimensions: the number of leading dimensions; None for all.
            normalize: whether each embedding has the length 1.

        Raises:
            PromptError: the template has errors.
            SettingsError: an argument is out of range, or the template has no parameter `text`.
        """
        source = PLAIN if template is None else template
        if not isinstance(source, PreparedSchema):
            source = self.schema(BUILT_IN.get(source, source) if isinstance(source, str) else source)
        around = template_of(source.tokenized, plain=template is None)
        return Embedder(self.segment_cache, self.computing, around, pooling, dimensions, normalize)

    def embed(
        self, texts: str | Sequence[str] | Sequence[Sequence[int]], *how: Any, **options: Any
    ) -> Vectors:
        """Returns the embeddings of texts, float32 [texts, dimensions]; arguments as in `embedder`."""
        return self.embedder(*how, **options).embed([texts] if isinstance(texts, str) else texts).vectors

    def outlook(self, prompt: PreparedPrompt, settings: RunSettings | None = None, **changes: Any) -> Outlook:
        """Returns what an answer would read from which tier and compute and why, without computing anything.

        Raises:
            ClosedError: the engine is closed.
            PromptError: the prompt or a segment of it does not fit the context window.
            SettingsError: a setting is out of range.
        """
        self.computing.require_open()
        (submission,) = prompt.submissions(settings_with(settings, changes))
        return outlook(self.segment_cache, self.answerer.tree, submission)

    def placement(self, wanted: PlacementPolicy = "compact") -> PlacementPolicy:
        """Returns the placement of prompts: the wanted one, or by the schema if the model cannot relocate.

        Raises:
            SettingsError: the placement is unknown.
        """
        return self.spec.placement(RunSettings(placement=wanted).placement)

    def count_tokens(self, text: str) -> int:
        """Returns the number of tokens of a text alone; raises CharacterError for invalid characters."""
        return len(self.model.tokenize(text))

    def __repr__(self) -> str:
        return f"<Engine of {self.model.name!r} on {self.model.device}>"

    def _require_own(self, prompt: PreparedPrompt) -> None:
        self.computing.require_open()
        require_prompt(prompt)
        if not prompt.is_for(self._workshop):
            raise SettingsError("The prompt was prepared by another engine. Prepare it with this one.")

    def _prepared(self, tree: Schema, salt: str, base: Path | None) -> PreparedSchema:
        return PreparedSchema(TokenizedSchema(tree, self._salted(salt)), self._workshop, base)

    def _salted(self, salt: str) -> ModelSpec:
        if not isinstance(salt, str):
            raise SettingsError(f"salt is {salt!r}; it must be a text, or empty for no salt.")
        return replace(self.spec, identity=replace(self.spec.identity, salt=salt)) if salt else self.spec


def _require_prompts(parallel: object) -> None:
    if parallel is not None and (type(parallel) is not int or parallel < 1):
        raise SettingsError(
            f"parallel is {parallel!r}; it must be a whole number of prompts, at least 1, or None."
        )
