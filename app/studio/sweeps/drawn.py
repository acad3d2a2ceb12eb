"""Random tokens and texts, and modules of equal length."""

from __future__ import annotations

import itertools
import random
import string

import torch

from engine.model.model import Model


def drawn_tokens(vocabulary: int, count: int, seed: int) -> list[int]:
    """Token ids, each as likely as any other.

    Args:
        vocabulary: number of token ids to draw from.
        count: number of drawn ids.
        seed: of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn: list[int] = torch.randint(0, vocabulary, (count,), generator=generator).tolist()
    return drawn


def spans(cached: int, modules: int) -> list[tuple[int, int]]:
    """Start and end of each module, if `cached` tokens are split over `modules`."""
    return list(itertools.pairwise(cached * i // modules for i in range(modules + 1)))


def text_of(model: Model, tokens: int, draw: random.Random) -> str:
    """Words of random letters with this number of tokens, or a few less."""
    words: list[str] = []
    while (missing := tokens - len(model.tokenize(" ".join(words)))) > 0:
        sizes = [draw.randint(2, 8) for _ in range(1 + missing // 8)]
        words += ["".join(draw.choices(string.ascii_lowercase, k=size)) for size in sizes]
    text = " ".join(words)
    while len(model.tokenize(text)) > tokens and len(text) > 1:
        text = text[:-1].rstrip()
    return text


def schema_of(name: str, modules: dict[str, str]) -> str:
    """A schema of these modules."""
    written = "".join(f'<module name="{one}">{text}</module>' for one, text in modules.items())
    return f'<schema name="{name}">{written}</schema>'


def sources(model: Model, cached: int, modules: int, new: int, seed: int) -> tuple[str, str]:
    """A schema of random modules, and a prompt that imports them all and ends with new text.

    Args:
        model: its tokenizer counts the tokens.
        cached: approximate tokens in all modules.
        modules: number of modules.
        new: approximate tokens of the text after them.
        seed: of the texts.
    """
    draw = random.Random(seed)
    texts = {f"m{i}": text_of(model, hi - lo, draw) for i, (lo, hi) in enumerate(spans(cached, modules))}
    imports = "".join(f"<{name}/>" for name in texts)
    behind = text_of(model, new, draw)
    return schema_of("bench", texts), f'<prompt schema="bench">{imports}{behind}</prompt>'
