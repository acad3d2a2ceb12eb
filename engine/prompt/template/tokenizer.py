"""Text → token ids, the same from every thread and in every place of a prompt.

Works on copies of its own, whose settings never change: transformers switches its tokenizers between treating
special tokens as such and as text, which threads that share one can see. Knows nothing of schemas or turns.
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
_LONG = 5_000  # characters, which take a few milliseconds
_OPEN, _CLOSE = "\U0010fffc", "\U0010fffd"  # stand round special tokens that an author spells
_GUARDS = re.compile(f"[{_OPEN}{_CLOSE}]")
_UNKNOWN = "\U0010fffe"  # in no vocabulary


@dataclass(frozen=True)
class Fragment:
    """Text by one author.

    Attributes:
        text: not yet tokenized.
        template: written by the chat template, where the spelling of a special token means that token; else
            it is plain text.
        plain: places in text of the chat template that are plain all the same.
    """

    text: str
    template: bool = False
    plain: tuple[tuple[int, int], ...] = ()

    def parts(self) -> list[Fragment]:
        """The same text as fragments of which each is plain or not."""
        found, place = [], 0
        for start, end in self.plain:
            found += [Fragment(self.text[place:start], template=True), Fragment(self.text[start:end])]
            place = end
        return [*found, Fragment(self.text[place:], self.template)]


@dataclass(frozen=True)
class Together:
    """Adjacent texts that are tokenized as one.

    Attributes:
        fragments: in order, with nothing between them.
        begins: they begin a prompt.
        behind: the token before them.
    """

    fragments: tuple[Fragment, ...]
    begins: bool = False
    behind: int | None = None


class Tokenizer:
    """The tokens of texts that stand next to one another in a prompt.

    Args:
        tokenizer: a tokenizer of transformers; copied, and not looked at again where it can be copied.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._lent = tokenizer
        self._lock = threading.Lock()
        try:
            self._form: str | None = tokenizer.backend_tokenizer.to_str()
        except Exception:  # no tokenizer of the library, or one with parts that are Python code
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
        """Tokens of an author's text inside a prompt; the spelling of a special token is plain text."""
        return self.encode([Fragment(text)])[0] if text else []

    def marked(self, text: str) -> list[int]:
        """Tokens of a chat template's text inside a prompt."""
        return self.encode([Fragment(text, template=True)])[0] if text else []

    def encode(
        self, fragments: Sequence[Fragment], *, begins: bool = False, behind: int | None = None
    ) -> list[list[int]]:
        """Tokenizes adjacent texts as one.

        Args:
            fragments: in order, with nothing between them.
            begins: they begin a prompt, where some tokenizers put a space first; else what stands before them
                is tokenized by itself, and nothing is put in between.
            behind: the token before them; behind a special one some tokenizers put a space too.

        Returns:
            The tokens of each fragment; one that lies across a border belongs to where it begins. Texts in
            which a special token would arise from an author's words are tokenized each by itself.

        Raises:
            CharacterError: a text holds half of a surrogate pair.
        """
        begins = self._begins(begins, behind)
        if self._form is None:
            require_characters("".join(one.text for one in fragments))
            parts = _parts(fragments)
            found = [self._slow(fragment, begins and not place) for place, fragment in enumerate(parts)]
        else:
            found = [ids for ids, _ in self._cut(_parts(fragments), begins)]
        if len(found) == len(fragments):
            return found
        rest = iter(found)
        return [[token for _ in one.parts() for token in next(rest)] for one in fragments]

    def starts(self, texts: Together) -> list[int] | None:
        """Says where the tokens of `encode` begin, in order.

        Returns:
            The character of the joined texts that each begins with; tokens that share a character begin with
            the same. None where this tokenizer cannot say.
        """
        if self._form is None:
            return None
        exact = self._exact
        found = exact._cut(_parts(texts.fragments), exact._begins(texts.begins, texts.behind))
        starts, reached = [], 0
        for start, end in (place for _, places in found for place in places):
            starts.append(min(start, reached))  # characters that are in no token go with the next
            reached = max(reached, end)
        return starts

    def specials(self, text: str) -> list[tuple[int, int]]:
        """The places of special tokens in a text of the chat template."""
        return [] if self._form is None else [one.span() for one in self._spellings.finditer(text)]

    def spelled(self, text: str) -> list[tuple[int, int]]:
        """The places in an author's text of what may become a special token, in capitals too."""
        return [] if self._form is None else [one.span() for one in self._any_case.finditer(text)]

    def guarded(self, text: str) -> str:
        """An author's text for the chat template, in which spellings of special tokens stay plain text.

        What the template makes of it is to be read by `rendered`. Two characters that no language has mark
        the spellings; in the text itself the replacement character stands for them.
        """
        text = _GUARDS.sub("\ufffd", text)
        for start, end in reversed(self.spelled(text)):
            text = f"{text[:start]}{_OPEN}{text[start:end]}{_CLOSE}{text[end:]}"
        return text

    def rendered(self, text: str) -> Fragment:
        """Text of the chat template, in which an author's words may be guarded.

        A mark whose other mark the template has taken away means nothing.
        """
        if _GUARDS.search(text) is None:
            return Fragment(text, template=True)
        made, plain, done = "", [], 0
        for one in self._guarded.finditer(text):
            made += _GUARDS.sub("", text[done : one.start()])
            plain.append((len(made), len(made) + len(one[1])))
            made, done = made + one[1], one.end()
        return Fragment(made + _GUARDS.sub("", text[done:]), template=True, plain=tuple(plain))

    def border(self, text: str, place: int) -> int:
        """The last place up to this one that lies in no token which has a spelling of its own."""
        if self._form is None:
            return place
        inside = (one.start() for one in self._added.finditer(text) if one.start() < place < one.end())
        return next(inside, place)

    def _begins(self, begins: bool, behind: int | None) -> bool:
        return begins or (self._form is not None and self._each and behind in self._indices)

    def _cut(self, fragments: Sequence[Fragment], begins: bool) -> list[Encoded]:
        """The tokens of each fragment, with their places in the joined texts."""
        ids, offsets = self._fast("".join(one.text for one in fragments), begins)
        ends = list(accumulate(len(one.text) for one in fragments))
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
        """The same, where each is tokenized by itself."""
        found, place = [], 0
        for index, one in enumerate(fragments):
            ids, offsets = self._alone(one, begins and not index)
            found.append((ids, [(start + place, end + place) for start, end in offsets]))
            place += len(one.text)
        return found

    def _meant(self, token: int, left: int, fragments: Sequence[Fragment], place: int) -> bool:
        """Whether the chat template itself spells a special token, all of it.

        Args:
            token: the token.
            left: how many characters of its fragment stand behind its beginning.
            fragments: the texts; it may begin with white space of one, and be spelled in the next.
            place: which of them it begins in.
        """
        one = fragments[place]
        rest = one.text[len(one.text) - left :].lstrip()
        if not rest and one.template and place + 1 < len(fragments):
            return self._meant(token, len(fragments[place + 1].text), fragments, place + 1)
        spelled = rest.startswith(self._special[token])
        return (one.template and spelled) or (token in self._unknown and not spelled)

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
        """One whose places include the white space that tokens begin with."""
        assert self._form is not None
        return Tokenizer(_Form(_untrimmed(self._form)))

    @cached_property
    def _plain_pair(self) -> tuple[Backend, Backend]:
        """Copies to which special tokens are text: for the beginning of a prompt, and for inside it."""
        assert self._form is not None
        begin = _backend(_without_specials(self._form))
        same = self._within is self._begin
        return begin, begin if same else _backend(_without_specials(self._within_form))

    def _slow(self, fragment: Fragment, begins: bool) -> list[int]:
        """A tokenizer that cannot be copied: one caller at a time, each text by itself."""
        settings = {"add_special_tokens": False, "split_special_tokens": not fragment.template}
        with self._lock:
            if not begins:  # behind a line break, tokenizers that put a space first put none
                lead = list(self._lent("\n", **settings)["input_ids"])
                ids = list(self._lent("\n" + fragment.text, **settings)["input_ids"])
                if ids[: len(lead)] == lead:
                    return ids[len(lead) :]
            return list(self._lent(fragment.text, **settings)["input_ids"])


