"""One model with one store: what schemas are prepared for, and prompts are answered by.

    with Engine.open("demo") as engine:
        schema = engine.schema(Path("travel.pml"))
        answer = schema.prompt('<prompt schema="travel">…</prompt>').answer()

A schema is parsed and laid out once, a prompt planned once (`engine.prepared`); `engine.inference.answering`
is the way of an answer.
"""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.cache.memory import MemoryTier
from engine.cache.segment_cache import SegmentCache
from engine.cache.store import Store, Verify
from engine.choices import PlacementPolicy, Quantize, Scope, Weights
from engine.errors import SettingsError
from engine.inference.computing import Computing, Progress
from engine.inference.params import RunSettings
from engine.model.loading import load
from engine.model.model import Model
from engine.pml import Diagnostic, Prompt, PromptError, Schema, parse_schema
from engine.prepared import PreparedSchema, Workshop, document_text
from engine.prompt.spec import ModelSpec
from engine.prompt.tokenized import TokenizedSchema

MEMORY_BUDGET = 4 << 30  # bytes of segments held in memory
_SCHEMAS_HELD = 16


class Engine:
    """One model with one store.

    Args:
        model: the model that answers.
        store: the store that keeps segments.
        memory: the most bytes of segments held in memory, or on the GPU where the model runs there.
    """

    def __init__(self, model: Model, store: Store, memory: int = MEMORY_BUDGET) -> None:
        self.model, self.store = model, store
        self.memory_tier = MemoryTier(memory, model.network.device)
        self.segment_cache = SegmentCache(model, store, self.memory_tier)
        self.computing = Computing()  # one step at a time: two would spoil each other's clock
        self.spec = ModelSpec(
            model.name,
            model.tokenizer,
            model.chat,
            model.stand_in,
            model.context_length,
            self.segment_cache.identity,
        )
        self._schemas: OrderedDict[tuple[str, Path | None], PreparedSchema] = OrderedDict()
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
            progress: called with (bytes done, bytes in all, what) while the files of a model that was not
                seen before are digested.

        Raises:
            ModelError: the model cannot be used.
            SettingsError: `memory` is no number of bytes.
            StoreError: the folder cannot be used.
        """
        if type(memory) is not int or memory < 0:
            raise SettingsError(
                f"memory is {memory!r}; it must be a whole number of bytes, at least 0: 2 << 30 is 2 GiB."
            )
        store = Store.open(None if cache_dir is None else Path(cache_dir), verify=verify)
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
            return cls(loaded, store, memory)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Closes the store and forgets what is in memory, once the step that is computed is done.

        What was prepared computes nothing any more, and answers that are under way end with ClosedError.
        """
        self.computing.close()
        self.segment_cache.count_answers()
        self.memory_tier.clear()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def schema(self, source: str | Path | Schema, *, base: Path | None = None) -> PreparedSchema:
        """Prepares a schema: parses it, tokenizes it, and lays it out.

        Args:
            source: PML text, a file with it, or a tree without errors. The same text is prepared once, unless
                it reads other files.
            base: the folder that `src` attributes of a text are looked up in; of a file its own.

        Raises:
            PathError: the text is no document but the name of one.
            PromptError: it has errors, all of which are told, or the chat template refuses its roles.
            TextFileError: the file cannot be read as text.
            TypeError: the source is none of these.
        """
        if isinstance(source, Schema):
            return self._prepared(source)
        text = document_text(source, "schema")
        folder = base or (source.resolve().parent if isinstance(source, Path) else None)
        with self._schemas_lock:
            held = self._schemas.get((text, folder))
        if held is not None:
            return held
        parsed = parse_schema(text, base=folder)
        if parsed.tree is None or not parsed.ok:
            raise PromptError(parsed.diagnostics)
        prepared = self._prepared(parsed.tree)
        if "src" not in text:  # what other files say may change
            with self._schemas_lock:
                self._schemas[text, folder] = prepared
                while len(self._schemas) > _SCHEMAS_HELD:
                    self._schemas.popitem(last=False)
        return prepared

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

    def _prepared(self, tree: Schema) -> PreparedSchema:
        return PreparedSchema(TokenizedSchema(tree, self.spec), Workshop(self.segment_cache, self.computing))
