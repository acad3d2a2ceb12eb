"""Sizes of modules in words and characters, and in tokens if there is a tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from engine.base.choices import RANDOM
from engine.base.errors import ModelError
from engine.checkpoint.checkpoint import DEMO_FOLDER, Checkpoint, gguf_models, is_gguf
from engine.files.places import from_home
from engine.pml import Module, Param, Text, Union

Count = Callable[[str], int]

TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True)
class TokenCounter:
    """Counts tokens of a model."""

    model: str
    count: Count  # returns the token count of a text


def token_counter(model: str) -> TokenCounter:
    """Returns the token counter of a `--model` without its weights; raises ModelError if it is unusable."""
    if model.startswith(RANDOM):
        return TokenCounter(model, lambda text: len(text.encode("utf-8", "replace")))  # one token per byte
    tokenizer = _tokenizer(model)

    def count(text: str) -> int:
        plain = text.encode("utf-8", "replace").decode("utf-8")  # the library rejects unpaired surrogates
        return len(tokenizer.encode(plain, add_special_tokens=False).ids)

    return TokenCounter(model, count)


def _tokenizer(model: str) -> Any:
    from tokenizers import Tokenizer

    folder = DEMO_FOLDER if model == "demo" else _folder(model)
    if folder.is_file() or gguf_models(path.name for path in folder.iterdir()):
        from engine.gguf.reader import read_header
        from engine.gguf.tokenizer import build

        checkpoint = Checkpoint.of(model, folder)
        if checkpoint.gguf:
            return build(model, read_header(model, checkpoint.paths[0]).metadata).backend_tokenizer
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # the library has no specific exception
        raise ModelError(f"model {model!r}: {TOKENIZER} cannot be read: {error}") from None


def _folder(model: str) -> Path:
    """A model's folder or GGUF file; for a Hugging Face id, fetches the tokenizer."""
    folder = from_home(model)
    if folder.is_dir() or is_gguf(folder):
        return folder
    from huggingface_hub import hf_hub_download

    from engine.checkpoint.hub import fetch, parted

    if parted(model)[1]:
        return fetch(model)
    try:
        return Path(hf_hub_download(model, TOKENIZER)).parent
    except Exception:  # from hub, network or disk
        raise ModelError(
            f"there is no file or folder {model!r}, and no tokenizer of that name could be fetched from the "
            "Hugging Face hub. Check the name and the network."
        ) from None


@dataclass(frozen=True)
class Sizes:
    """Sizes of a module."""

    words: int  # words of its own text
    characters: int  # characters of its own text
    tokens: int | None  # tokens of its own text, including room for arguments; None without a tokenizer
    total: int | None  # tokens including nested modules, with the longest member of each union

    def __str__(self) -> str:
        """Returns the sizes on one line."""
        plain = f"{_counted(self.words, 'word')}, {_counted(self.characters, 'character')}"
        if self.tokens is None:
            return plain
        nested = f", {self.total:,} with nested modules" if self.total != self.tokens else ""
        return f"{plain}; {_counted(self.tokens, 'token')}{nested}"


def sizes(module: Module, counter: TokenCounter | None) -> Sizes:
    """Returns the sizes of a module. Counting text by text may be off by a token at boundaries."""
    text = "".join(child.text for child in module.contents() if _is_words(child))
    own = _own(module, counter.count) if counter else None
    total = _total(module, counter.count) if counter else None
    return Sizes(len(text.split()), len(text), own, total)


def _is_words(child: object) -> TypeGuard[Text]:
    """Whether a child is text of a module, not its separator."""
    return isinstance(child, Text) and not child.seam


def _own(module: Module, count: Count) -> int:
    texts = (count(child.text) for child in module.contents() if _is_words(child))
    return sum(texts) + sum(child.length for child in module.contents() if isinstance(child, Param))


def _total(module: Module, count: Count) -> int:
    total = _own(module, count)
    for child in module.contents():
        if isinstance(child, Module):
            total += _total(child, count)
        elif isinstance(child, Union):
            total += max((_total(member, count) for member in child.members), default=0)
    return total


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
