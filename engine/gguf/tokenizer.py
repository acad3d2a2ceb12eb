"""Builds a transformers tokenizer from the header of a GGUF file.

A file has byte-level BPE ("gpt2") or SentencePiece ("llama", "gemma4"). It names the rule that splits text
before BPE, without its content. A file with an unknown rule is refused, because a wrong rule would silently
give other tokens than the model knows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, TypeVar

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from engine.base.errors import ModelError
from engine.gguf.splits import Rule, rule_of

_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
_ANOTHER = "Use a GGUF file of another model, or the model's own folder with safetensors."
_AGAIN = "Fetch the file again, or convert the model again."

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)
_SPELLED = frozenset({0, _NORMAL, _USER})  # types of tokens in plain text; 0 means unknown

_MARKERS: Final = (
    "<|eot_id|> <|eom_id|> <|im_end|> <|end|> <|return|> <|call|> <|calls|> <|flush|> <end_of_turn> <turn|> "
    "<eos> <|endoftext|> <|end_of_text|> <EOT> _<EOT> [EOT] [EOS] <end_of_utterance> [e~[ "
    "<｜end▁of▁sentence｜> "
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|> "
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> "
    "<|file_sep|>"
)
"""Tokens that are control tokens regardless of their type, which is wrong in many files."""

_LONGEST = 512  # characters of a merged token: SentencePiece's own have 16
_KINDS: Final = ("gpt2", "llama", "gemma4")
_KIND_NAMES: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_ACCEPTED: Final[Mapping[type, set[type]]] = {float: {float, int}}
_Value = TypeVar("_Value", str, int, float, bool)


def build(name: str, metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Builds the tokenizer of a GGUF file, with its special tokens and chat templates.

    Raises:
        ModelError: the kind of tokenizer or its rule is unknown, or the values do not fit each other.
    """
    return _Header(name, metadata).tokenizer()


