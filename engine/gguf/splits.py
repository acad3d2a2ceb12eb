"""The rules by which byte-level BPE splits a text before merges, by their names in GGUF files.

A file names its rule, without its content. The patterns are those of the tokenizers' training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_CODER_CJK = "[一-龥ࠀ-一가-퟿]+"
_CASED = (
    "["
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭ"
    "Ꚁ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    "]"
)
_WIDE = r"[!-/:-~！-／：-～‘-‟　-。]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_NO_STOPS = r" ?[^(\s|.,!?…。，、।۔،)]+"
_V3 = _PUNCTUATION + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
_SPARK = _V3.replace(r"]+[\r\n]*|\s*[\r\n]+", r"]+|[\r\n]")
_QWEN35 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES


def _words(digits: str, endings: str = _ENDINGS + "|", marks: str = _MARKS, spaces: str = _SPACES) -> str:
    return f"{endings}{_WORD}|{digits}|{marks}|{spaces}"


def _cased(digits: str, endings: str) -> str:
    """The rule that splits words at a change from lower to upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{_UPPER}*{_LOWER}+{endings}|{lead}{_UPPER}+{_LOWER}*{endings}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_THREE = r"\p{N}{1,3}"
_LLAMA3, _QWEN2, _GPT4O = _words(_THREE), _words(r"\p{N}"), _cased(_THREE, _ENDINGS + "?")
_LINE_BY_LINE = r"\s*[\r\n]|\s+(?!\S)|\s+"
_BAILING = _words(r"\p{N}", r"'(?i:[sdmt]|ll|ve|re)|", spaces=_LINE_BY_LINE)
_EXAONE = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|{_LINE_BY_LINE}"
)
_YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"


@dataclass(frozen=True)
class Rule:
    """A rule that splits text before BPE.

    Attributes:
        names: its names in files.
        splits: patterns; each splits the parts that the previous ones left.
        whole: a part that is a token is not merged from its bytes.
        bos: a text begins with the BOS token if the file does not specify it.
    """

    names: str
    splits: tuple[str, ...]
    whole: bool = False
    bos: bool = False


_RULES: Final = (
    Rule("default", (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    Rule("gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling", (_GPT2,)),
    Rule("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", (r"\p{N}", _GPT2)),
    Rule(
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", (_LLAMA3,), whole=True, bos=True
    ),
    Rule("glm4 glm5", (_LLAMA3,), whole=True),
    Rule("dbrx smaug-bpe chatglm-bpe", (_LLAMA3,)),
    Rule("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", (_QWEN2,)),
    Rule("qwen35", (_QWEN35,)),
    Rule("laguna", (r"[^\n]+|[\n]+", _QWEN2)),
    Rule("ufakzeka", (_words(r"\p{N}", ""),)),
    Rule("seed-coder", (_words(r"\p{N}", marks=r" ?[^\s\p{L}\p{N}\r\n]+"),)),
    Rule("minicpm5", (_THREE, _words(r"\p{N}+")), whole=True),
    Rule("bailingmoe bailingmoe2 llada-moe", (_BAILING,)),
    Rule("exaone-moe", (_EXAONE,)),
    Rule("tekken", (_cased(r"\p{N}", ""),), whole=True, bos=True),
    Rule("gpt-4o llama4 kanana2 talkie minimax-m2", (_GPT4O,)),
    Rule("youtu", (_YOUTU, _cased(r"\p{N}", _ENDINGS + "?")), whole=True),
    Rule("tiny_aya cohere2moe", (r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    Rule("deepseek-llm", (r"[\r\n]", rf"\s?{_CASED}+", rf"\s?{_WIDE}+", r"\s+$", _CODER_CJK, r"\p{N}+")),
    Rule("deepseek-coder", (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CODER_CJK, r"\p{N}")),
    Rule("deepseek-v3 hunyuan-dense joyai-llm hy_v4", (_THREE, _CJK, _V3)),
    Rule("spark2_5", (_THREE, _CJK, _SPARK, r"\p{N}")),
    Rule("falcon", (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    Rule("bloom gpt3-finnish poro-chat", (_NO_STOPS,)),
    Rule("viking", (_NO_STOPS, r"\p{N}")),
)


def rule_of(name: str) -> Rule | None:
    """Returns the rule of a name; None if it is unknown."""
    return next((rule for rule in _RULES if name in rule.names.split()), None)
