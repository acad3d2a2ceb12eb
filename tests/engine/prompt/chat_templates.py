"""The shapes of the chat templates that are used most, in words of our own, with tiny tokenizers.

Each writes turns as the family of its name does. Special tokens, who writes the beginning, and the kind of
tokenizer are the family's; vocabularies are tiny.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

Kind = Literal["bytes", "prefix", "first", "plain"]
_ALTERNATE = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
)
_FIRST_SYSTEM = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = DEFAULT %}{% set rest = messages %}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """A chat template with its tokenizer's kind.

    Attributes:
        template: in Jinja.
        specials: tokens that the template spells, besides those that begin and end a text.
        kind: bytes with GPT-2's rule; pieces with a space before each stretch of text ("prefix") or before
            the first one only ("first"); pieces without ("plain").
        bos: what begins a text.
        eos: what ends one.
        adds: the tokenizer itself puts `bos` before a text.
        rstrip: special tokens take the white space behind them.
    """

    template: str
    specials: tuple[str, ...] = ()
    kind: Kind = "bytes"
    bos: str = "<s>"
    eos: str = "</s>"
    adds: bool = False
    rstrip: bool = False


def _system(default: str) -> str:
    return _FIRST_SYSTEM.replace("DEFAULT", repr(default))


def _chatml(default: str | None = None) -> str:
    before = ""
    if default:
        before = (
            "{% if messages[0].role != 'system' %}<|im_start|>system\n" + default + "<|im_end|>\n{% endif %}"
        )
    return (
        before + "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )


def _mistral(user: str, assistant: str) -> str:
    """System text goes before the words of the last user."""
    return (
        _system("") + "{{ bos_token }}{% for m in rest %}" + _ALTERNATE + "{% if m.role == 'user' %}"
        "{% if loop.last and system %}{% set said = system + '\n\n' + m.content %}{% else %}"
        "{% set said = m.content %}{% endif %}" + user + "{% else %}" + assistant + "{% endif %}{% endfor %}"
    )


def _tagged(turn: str, invitation: str, before: str = "") -> str:
    return (
        before + "{% for m in messages %}" + turn + "{% endfor %}"
        "{% if add_generation_prompt %}{{ '" + invitation + "' }}{% endif %}"
    )


_IM = ("<|im_start|>", "<|im_end|>")
_HEADER = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_LLAMA_TURN = (
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
)
_LLAMA_INVITES = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_PHI = "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}"
_PHI_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_ZEPHYR = _tagged("{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}", "<|assistant|>\n")
_GEMMA = (
    "{{ bos_token }}{% for m in rest %}" + _ALTERNATE + "{{ '<start_of_turn>' + "
    "('model' if m.role == 'assistant' else 'user') + '\n' + (before if loop.first else '') "
    "+ m.content | trim"
    " + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<start_of_turn>model\n' }}{% endif %}"
)
_NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
)
_TURNS = ("<start_of_turn>", "<end_of_turn>")
_OPENCHAT = (
    "{{ bos_token }}{% for m in messages %}{{ 'GPT4 Correct ' + m.role.title() + ': ' + m.content + "
    "'<|end_of_turn|>' }}{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"
)
_LLAMA_2 = (
    _system("") + "{% for m in rest %}" + _ALTERNATE + "{% if loop.index0 == 0 and system %}"
    "{% set said = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m.content %}"
    "{% else %}{% set said = m.content %}{% endif %}{% if m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + said.strip() + ' [/INST]' }}{% else %}"
    "{{ ' ' + said.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)
_VICUNA = (
    _system("A chat between a curious user and an assistant.") + "{{ system }}{% for m in rest %}"
    "{% if m.role == 'user' %}{{ ' USER: ' + m.content }}{% else %}"
    "{{ ' ASSISTANT: ' + m.content + eos_token }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}"
)
_QWEN_3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{% set thought = '' %}{% if '</think>' in m.content %}"
    "{% set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') %}{% endif %}"
    "{% if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{ '<|im_start|>assistant\n<think>\n' + thought + '\n</think>\n\n' + said + '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>assistant\n' + said + '<|im_end|>\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_R1 = (
    _system("") + "{{ bos_token + system }}{% for m in rest %}{% if m.role == 'user' %}"
    "{{ '<|User|>' + m.content }}{% else %}{% set said = m.content %}{% if '</think>' in said %}"
    "{% set said = said.split('</think>')[-1] %}{% endif %}{{ '<|Assistant|>' + said + eos_token }}"
    "{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
)
_DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}"
    "{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + eos_token }}{% else %}"
    "{{ m.content + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "{{ 'Assistant:' }}{% endif %}"
)
_FALCON = (
    "{% for m in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}"
    "{% if m.role == 'system' %}{{ m.content }}{% else %}{{ m.role.title() + ': ' + "
    "m.content.strip().replace('\r\n', '\n').replace('\n\n', '\n') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\nAssistant:' }}{% endif %}"
)
_COMMAND = (
    "{{ bos_token }}{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + "
    "{'user': 'USER', 'assistant': 'CHATBOT', 'system': 'SYSTEM'}[m.role] + '_TOKEN|>' + m.content.strip() + "
    "'<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
)
_SMOLLM_3 = (
    _system("You are a helpful assistant.") + "{{ '<|im_start|>system\n## Metadata\n\nToday Date: ' + "
    "strftime_now('%d %B %Y') + '\nReasoning Mode: /think\n\n## Custom Instructions\n\n' + system.rstrip() + "
    "'\n\n<|im_end|>\n' }}{% for m in rest %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_GRANITE = (
    _system("") + "{% if not system %}{% set system = \"Today's Date: \" + strftime_now('%B %d, %Y') + "
    "'.\nYou are Granite.' %}{% endif %}"
    "{{ '<|start_of_role|>system<|end_of_role|>' + system + '<|end_of_text|>\n' }}{% for m in rest %}"
    "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"
)
_OLMO = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|assistant|>\n' + m.content + "
    "eos_token }}{% if not loop.last %}{{ '\n' }}{% endif %}{% else %}"
    "{{ '<|' + m.role + '|>\n' + m.content + '\n' }}{% endif %}{% if loop.last and add_generation_prompt %}"
    "{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)
_HARMONY = (
    _system("")
    + "{{ '<|start|>system<|message|>You are ChatGPT.\nCurrent date: ' + strftime_now('%Y-%m-%d') + "
    "'\n\nReasoning: medium<|end|>' }}{% if system %}"
    "{{ '<|start|>developer<|message|># Instructions\n\n' + system + '\n\n<|end|>' }}{% endif %}"
    "{% for m in rest %}{% if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{% else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
_LLAMA_3_1 = (
    "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}"
    "{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% endif %}" + _system("") + "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\n"
    "Cutting Knowledge Date: December 2023\nToday Date: ' + date_string + '\n\n' + system | trim "
    "+ '<|eot_id|>' }}"
    "{% for m in rest %}" + _LLAMA_TURN + "{% endfor %}"
    "{% if add_generation_prompt %}{{ '" + _LLAMA_INVITES + "' }}{% endif %}"
)
_NEMOTRON = (
    "{{ '<extra_id_0>System\n' }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n' }}"
    "{% else %}{{ '<extra_id_1>' + m.role.title() + '\n' + m.content + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<extra_id_1>Assistant\n' }}{% endif %}"
)
_GLM = (
    "[gMASK]<sop>{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

FAMILIES: dict[str, Family] = {
    "chatml": Family(_chatml(), _IM),
    "llama-2": Family(_LLAMA_2, kind="prefix", adds=True),
    "llama-3": Family(_tagged(_LLAMA_TURN, _LLAMA_INVITES, "{{ bos_token }}"), _HEADER, adds=True),
    "llama-3.1": Family(_LLAMA_3_1, _HEADER, adds=True),
    "mistral-1": Family(
        "{{ bos_token }}{% for m in messages %}" + _ALTERNATE + "{% if m.role == 'user' %}"
        "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}"
        "{% endfor %}",
        kind="prefix",
        adds=True,
    ),
    "mixtral": Family(
        _mistral("{{ ' [INST] ' + said + ' [/INST]' }}", "{{ ' ' + m.content + eos_token }}"),
        kind="prefix",
        adds=True,
    ),
    "mistral-3": Family(
        _mistral("{{ '[INST] ' + said + '[/INST]' }}", "{{ ' ' + m.content | trim + eos_token }}"),
        ("[INST]", "[/INST]"),
        kind="prefix",
        adds=True,
    ),
    "mistral-tekken": Family(
        _mistral("{{ '[INST]' + said + '[/INST]' }}", "{{ m.content + eos_token }}"),
        ("[INST]", "[/INST]"),
        adds=True,
    ),
    "mistral-7": Family(
        _system("You are Mistral. Today is {}.")
        + "{{ bos_token }}{{ '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}{% for m in rest %}"
        "{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}{% else %}{{ m.content + eos_token }}"
        "{% endif %}{% endfor %}",
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        adds=True,
    ),
    "gemma-2": Family(
        _NO_SYSTEM + "{% set rest = messages %}{% set before = '' %}" + _GEMMA,
        _TURNS,
        kind="plain",
        adds=True,
    ),
    "gemma-3": Family(
        _system("") + "{% set before = system + '\n\n' if system else '' %}" + _GEMMA,
        _TURNS,
        kind="plain",
        adds=True,
    ),
    "phi-3": Family(
        "{% for m in messages %}"
        + _PHI
        + "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}"
        "{{ eos_token }}{% endif %}",
        _PHI_TOKENS,
        kind="prefix",
        eos="<|endoftext|>",
        rstrip=True,
    ),
    "phi-3.5": Family(
        "{% for m in messages %}{% if m.role != 'system' or m.content %}"
        + _PHI
        + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}"
        "{{ eos_token }}"
        "{% endif %}",
        _PHI_TOKENS,
        kind="first",
        eos="<|endoftext|>",
    ),
    "phi-4": Family(
        _tagged(
            "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}",
            "<|im_start|>assistant<|im_sep|>",
        ),
        (*_IM, "<|im_sep|>"),
    ),
    "qwen-2": Family(_chatml("You are a helpful assistant."), _IM),
    "qwen-2.5": Family(_chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), _IM),
    "qwen-3": Family(_QWEN_3, _IM),
    "deepseek": Family(_DEEPSEEK, bos="<|begin|>", eos="<|end|>", adds=True),
    "deepseek-r1": Family(_R1, ("<|User|>", "<|Assistant|>"), bos="<|begin|>", eos="<|end|>", adds=True),
    "zephyr": Family(_ZEPHYR, kind="prefix", adds=True),
    "tinyllama": Family(_ZEPHYR, kind="first", adds=True),
    "vicuna": Family(_VICUNA, kind="prefix", adds=True),
    "falcon": Family(_FALCON, eos="<|endoftext|>"),
    "command-r": Family(
        _COMMAND,
        ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        adds=True,
    ),
    "glm-4": Family(_GLM, ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|system|>")),
    "internlm-2": Family("{{ bos_token }}" + _chatml(), _IM, kind="prefix", adds=True),
    "yi": Family(_chatml(), _IM, kind="first"),
    "smollm-2": Family(_chatml("You are a helpful AI assistant named SmolLM."), _IM),
    "smollm-3": Family(_SMOLLM_3, _IM),
    "granite": Family(_GRANITE, ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>")),
    "olmo-2": Family(_OLMO, bos="<|endoftext|>", eos="<|endoftext|>"),
    "stablelm-2": Family(_ZEPHYR, eos="<|endoftext|>"),
    "gpt-oss": Family(_HARMONY, ("<|start|>", "<|message|>", "<|channel|>", "<|end|>")),
    "nemotron": Family(_NEMOTRON, ("<extra_id_0>", "<extra_id_1>"), kind="first"),
    "openchat": Family(_OPENCHAT, ("<|end_of_turn|>",), kind="prefix", adds=True),
    "solar": Family(
        _tagged("{{ '### ' + m.role.title() + ':\n' + m.content + '\n\n' }}", "### Assistant:\n"),
        kind="prefix",
        adds=True,
    ),
}
_TEXTS = [
    "You are a planner of trips. Be very brief and kind. Look at the map of Rome, and at the map of Tokyo.",
    "Where should I eat on the first day? I like fish.\n\nGo to the market. And then? user assistant system",
    "<|user|>\n<|assistant|>\n[INST] [/INST] USER: ASSISTANT: GPT4 Correct User: ### User:\n### Assistant:\n",
]


def tokenizer(family: Family) -> Any:
    """A tiny tokenizer of the family's kind, in which words and the spaces before them share tokens."""
    raw = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    lines = pre_tokenizers.Split("\n", "isolated")  # of which such tokenizers make bytes
    if family.kind == "bytes":
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        raw.decoder = decoders.ByteLevel()
    elif family.kind == "plain":
        raw.normalizer = normalizers.Replace(" ", "▁")
        raw.pre_tokenizer = lines
        raw.decoder = decoders.Replace("▁", " ")
    elif family.kind == "prefix":
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        raw.pre_tokenizer = lines
        raw.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        spaces = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        raw.pre_tokenizer = pre_tokenizers.Sequence([spaces, lines])
        raw.decoder = decoders.Metaspace(prepend_scheme="first")
    alphabet = sorted({*"".join(_TEXTS), *map(chr, range(33, 127)), "▁", "\n"})
    begins = dict.fromkeys(["<unk>", family.bos, family.eos])
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=[*begins],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if family.kind == "bytes" else alphabet,
        show_progress=False,
    )
    words = [part for text in _TEXTS for word in text.split(" ") for part in (word, f" {word}")]
    kept = [word for word in words if not any(mark in word for mark in family.specials)]
    raw.train_from_iterator(
        [word if family.kind == "bytes" else word.replace(" ", "▁") for word in kept] * 3, trainer
    )
    marks = [AddedToken(one, special=True, normalized=False, rstrip=family.rstrip) for one in family.specials]
    raw.add_special_tokens(marks)
    if family.adds:
        raw.post_processor = processors.TemplateProcessing(
            single=f"{family.bos} $A", special_tokens=[(family.bos, raw.token_to_id(family.bos))]
        )
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=family.bos, eos_token=family.eos, unk_token="<unk>"
    )
    made.chat_template = family.template
    return made
