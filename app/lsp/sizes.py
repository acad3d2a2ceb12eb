"""How long the text of a module is: in words and characters, and in tokens where a tokenizer is there."""

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
    """Counts tokens as a model does.

    Attributes:
        model: the model's name.
        count: from a text to its number of tokens.
    """

    model: str
    count: Count


def token_counter(model: str) -> TokenCounter:
    """The tokenizer of a model, read without its weights.

    Args:
        model: as `--model` takes it.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    if model.startswith(RANDOM):
        return TokenCounter(model, lambda text: len(text.encode("utf-8", "replace")))  # a token per byte
    tokenizer = _tokenizer(model)

    def count(text: str) -> int:
        plain = text.encode("utf-8", "replace").decode("utf-8")  # half a character is none to the library
        return len(tokenizer.encode(plain, add_special_tokens=False).ids)

    return TokenCounter(model, count)


def _tokenizer(model: str) -> Any:
    """The tokenizer of a model, of the library."""
    from tokenizers import Tokenizer

    folder = DEMO_FOLDER if model == "demo" else _folder(model)
    if folder.is_file() or gguf_models(one.name for one in folder.iterdir()):
        from engine.gguf.reader import read_header
        from engine.gguf.tokenizer import build

        checkpoint = Checkpoint.of(model, folder)
        if checkpoint.gguf:
            return build(model, read_header(model, checkpoint.paths[0]).metadata).backend_tokenizer
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # the library raises nothing more special
        raise ModelError(f"model {model!r}: {TOKENIZER} cannot be read: {error}") from None


def _folder(model: str) -> Path:
    """A model's folder or GGUF file; of a Hugging Face id the one that its tokenizer is fetched into."""
    folder = from_home(model)
    if folder.is_dir() or is_gguf(folder):
        return folder
    from huggingface_hub import hf_hub_download

    from engine.checkpoint.hub import fetch, parted

    if parted(model)[1]:
        return fetch(model)
    try:
        return Path(hf_hub_download(model, TOKENIZER)).parent
    except Exception:  # of the hub, of the network, of the disk: each means no tokenizer
        raise ModelError(
            f"there is no file or folder {model!r}, and no tokenizer of that name could be fetched from the "
            "Hugging Face hub. Check the name and the network."
        ) from None


@dataclass(frozen=True)
class Sizes:
    """Sizes of a module.

    Attributes:
        words: of its own text.
        characters: of its own text.
        tokens: of its own text, with room for its arguments; None without a tokenizer.
        total: the same with what is nested in it, of each union its longest member.
    """

    words: int
    characters: int
    tokens: int | None
    total: int | None

    def __str__(self) -> str:
        """The sizes on one line."""
        plain = f"{_counted(self.words, 'word')}, {_counted(self.characters, 'character')}"
        if self.tokens is None:
            return plain
        nested = f", {self.total:,} with what is nested" if self.total != self.tokens else ""
        return f"{plain}; {_counted(self.tokens, 'token')}{nested}"


def sizes(module: Module, counter: TokenCounter | None) -> Sizes:
    """The sizes of a module; tokens are counted text by text, so that borders may take one more or less."""
    text = "".join(child.text for child in module.contents() if _is_words(child))
    own = _own(module, counter.count) if counter else None
    total = _total(module, counter.count) if counter else None
    return Sizes(len(text.split()), len(text), own, total)


def _is_words(child: object) -> TypeGuard[Text]:
    """Whether a child is text of a module, and not the seam that sets it apart from what follows."""
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
