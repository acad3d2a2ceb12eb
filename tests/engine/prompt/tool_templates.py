"""The ways in which chat templates write tools, in words of our own, with tiny tokenizers.

Each writes definitions, calls and results where the family of its name does.
"""

from __future__ import annotations

from typing import Any

from tests.engine.prompt.chat_templates import Family

_CALL = (
    '{{ \'\n<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' + '
    "c.function.arguments | tojson + '}\n</tool_call>' }}"
)
_HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n' + (messages[0].content if messages[0].role == 'system' else "
    "'You are a planner.') + '\n\n# Tools\n<tools>' }}{% for t in tools %}{{ '\n' + t | tojson }}{% endfor %}"
    "{{ '\n</tools><|im_end|>\n' }}{% elif messages[0].role == 'system' %}"
    "{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) or "
    "(m.role == 'assistant' and not m.tool_calls) %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% elif m.role == 'assistant' %}{{ '<|im_start|>assistant' }}{% if m.content %}{{ '\n' + m.content }}"
    "{% endif %}{% for c in m.tool_calls %}" + _CALL + "{% endfor %}{{ '<|im_end|>\n' }}"
    "{% elif m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{ '<|im_start|>user' }}{% endif %}{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_HEAD = "'<|start_header_id|>' + {} + '<|end_header_id|>\n\n'"
_LLAMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{{ " + _HEAD.format("'system'") + " }}{% if tools %}{{ 'Environment: ipython\n' }}{% endif %}"
    "{{ system + '<|eot_id|>' }}{% if tools %}{% set first = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{{ " + _HEAD.format("'user'") + " + 'Functions:\n\n' }}"
    "{% for t in tools %}{{ t | tojson(indent=4) + '\n\n' }}{% endfor %}{{ first + '<|eot_id|>' }}{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
    "{% set c = m.tool_calls[0].function %}{{ " + _HEAD.format("'assistant'") + " }}"
    "{{ '{\"name\": \"' + c.name + '\", \"parameters\": ' }}{{ c.arguments | tojson }}{{ '}<|eot_id|>' }}"
    "{% elif m.role == 'tool' %}{{ " + _HEAD.format("'ipython'") + " }}"
    "{{ m.content | tojson if m.content is iterable else m.content }}{{ '<|eot_id|>' }}{% else %}"
    "{{ " + _HEAD.format("m.role") + " + m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ " + _HEAD.format("'assistant'") + " }}{% endif %}"
)
_MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{% set users = rest | selectattr('role', 'equalto', 'user') | list %}{{ bos_token }}{% for m in rest %}"
    "{% if m.role == 'user' %}{% if tools and m == users[-1] %}{{ '[AVAILABLE_TOOLS]' + tools | tojson + "
    "'[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST]' + (system if loop.last else '') + m.content + '[/INST]' }}"
    "{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{% for c in m.tool_calls %}"
    "{% if c.id is not defined or c.id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
    "{{ (c.function | tojson)[:-1] + ', \"id\": \"' + c.id + '\"}' }}{{ ', ' if not loop.last else ']' }}"
    "{% endfor %}{{ eos_token }}{% elif m.role == 'tool' %}"
    '{{ \'[TOOL_RESULTS]{"content": \' + m.content + \', "call_id": "\' + m.tool_call_id + \'"}'
    "[/TOOL_RESULTS]' }}"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
_DEEPSEEK = (
    "{{ bos_token }}{% for t in tools or [] %}{{ 'Tool: ' + t | tojson + '\n' }}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}{% for c in m.tool_calls %}"
    "{{ '<|Assistant|>' + c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}{% endfor %}"
    "{{ eos_token }}{% elif m.role == 'tool' %}{{ '<|Tool|>' + m.content + '\n' }}{% else %}"
    "{{ '<|' + m.role.title() + '|>' + m.content }}{{ eos_token if m.role == 'assistant' else '\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)
_IGNORES = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

WITH_TOOLS: dict[str, Family] = {
    "hermes": Family(_HERMES, ("<|im_start|>", "<|im_end|>")),
    "llama-3.1": Family(_LLAMA, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "mistral": Family(
        _MISTRAL,
        (
            *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
    ),
    "deepseek": Family(_DEEPSEEK, ("<|Assistant|>", "<|User|>", "<|Tool|>"), bos="<|begin|>", eos="<|end|>"),
}
IGNORES = Family(_IGNORES, ("<|im_start|>", "<|im_end|>"))
REFUSES = Family(
    "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}" + _IGNORES,
    ("<|im_start|>", "<|im_end|>"),
)

HERMES_ANSWERS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|im_end|>", "content": "text"},
    },
}
