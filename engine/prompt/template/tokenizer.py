"""Converts text to token ids, identically in every thread and at every place of a prompt.

Uses private copies with constant settings, because transformers toggles the treatment of special tokens in
shared tokenizers, which other threads can observe. Independent of schemas and turns.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from tokenizers import Tokenizer as Backend

from engine.base.errors import require_characters

Encoded = tuple[list[int], list[tuple[int, int]]]
_LONG = 5_000  # characters; takes a few milliseconds
_OPEN, _CLOSE = "\U0010fffc", "\U0010fffd"  # enclose special tokens that an author spells
_GUARDS = re.compile(f"[{_OPEN}{_CLOSE}]")
_UNKNOWN = "\U0010fffe"  # in no vocabulary


@dataclass(frozen=True)
class Fragment:
    """Text of one author.

    Attributes:
        text: the text to tokenize.
        template: whether the chat template wrote it, so that spellings of special tokens become special
            tokens.
        plain: plain places inside text of the chat template.
    """

    text: str
    template: bool = False
    plain: tuple[tuple[int, int], ...] = ()

    def parts(self) -> list[Fragment]:
        """Returns the same text as fragments that are entirely plain or not."""
        parts, place = [], 0
        for start, end in self.plain:
            parts += [Fragment(self.text[place:start], template=True), Fragment(self.text[start:end])]
            place = end
        return [*parts, Fragment(self.text[place:], self.template)]


@dataclass(frozen=True)
class Together:
    """Adjacent texts that are tokenized together; `behind` is the token before them."""

    fragments: tuple[Fragment, ...]
    begins: bool = False
    behind: int | None = None


class Tokenizer:
    """Tokenizes adjacent texts of a prompt.

    Args:
        tokenizer: a transformers tokenizer; not used again once copied, if it can be copied.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._lent = tokenizer
        self._lock = threading.Lock()
        try:
            self._form: str | None = tokenizer.backend_tokenizer.to_str()
        except Exception:  # no tokenizer of the library, or parts of it are Python code
            self._form = None
        if self._form is None:
            return
        self._begin = _backend(self._form)
        added = self._begin.get_added_tokens_decoder()
        self._special = {index: token.content for index, token in added.items() if token.special}
        self._unknown = frozenset(_encode(self._begin, _UNKNOWN)[0])
        self._indices = frozenset(added)
        self._added = _any_of(token.content for token in added.values())
        inner = _without_prefix(self._form)
        self._within = self._begin if inner is None else _backend(inner)
        self._within_form = inner or self._form
        alone = _encode(self._within, "a")[0]
        mark = next(iter(self._special.values()), "")
        self._each = inner is not None and bool(mark) and _encode(self._begin, mark + "a")[0][1:] != alone

    def plain(self, text: str) -> list[int]:
        """Returns tokens of an author's text inside a prompt; spellings of special tokens are plain text."""
        return self.encode([Fragment(text)])[0] if text else []

    def marked(self, text: str) -> list[int]:
        """Returns tokens of a chat template's text inside a prompt."""
        return self.encode([Fragment(text, template=True)])[0] if text else []

    def encode(
        self, fragments: Sequence[Fragment], *, begins: bool = False, behind: int | None = None
    ) -> list[list[int]]:
        """Tokenizes adjacent texts together.

        Args:
            fragments: in order, without gaps.
            begins: whether they begin a prompt, where some tokenizers insert a space; otherwise nothing is
                inserted.
            behind: the token before them; some tokenizers also insert a space after a special token.

        Returns:
            The tokens of each fragment; a token across a boundary belongs to the fragment in which it begins.
            Texts are tokenized separately if an author's words would otherwise form a special token.

        Raises:
            CharacterError: a text contains half of a surrogate pair.
        """
        begins = self._begins(begins, behind)
        if self._form is None:
            require_characters("".join(piece.text for piece in fragments))
            parts = _parts(fragments)
            token_lists = [self._slow(fragment, begins and not place) for place, fragment in enumerate(parts)]
        else:
            token_lists = [ids for ids, _ in self._cut(_parts(fragments), begins)]
        if len(token_lists) == len(fragments):
            return token_lists
        rest = iter(token_lists)
        return [[token for _ in piece.parts() for token in next(rest)] for piece in fragments]

    def starts(self, texts: Together) -> list[int] | None:
        """Returns where the tokens of `encode` begin, in order.

        Returns:
            For each token, its first character in the joined texts; tokens may share one. None if this
            tokenizer cannot report places.
        """
        if self._form is None:
            return None
        exact = self._exact
        encoded = exact._cut(_parts(texts.fragments), exact._begins(texts.begins, texts.behind))
        starts, reached = [], 0
        for start, end in (place for _, places in encoded for place in places):
            starts.append(min(start, reached))  # characters without a token belong to the next
            reached = max(reached, end)
        return starts

    def specials(self, text: str) -> list[tuple[int, int]]:
        """Returns the places of special tokens in a text of the chat template."""
        return [] if self._form is None else [match.span() for match in self._spellings.finditer(text)]

    def spelled(self, text: str) -> list[tuple[int, int]]:
        """Returns the places in an author's text that may become special tokens, in any case."""
        return [] if self._form is None else [match.span() for match in self._any_case.finditer(text)]

    def guarded(self, text: str) -> str:
        """Returns an author's text with guarded spellings of special tokens, so that they stay plain text.

        Read the template's output with `rendered`. Two characters of no language mark the spellings; the
        replacement character replaces these two in the text itself.
        """
        text = _GUARDS.sub("\ufffd", text)
        for start, end in reversed(self.spelled(text)):
            text = f"{text[:start]}{_OPEN}{text[start:end]}{_CLOSE}{text[end:]}"
        return text

    def rendered(self, text: str) -> Fragment:
        """Returns text of the chat template as a fragment, with guarded words as plain text.

        A mark without its counterpart, which the template may remove, has no effect.
        """
        if _GUARDS.search(text) is None:
            return Fragment(text, template=True)
        made, plain, done = "", [], 0
        for match in self._guarded.finditer(text):
            made += _GUARDS.sub("", text[done : match.start()])
            plain.append((len(made), len(made) + len(match[1])))
            made, done = made + match[1], match.end()
        return Fragment(made + _GUARDS.sub("", text[done:]), template=True, plain=tuple(plain))

    def border(self, text: str, place: int) -> int:
        """Returns the last place up to `place` outside any token with its own spelling."""
        if self._form is None:
            return place
        inside = (m.start() for m in self._added.finditer(text) if m.start() < place < m.end())
        return next(inside, place)

    def _begins(self, begins: bool, behind: int | None) -> bool:
        return begins or (self._form is not None and self._each and behind in self._indices)

    def _cut(self, fragments: Sequence[Fragment], begins: bool) -> list[Encoded]:
        """The tokens of each fragment, with their places in the joined texts."""
        ids, offsets = self._fast("".join(text.text for text in fragments), begins)
        ends = list(accumulate(len(text.text) for text in fragments))
        last, place, cuts = len(ends) - 1, 0, [0]
        for index, (token, (start, _)) in enumerate(zip(ids, offsets, strict=True)):
            while place < last and start >= ends[place]:
                place += 1
                cuts.append(index)
            if token in self._special and not self._meant(token, ends[place] - start, fragments, place):
                return self._apart(fragments, begins)
        cuts.extend([len(ids)] * (len(ends) + 1 - len(cuts)))
        return [(ids[a:b], offsets[a:b]) for a, b in pairwise(cuts)]

    def _apart(self, fragments: Sequence[Fragment], begins: bool) -> list[Encoded]:
        """As `_cut`, but each fragment is tokenized on its own."""
        encoded, place = [], 0
        for index, fragment in enumerate(fragments):
            ids, offsets = self._alone(fragment, begins and not index)
            encoded.append((ids, [(start + place, end + place) for start, end in offsets]))
            place += len(fragment.text)
        return encoded

    def _meant(self, token: int, left: int, fragments: Sequence[Fragment], place: int) -> bool:
        """Whether the chat template spells a special token entirely.

        The token begins in fragment `place`, with `left` characters of it remaining. It may begin with white
        space of one fragment and be spelled in the next.
        """
        fragment = fragments[place]
        rest = fragment.text[len(fragment.text) - left :].lstrip()
        if not rest and fragment.template and place + 1 < len(fragments):
            return self._meant(token, len(fragments[place + 1].text), fragments, place + 1)
        spelled = rest.startswith(self._special[token])
        return (fragment.template and spelled) or (token in self._unknown and not spelled)

    def _alone(self, fragment: Fragment, begins: bool) -> Encoded:
        if fragment.template:
            return self._fast(fragment.text, begins)
        spelled, within = self._plain_pair
        return _encode(spelled if begins else within, fragment.text)

    def _fast(self, text: str, begins: bool) -> Encoded:
        if begins or self._within is self._begin:
            return _encode(self._begin, text)
        first = self._added.search(text)
        if first is None:
            return _encode(self._within, text)
        head, offsets = _encode(self._within, text[: first.start()])
        tail, further = _encode(self._begin, text[first.start() :])
        return head + tail, offsets + [(a + first.start(), b + first.start()) for a, b in further]

    @cached_property
    def _spellings(self) -> re.Pattern[str]:
        return _any_of(self._special.values())

    @cached_property
    def _any_case(self) -> re.Pattern[str]:
        return re.compile(self._spellings.pattern, re.IGNORECASE)

    @cached_property
    def _guarded(self) -> re.Pattern[str]:
        return re.compile(f"{_OPEN}({self._spellings.pattern}){_CLOSE}", re.IGNORECASE)

    @cached_property
    def _exact(self) -> Tokenizer:
        """A tokenizer whose places include leading white space of tokens."""
        assert self._form is not None
        return Tokenizer(_Form(_untrimmed(self._form)))

    @cached_property
    def _plain_pair(self) -> tuple[Backend, Backend]:
        """Copies that treat special tokens as text: for the beginning of a prompt, and for inside it."""
        assert self._form is not None
        begin = _backend(_without_specials(self._form))
        same = self._within is self._begin
        return begin, begin if same else _backend(_without_specials(self._within_form))

    def _slow(self, fragment: Fragment, begins: bool) -> list[int]:
        """For a tokenizer that cannot be copied: one caller at a time, each text on its own."""
        settings = {"add_special_tokens": False, "split_special_tokens": not fragment.template}
        with self._lock:
            if not begins:  # after a line break, tokenizers that insert a leading space insert none
                lead = list(self._lent("\n", **settings)["input_ids"])
                ids = list(self._lent("\n" + fragment.text, **settings)["input_ids"])
                if ids[: len(lead)] == lead:
                    return ids[len(lead) :]
            return list(self._lent(fragment.text, **settings)["input_ids"])


