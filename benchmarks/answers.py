"""The level of text: from the text of a prompt to its first token, as `pml run` and the studio do it.

Parsing, binding and planning the prompt, finding and reading its segments, repair, prefill and the choice of
the token are all in here. The schema is parsed and laid out before, as where many prompts follow one schema;
only `cached_with_schema` begins at the text of both.

- `uncached`: every token computed.
- `cached`: segments in memory.
- `files_later`: segments read from their files, whose digests this process has checked before.
- `files_first`: segments read from files, their digests checked: the first load of a process.
- `files_cold`: the same, after the operating system was asked to drop the files from its page cache; left out
  where it takes no such wish (macOS, Windows), or does not do it (files in memory).
- `cached link:8` and so on: from memory with a repair, the choice of its tokens included.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import page_cache
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError, SettingsError
from engine.base.events import Answer
from engine.engine import Engine
from engine.model.model import Model
from engine.pml import Schema, parse_schema
from engine.store import Store

REPAIRS = ("link:8", "blend:0.15", "query:0.15", "impact:0.15")


class Answers:
    """One prompt over stored modules.

    Args:
        model: the model that answers.
        folder: the folder of the store.
        cached: about how many tokens all modules have together.
        modules: how many there are.
        new: about how many tokens the text behind them has.
        seed: the seed of the texts.
        say: is told what goes on.
    """

    def __init__(
        self,
        model: Model,
        folder: Path,
        *,
        cached: int,
        modules: int,
        new: int,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.model, self.folder = model, folder
        self.schema_source, self.prompt_source = sources(model, cached, modules, new, seed)
        self.engine = Engine(model, Store.open(folder))
        self.schema = self.engine.schema(self.schema_source)
        self.schema.encode(progress=lambda done, total, what: say(f"{what} ({done} of {total})"))
        self.process_begins()  # from here on what is in memory was read from files, in every round alike
        self.tokens = self.ask("cached").tokens

    def close(self) -> None:
        """Closes the store."""
        self.engine.close()

    def ways(self) -> list[Way]:
        """Every way. Repairs that the model cannot do are left out."""
        ways = [
            Way("uncached", lambda: self.ask("uncached").ttft_ms),
            Way("cached", lambda: self.ask("cached").ttft_ms),
            Way("cached_with_schema", self._from_both_texts),
            Way("files_later", lambda: self.ask("cached").ttft_ms, self.engine_forgets),
            Way("files_first", lambda: self.ask("cached").ttft_ms, self.process_begins),
        ]
        if self.drops_files():
            ways.append(Way("files_cold", lambda: self.ask("cached").ttft_ms, self.machine_begins))
        for repair in REPAIRS:
            try:
                self.ask("cached", repair)
            except SettingsError:
                continue
            ways.append(Way(f"cached {repair}", self._repaired(repair)))
        return ways

    def ask(self, side: Any, repair: str = "none") -> Answer:
        """The answer of one token to the prompt's text."""
        prompt = self.schema.prompt(self.prompt_source)
        return prompt.answer(mode=side, max_new_tokens=1, repair=repair)

    def engine_forgets(self) -> None:
        """Memory is empty; digests stay checked."""
        self.engine.memory_tier.clear()

    def process_begins(self) -> None:
        """Memory is empty, and no digest was checked."""
        self.engine.close()
        self.engine = Engine(self.model, Store.open(self.folder))
        self.schema = self.engine.schema(self.schema_source)

    def machine_begins(self) -> None:
        """The same, with the files out of the page cache, if the operating system does as asked."""
        self.process_begins()
        page_cache.drop(self._files())

    def drops_files(self) -> bool:
        """Whether files leave the page cache when that is asked."""
        if not page_cache.can_drop():
            return False
        self.machine_begins()
        return page_cache.held(self._files()) <= page_cache.DROPPED

    def _files(self) -> list[Path]:
        return [path for path in (self.folder / "files").iterdir() if path.stat().st_size]

    def _repaired(self, repair: str) -> Callable[[], float]:
        return lambda: self.ask("cached", repair).ttft_ms

    def _from_both_texts(self) -> float:
        """Preparing the schema counts too."""
        started = time.perf_counter()
        schema = self.engine.schema(_schema(self.schema_source))
        prepare_ms = (time.perf_counter() - started) * 1000
        return prepare_ms + schema.prompt(self.prompt_source).answer(max_new_tokens=1).ttft_ms


def sources(model: Model, cached: int, modules: int, new: int, seed: int) -> tuple[str, str]:
    """A schema of drawn modules, and a prompt that imports them all and ends with new text.

    Args:
        model: the model whose tokens are counted.
        cached: about how many tokens all modules have together.
        modules: how many there are.
        new: about how many tokens the text behind them has.
        seed: the seed of the texts.
    """
    draw = random.Random(seed)
    sizes = [cached * (i + 1) // modules - cached * i // modules for i in range(modules)]
    texts = [text_of(model, size, draw) for size in sizes]
    written = "".join(f'<module name="m{i}">{text}</module>' for i, text in enumerate(texts))
    imports = "".join(f"<m{i}/>" for i in range(modules))
    behind = text_of(model, new, draw)
    return f'<schema name="bench">{written}</schema>', f'<prompt schema="bench">{imports}{behind}</prompt>'


def text_of(model: Model, tokens: int, draw: random.Random) -> str:
    """Words of drawn letters that have so many tokens, or a few less where no text of ours has as many."""
    words: list[str] = []
    while (missing := tokens - len(model.tokenize(" ".join(words)))) > 0:
        sizes = [draw.randint(2, 8) for _ in range(1 + missing // 8)]
        words += ["".join(draw.choices(string.ascii_lowercase, k=size)) for size in sizes]
    text = " ".join(words)
    while len(model.tokenize(text)) > tokens and len(text) > 1:
        text = text[:-1].rstrip()
    return text


def _schema(source: str) -> Schema:
    tree = parse_schema(source).tree
    if tree is None:
        raise PromptCacheError("the schema that was drawn does not parse; try another --seed.")
    return tree