def _parts(fragments: Sequence[Fragment]) -> list[Fragment]:
    return [part for one in fragments for part in one.parts()]


class _Form:
    """A tokenizer that is known by its form alone."""

    def __init__(self, form: str) -> None:
        self.backend_tokenizer = self
        self._form = form

    def to_str(self) -> str:
        """Returns the form."""
        return self._form


def _untrimmed(form: str) -> str:
    """The form of a tokenizer whose places are those of whole tokens."""
    whole = json.loads(form)
    step = whole["post_processor"] or {}
    for one in (step, *step.get("processors", ())):
        if "trim_offsets" in one:
            one["trim_offsets"] = False
    return json.dumps(whole)


def _backend(form: str) -> Backend:
    made = Backend.from_str(form)
    made.no_truncation()
    made.no_padding()
    return made


def _without_specials(form: str) -> str:
    """A tokenizer that no text makes write special tokens: they have names that nobody can spell.

    Where the vocabulary itself has them, as for pieces of text, it is not enough to look for none.
    """
    whole = json.loads(form)
    model, unspelled = whole["model"], secrets.token_hex(16)
    names = {one["content"]: one["content"] + unspelled for one in whole["added_tokens"] if one["special"]}
    for one in whole["added_tokens"]:
        one["content"] = names.get(one["content"], one["content"])
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
            found = backend.encode(text, add_special_tokens=False)
        else:  # which lets other threads run meanwhile, as the call for one text does not
            (found,) = backend.encode_batch([text], add_special_tokens=False)
    except (TypeError, UnicodeError):  # the library takes it for no text
        require_characters(text)
        raise
    return found.ids, found.offsets


def _any_of(spellings: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _without_prefix(form: str) -> str | None:
    """A tokenizer that puts no space before a text; None where it puts none anyway."""
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
        return {**step, key: [one for part in step[key] if (one := _stripped(part)) is not None]}
    return step