def _parts(fragments: Sequence[Fragment]) -> list[Fragment]:
    return [part for fragment in fragments for part in fragment.parts()]


class _Form:
    """A tokenizer known only by its serialized form."""

    def __init__(self, form: str) -> None:
        self.backend_tokenizer = self
        self._form = form

    def to_str(self) -> str:
        return self._form


def _untrimmed(form: str) -> str:
    """The form of a tokenizer whose places cover whole tokens."""
    whole = json.loads(form)
    step = whole["post_processor"] or {}
    for processor in (step, *step.get("processors", ())):
        if "trim_offsets" in processor:
            processor["trim_offsets"] = False
    return json.dumps(whole)


def _backend(form: str) -> Backend:
    made = Backend.from_str(form)
    made.no_truncation()
    made.no_padding()
    return made


def _without_specials(form: str) -> str:
    """The form of a tokenizer that never produces special tokens: their names cannot be spelled.

    The vocabulary itself may contain special tokens as pieces of text, so removing the added tokens is not
    enough.
    """
    whole = json.loads(form)
    model, unspelled = whole["model"], secrets.token_hex(16)
    names = {tok["content"]: tok["content"] + unspelled for tok in whole["added_tokens"] if tok["special"]}
    for tok in whole["added_tokens"]:
        tok["content"] = names.get(tok["content"], tok["content"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(piece, piece): index for piece, index in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if model.get("merges"):
        pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        model["merges"] = [pair for pair in pairs if names.keys().isdisjoint([*pair, "".join(pair)])]
    return json.dumps(whole)


def _encode(backend: Backend, text: str) -> Encoded:
    try:
        if len(text) < _LONG:
            encoding = backend.encode(text, add_special_tokens=False)
        else:  # releases the interpreter lock, unlike the call for one text
            (encoding,) = backend.encode_batch([text], add_special_tokens=False)
    except (TypeError, UnicodeError):  # the library rejects the text
        require_characters(text)
        raise
    return encoding.ids, encoding.offsets


def _any_of(spellings: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _without_prefix(form: str) -> str | None:
    """The form of a tokenizer without a leading space; None if it adds none."""
    whole = json.loads(form)
    before = json.dumps([whole["normalizer"], whole["pre_tokenizer"]])
    whole["normalizer"] = _stripped(whole["normalizer"])
    whole["pre_tokenizer"] = _stripped(whole["pre_tokenizer"])
    return None if json.dumps([whole["normalizer"], whole["pre_tokenizer"]]) == before else json.dumps(whole)


def _stripped(step: dict[str, Any] | None) -> dict[str, Any] | None:
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    if step["type"] == "Sequence":
        key = "normalizers" if "normalizers" in step else "pretokenizers"
        return {**step, key: [inner for part in step[key] if (inner := _stripped(part)) is not None]}
    return step