class _Header:
    """The tokenizer's part of a header, checked on reading."""

    def __init__(self, name: str, metadata: Mapping[str, Any]) -> None:
        self._name, self._metadata = name, metadata
        self._kind = self._get("model", str) or ""
        if self._kind not in _KINDS:
            problem = f"the tokenizer has the kind {self._kind!r}" if self._kind else "it has no tokenizer"
            raise self._fault("model", f"{problem}; supported are {', '.join(map(repr, _KINDS))}", _ANOTHER)
        tokens = self._list("tokens", str)
        if not tokens:
            raise self._fault("tokens", "it has no tokens", _AGAIN)
        self._tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
        self._vocab = {token: index for index, token in enumerate(self._tokens)}
        if len(self._vocab) < len(self._tokens):
            twice = next(token for index, token in enumerate(self._tokens) if self._vocab[token] != index)
            raise self._fault("tokens", f"the token {twice!r} occurs twice", _AGAIN)
        self._types = self._read_types()
        self._roles = self._read_roles()
        for role in ("bos", "eos", "eot", "eom"):
            if role in self._roles:
                self._types[self._roles[role]] = _CONTROL

    def tokenizer(self) -> PreTrainedTokenizerFast:
        backend = self._byte_level() if self._kind == "gpt2" else self._sentence_piece()
        backend.add_tokens(self._added())
        begins, ends = self._ends("bos"), self._ends("eos")
        if begins or ends:
            second = [f"{piece}:1" for piece in (*begins, "$B", *ends)]
            backend.post_processor = processors.TemplateProcessing(
                single=[*begins, "$A", *ends],
                pair=[*begins, "$A", *ends, *second],
                special_tokens=[
                    {"id": role, "ids": [self._roles[role]], "tokens": [self._tokens[self._roles[role]]]}
                    for role in (*begins, *ends)
                ],
            )
        names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
        named = {key: self._tokens[self._roles[role]] for role, key in names.items() if role in self._roles}
        form: Any = PreTrainedTokenizerFast  # its constructor has no types
        tokenizer: PreTrainedTokenizerFast = form(
            tokenizer_object=backend, clean_up_tokenization_spaces=False, **named
        )
        tokenizer.chat_template = self._templates()
        return tokenizer

    def _byte_level(self) -> Tokenizer:
        """Byte-level BPE: a letter such as "õ" represents a byte, except in tokens that match as a whole."""
        rule = self._rule()
        tokenizer = Tokenizer(BPE(self._vocab, self._listed_merges(), ignore_merges=rule.whole))
        splits = [pre_tokenizers.Split(Regex(content), "isolated") for content in rule.splits]
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_])
        alphabet = {*bytes_.alphabet()}
        as_bytes = [content.content for content in self._added() if alphabet.issuperset(content.content)]
        read = [
            (content, bytes_.pre_tokenize_str(content)[0][0]) for content in as_bytes if not content.isascii()
        ]
        names = [decoders.Replace(Regex(rf"\A{re.escape(content)}\z"), spelled) for content, spelled in read]
        tokenizer.decoder = (
            decoders.Sequence([*names, decoders.ByteLevel()]) if names else decoders.ByteLevel()
        )
        return tokenizer

    def _sentence_piece(self) -> Tokenizer:
        listed = self._kind == "gemma4"
        merges = self._listed_merges() if listed else list(self._scored_merges())
        unknown = self._roles.get("unknown")
        if unknown is None and not all(f"<0x{byte:02X}>" in self._vocab for byte in range(256)):
            raise self._fault("tokens", "it has neither a token for each byte nor an unknown token", _AGAIN)
        tokenizer = Tokenizer(
            BPE(
                self._vocab,
                merges,
                unk_token=None if unknown is None else self._tokens[unknown],
                fuse_unk=True,
                byte_fallback=True,
            )
        )
        prefix = not listed and self._flag("add_space_prefix", default=True)
        spaces = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
        if listed:
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
        return tokenizer

    def _rule(self) -> Rule:
        wanted = self._get("pre", str) or "default"
        rule = rule_of(wanted)
        if rule is None:
            raise self._fault("pre", f"the split rule {wanted!r} is unknown", _ANOTHER)
        return rule

    def _listed_merges(self) -> list[tuple[str, str]]:
        if "merges" not in self:
            raise self._fault("merges", "it has no merges", _AGAIN)
        pairs: dict[tuple[str, str], None] = {}  # the first of duplicates counts
        for merge in self._list("merges", str):
            cut = merge.find(" ", 1)
            left, right = merge[:cut], merge[cut + 1 :]
            if cut < 0 or not (left in self._vocab and right in self._vocab and left + right in self._vocab):
                raise self._fault(
                    "merges", f"the merge {merge!r} does not join two tokens to a third", _AGAIN
                )
            if self._spelled(left + right):
                pairs[left, right] = None
        return list(pairs)

    def _scored_merges(self) -> Iterator[tuple[str, str]]:
        """Yields the merges of two tokens in the order of SentencePiece: the best score first.

        Of pairs with equal scores it takes the leftmost one. Putting a longer left part first has the same
        effect on runs of one character.
        """
        scores = self._list("scores", float)
        if len(scores) != len(self._tokens) or not all(map(math.isfinite, scores)):
            raise self._fault(
                "scores", f"it needs {len(self._tokens)} finite scores and has {len(scores)} scores", _AGAIN
            )
        parts = {token for token in self._tokens if self._spelled(token)}
        if (longest := max(map(len, parts), default=0)) > _LONGEST:
            words = f"a token has {longest} characters; the limit is {_LONGEST}"
            raise self._fault("tokens", words, _ANOTHER)
        mixed = [scores[self._vocab[token]] for token in parts if len(set(token)) > 1]
        if 2 * len(set(mixed)) < len(mixed):
            words = "most tokens have the same score, so the tokens of a text are ambiguous"
            raise self._fault("scores", words, _ANOTHER)
        ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        for _, group in groupby(ranked, scores.__getitem__):
            merges = [
                (token[:cut], token[cut:])
                for token in (self._tokens[index] for index in group)
                if token in parts
                for cut in range(1, len(token))
                if token[:cut] in parts and token[cut:] in parts
            ]
            merges.sort(key=lambda pair: (-len(pair[0]), -len(pair[1])))
            yield from merges

    def _spelled(self, token: str) -> bool:
        return self._types[self._vocab[token]] in _SPELLED

    def _added(self) -> list[AddedToken]:
        """Returns the tokens that match as a whole: special ones in chat templates, others in any text."""
        architecture = self._metadata.get("general.architecture")
        title = str(self._metadata.get("general.name", "")).lower()
        phi = "phi-3" in title or "phi3" in title or (architecture == "phi3" and self._kind == "llama")
        return [
            AddedToken(
                token,
                special=kind != _USER,
                normalized=False,
                rstrip=phi and token not in ("<unk>", "<s>", "<|endoftext|>"),
            )
            for token, kind in zip(self._tokens, self._types, strict=True)
            if kind in (_UNKNOWN, _CONTROL, _USER)
        ]

    def _ends(self, role: str) -> list[str]:
        """Returns the role of the token at one end of a text, BOS or EOS, if any."""
        default = role == "bos" and (self._kind != "gpt2" or self._rule().bos)
        wanted = self._flag(f"add_{role}_token", default=default)
        if role == "bos" and self._kind == "gemma4":
            wanted = True  # the flag is wrong in many files
        if wanted and role not in self._roles and f"add_{role}_token" in self:
            words = f"it adds a token to texts, but {role}_token_id is not a special token"
            raise self._fault(f"add_{role}_token", words, _AGAIN)
        return [role] if wanted and role in self._roles else []

    def _templates(self) -> str | dict[str, str] | None:
        """Returns the chat template; if there are several, by name."""
        start, listed = f"{_TEMPLATE}.", self._metadata.get(f"{_TEMPLATE}s", [])
        templates = {
            key: text for key, text in self._metadata.items() if key == _TEMPLATE or key.startswith(start)
        }
        others = (
            [f"{start}{template_name}" for template_name in listed if template_name != "default"]
            if isinstance(listed, list)
            else [start]
        )
        for key in (*templates, *others):
            if not isinstance(templates.get(key), str):
                raise ModelError(
                    f"model {self._name!r}: {key}: the chat template is missing or not a text. {_AGAIN}"
                )
        default: str | None = templates.pop(_TEMPLATE, None)
        if not templates:
            return default
        named = {key.removeprefix(start): text for key, text in templates.items()}
        return named if default is None else {**named, "default": default}

    def _read_types(self) -> list[int]:
        if "token_type" not in self:
            types = [_NORMAL] * len(self._tokens)
        else:
            types = self._list("token_type", int)
            if len(types) != len(self._tokens) or not set(types) <= set(range(7)):
                words = f"it needs {len(self._tokens)} types from 0 to 6 and has {len(types)} types"
                raise self._fault("token_type", words, _AGAIN)
        markers = frozenset(_MARKERS.split())
        return [
            _CONTROL if kind in _SPELLED and token in markers else kind
            for token, kind in zip(self._tokens, types, strict=True)
        ]

    def _read_roles(self) -> dict[str, int]:
        """Finds the tokens with a role, such as the begin or end of a text.

        Many files name an ordinary token ("!") for a missing role; it stays ordinary. An index out of range
        (-1) counts as missing.
        """
        roles = {}
        for role in ("bos", "eos", "eot", "eom", "unknown", "padding"):
            index = self._get(f"{role}_token_id", int)
            if index is not None and not 0 <= index < len(self._tokens):
                index = None
            if index is None and self._kind == "llama":
                usual = {"unknown": 0, "bos": 1, "eos": 2}.get(role, len(self._tokens))
                index = usual if self._types[usual : usual + 1] in ([_UNKNOWN], [_CONTROL]) else None
            if index is not None and not self._ordinary(role, index):
                roles[role] = index
        return roles

    def _ordinary(self, role: str, index: int) -> bool:
        unneeded = role in ("unknown", "padding")
        return self._types[index] in (0, _NORMAL) and (unneeded or len(self._tokens[index]) == 1)

    def __contains__(self, key: str) -> bool:
        return _PREFIX + key in self._metadata

    def _get(self, key: str, kind: type[_Value]) -> _Value | None:
        value = self._metadata.get(_PREFIX + key)
        if value is None or type(value) is kind:
            return value
        raise self._fault(key, f"it must be {_KIND_NAMES[kind]}, not {value!r:.60}", _AGAIN)

    def _flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key, bool)
        return default if value is None else value

    def _list(self, key: str, kind: type[_Value]) -> list[_Value]:
        values = self._metadata.get(_PREFIX + key, [])
        if isinstance(values, list) and set(map(type, values)) <= _ACCEPTED.get(kind, {kind}):
            return values
        raise self._fault(key, f"it must be a list, and each item {_KIND_NAMES[kind]}", _AGAIN)

    def _fault(self, key: str, words: str, remedy: str) -> ModelError:
        return ModelError(f"model {self._name!r}: {_PREFIX}{key}: {words}. {remedy}")
