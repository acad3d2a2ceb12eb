"""Templates that decide from what messages say: prompts still have the tokens of `apply_chat_template`."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.pml import Diagnostic
from engine.prompt.conversation.messages import Message, spell
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.conversation.tools import NO_TOOLS, Tools, ToolsError
from engine.prompt.recipe import Identity
from engine.prompt.spec import ModelSpec
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from tests.drawing import EVERY, draws
from tests.engine.cases import prompt_of, schema_of
from tests.engine.prompt.chat_templates import FAMILIES, Family, tokenizer

OPEN, CLOSE = "<|im_start|>", "<|im_end|>"
SPECIALS = (OPEN, CLOSE)
INVITE = "{% if add_generation_prompt %}" + OPEN + "assistant\n{% endif %}"


def chatml(content: str = "m.content", before: str = "", after: str = "", invite: str = INVITE) -> str:
    """Turns as ChatML writes them, around an expression."""
    return (
        "{% for m in messages %}" + OPEN + "{{ m.role }}" + before + "\n{{ " + content + " }}" + after + CLOSE
        + "\n{% endfor %}" + invite
    )  # fmt: skip


LAST_QUERY = (
    "{% set ns = namespace(last=messages|length - 1, found=false) %}"
    "{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' "
    "and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
    "{% set ns.found = true %}{% set ns.last = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set said = m.content %}"
    "{% if m.role == 'assistant' %}{% if '</think>' in said %}"
    "{% set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{% set said = said.split('</think>')[-1].lstrip('\\n') %}{% else %}{% set thought = '' %}{% endif %}"
    "{% if loop.index0 > ns.last and (loop.last or thought) %}"
    "{% set said = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + said %}{% endif %}{% endif %}"
    + OPEN + "{{ m.role }}\n{{ said }}" + CLOSE + "\n{% endfor %}" + INVITE
)  # fmt: skip
NO_THINK = (
    "{% set said = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% set mode = '/no_think' if '/no_think' in said else '/think' %}"
    + OPEN + "system\nMode: {{ mode }}\n{{ said.replace('/no_think', '').rstrip() or 'You are helpful.' }}"
    + CLOSE + "\n{% for m in messages %}{% if m.role != 'system' %}" + OPEN + "{{ m.role }}\n{{ m.content }}"
    + CLOSE + "\n{% endif %}{% endfor %}" + INVITE
    + "{% if add_generation_prompt and mode == '/no_think' %}<think>\n\n</think>\n{% endif %}"
)  # fmt: skip
SYSTEM_FIRST = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}" + OPEN + "{{ m.role }}\n{{ first if loop.first }}{{ m.content | trim }}" + CLOSE
    + "\n{% endfor %}" + INVITE
)  # fmt: skip
SYSTEM_LAST = (
    "{{ bos_token }}{% set sys = messages|selectattr('role', 'equalto', 'system')|map(attribute='content')"
    "|join('') %}{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}[INST] "
    "{{ sys ~ '\n\n' if loop.last and sys }}{{ m.content }} [/INST]{% else %}{{ m.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
TEMPLATES = {
    "counts letters": chatml(before=" {{ m.content|length }}"),
    "counts words": chatml(before=" {{ m.content.split()|length }}"),
    "counts all": "{{ messages|map(attribute='content')|join('')|length }} letters\n" + chatml(),
    "looks for a switch": NO_THINK,
    "looks for the last query": LAST_QUERY,
    "adds a switch": chatml(
        after="{{ '/nothink' if not m.content.endswith('/nothink') and m.role == 'user' }}"
    ),
    "leaves out empty turns": chatml().replace("in messages %}", "in messages if m.content %}"),
    "leaves out the system": chatml().replace("in messages %}", "in messages if m.role != 'system' %}"),
    "adds a system text": "{% if messages[0].role != 'system' or not messages[0].content.strip() %}" + OPEN
    + "system\nYou are kind." + CLOSE + "\n{% endif %}" + chatml(),
    "strips line breaks": chatml("m.content.strip('\\n')"),
    "replaces": chatml("m.content.replace('a', 'o').replace('\\n', ' ')"),
    "shouts": chatml("m.content|upper if m.role == 'system' else m.content"),
    "quotes": chatml("m.content|tojson"),
    "joins words": chatml("m.content.split()|join(' ')"),
    "escapes": chatml("m.content|e"),
    "cuts short": chatml("m.content[:20]"),
    "reverses": chatml("m.content|reverse"),
    "repeats": chatml("m.content ~ m.content"),
    "titles": chatml("m.content|title"),
    "numbers lines": chatml("m.content.splitlines()|join('\\n> ')"),
    "system before the first": SYSTEM_FIRST,
    "system before the last": SYSTEM_LAST,
    "compares turns": chatml(
        before="{{ ' again' if not loop.first and m.content == messages[loop.index0 - 1].content }}"
    ),
    "asks for the case": chatml(before="{{ ' loud' if m.content.isupper() }}"),
    "takes a switch off": chatml(
        "m.content[9:].lstrip() if m.content.startswith('/no_think') else m.content"
    ),
    "leaves thoughts to the last": chatml(
        "m.content if loop.last or '</think>' not in m.content "
        "else m.content.partition('</think>')[2].strip()"
    ),
    "joins parts": chatml("(m.content if m.content is string else m.content|map('string')|join)|trim"),
    "refuses its own marks": "{% for m in messages if '<|channel|>' in m.content %}"
    "{{ raise_exception('no channels') }}{% endfor %}" + chatml(),
    "tells who asked first": chatml()
    + "{% set first = messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first %}"
    "{{ 'Q: ' ~ (first|truncate(12)) ~ '\n' if first|length > 8 }}",
    "merges turns": "{% for m in messages %}{% if loop.first or m.role != messages[loop.index0 - 1].role %}"
    + OPEN + "{{ m.role }}{% endif %}\n{{ m.content }}{{ '" + CLOSE + "\n' if loop.last or "
    "m.role != messages[loop.index0 + 1].role }}{% endfor %}" + INVITE,
    "no invitation": chatml(before=" {{ m.content|length }}", invite=""),
    "no special token": "{% for m in messages %}### {{ m.role }} {{ m.content|length }}\n{{ m.content }}\n\n"
    "{% endfor %}### answer\n",
}  # fmt: skip
THOUGHT = "<think>\nfish, then?\n</think>\n\nGo to the market."
RESULT = "<tool_response>\nblue\n</tool_response>"
SAID = ["", " ", "hi", "user", "42", "?!", "Look at the map.\n", "\n\nA fish?\n", "READ THIS", "a a a",
        "/no_think Be brief.", "Be brief. /nothink", RESULT, THOUGHT, 'a "b" \\ <c> & é\t.',
        "日本", "𠀀𠀁 rare"]  # fmt: skip
CONVERSATIONS: dict[str, list[tuple[str, str]]] = {
    "short": [("user", "hi")],
    "system": [("system", "Be brief."), ("user", "Look at the map.\n")],
    "switched": [("system", "/no_think Be brief."), ("user", "Why? /nothink")],
    "empty system": [("system", ""), ("user", "hi")],
    "longer": [("system", "Be brief."), ("user", "a?"), ("assistant", THOUGHT), ("user", "So?")],
    "a result": [("user", "How is it?"), ("assistant", THOUGHT), ("user", RESULT)],
    "alike": [("user", "again"), ("assistant", "again"), ("user", "again")],
    "signs": [("user", "42"), ("assistant", "?!"), ("user", '{"a": "b\\n"}')],
}


@cache
def spec(template: str, adds: bool = False) -> ModelSpec:
    made = tokenizer(Family(template, SPECIALS, adds=adds))
    return ModelSpec("tiny", made, ChatFormat(made), 0, 4096, Identity("f", "float32", True))


def wanted(of: ModelSpec, messages: list[tuple[str, str]], **variables: Any) -> list[int]:
    told = [{"role": role, "content": text} for role, text in messages]
    found: list[int] = of.tokenizer.apply_chat_template(told, add_generation_prompt=True, **variables)[
        "input_ids"
    ]
    return found


def conversed(of: ModelSpec, messages: list[tuple[str, str]], tools: Tools = NO_TOOLS) -> list[int]:
    """The tokens of a conversation without a schema, as the server and `Engine.conversation` have them."""
    spelled = spell([Message(role, (Block(text),)) for role, text in messages])  # type: ignore[arg-type]
    schema = TokenizedSchema(spelled.bound.schema, of, apart=True)
    return TokenizedPrompt(schema, spelled, tools).planned().plan.token_ids


def pml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def written(of: ModelSpec, messages: list[tuple[str, str]]) -> tuple[list[int], tuple[Diagnostic, ...]]:
    """The tokens of a prompt whose first turns are the schema's, with modules and arguments; what is told."""
    texts, imports = [], []
    for at, (role, text) in enumerate(messages):
        inner = pml(text)
        if at % 2 and text.strip():
            inner = '<param name="p" len="99"/>'
            value = pml(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
            imports.append(f'<m{at} p="{value}"/>')
        else:
            imports.append(f"<m{at}/>")
        module = f'<module name="m{at}" xml:space="preserve">{inner}</module>'
        texts.append(f'<{role} xml:space="preserve">{module}</{role}>')
    count = max(1, len(texts) - 1)
    rest = "".join(f'<{role} xml:space="preserve">{pml(text)}</{role}>' for role, text in messages[count:])
    schema = TokenizedSchema(schema_of(f'<schema name="s">{"".join(texts[:count])}</schema>'), of)
    prompt = TokenizedPrompt(schema, prompt_of(f"<prompt>{''.join(imports[:count])}{rest}</prompt>"))
    return prompt.planned().plan.token_ids, prompt.check()


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations_have_the_tokens_of_the_template_and_prompts_its_text(name: str) -> None:
    of = spec(TEMPLATES[name])
    for title, messages in CONVERSATIONS.items():
        want = wanted(of, messages)
        assert conversed(of, messages) == want, title
        if all(text for _, text in messages):  # a turn without text does not exist in a document
            ours, told = written(of, messages)
            assert of.tokenizer.decode(ours) == of.tokenizer.decode(want), title
            assert (ours != want) == any(one.code == "W611" for one in told), title


ROLES = st.sampled_from([["user"], ["system", "user"], ["user", "assistant", "user"],
                         ["system", "user", "assistant", "user", "assistant", "user"]])  # fmt: skip
TEXTS = st.sampled_from(SAID) | st.text(st.sampled_from(" \nabAB.é<|>/?4"), max_size=12)


@st.composite
def conversations(draw: Any) -> list[tuple[str, str]]:
    return [(role, draw(TEXTS)) for role in draw(ROLES)]


TESTS = st.sampled_from(
    ["m.content", "m.content.strip()", "m.content|length > 9", "'a' in m.content", "'/no_think' in m.content",
     "m.content.startswith('<')", "m.content.endswith('\n')", "m.content == messages[0].content", "loop.last",
     "m.content.isupper()", "'</think>' in m.content", "m.role == 'system'", "m.content.count('a') > 1",
     "messages|map(attribute='content')|join|length % 2", "m.content[:1] == 'A'", "m.content is string"]
)  # fmt: skip
TURNED = st.recursive(
    st.just("m.content"),
    lambda inner: st.tuples(
        inner,
        st.sampled_from(
            [".strip()", ".lstrip('\n')", ".rstrip()", "|upper", "|lower", "|title", "|capitalize", "|trim",
             "|tojson", ".split()|join(' ')", ".split('</think>')[-1]", ".replace('a', 'bb')", "|length",
             ".replace('\n', '')", "[:9]", "[3:]", "|reverse", ".splitlines()|join('|')", " ~ '!'", "|e",
             "|default('none', true)", ".partition('.')[0]", "|list|unique|join",
             ".removeprefix('<')", "|string|wordcount", "|first|default('')"]
        ),
    ).map(lambda pair: f"({pair[0]}){pair[1]}"),
    max_leaves=3,
)  # fmt: skip
TEXT = st.sampled_from([OPEN, CLOSE, "\n", " ", "### ", "{{ m.role }}", "{{ loop.index }}", "\n\n", ": "])


@st.composite
def templates(draw: Any) -> str:
    def block(depth: int) -> str:
        kind = draw(st.integers(0, 3 if depth else 1))
        if kind == 0:
            return str(draw(TEXT))
        if kind == 1:
            return "{{ " + draw(TURNED) + " }}"
        if kind == 2:
            return f"{{% if {draw(TESTS)} %}}{block(depth - 1)}{{% else %}}{block(depth - 1)}{{% endif %}}"
        return block(depth - 1) + block(depth - 1)

    before = draw(st.sampled_from(["", "{{ bos_token }}", "{{ messages[0].content|length }}\n"]))
    turn = OPEN + "{{ m.role }}\n" + block(3) + "{{ m.content }}" + block(2)
    if draw(st.booleans()):
        turn = turn.replace("{{ m.content }}", "")
    loop = draw(
        st.sampled_from(
            ["messages", "messages if m.content", "messages[1:] + messages[:1]", "messages|reverse"]
        )
    )
    return f"{before}{{% for m in {loop} %}}{turn}{CLOSE}\n{{% endfor %}}{INVITE}"


BEGINNINGS = {"the tokenizer alone": chatml(), "both": "{{ bos_token }}" + chatml(), "neither": chatml()}


@pytest.mark.parametrize("name", BEGINNINGS)
@pytest.mark.parametrize(
    "source", ['<schema name="s"></schema>', '<schema name="s"><module name="m"/></schema>']
)
def test_only_the_template_begins_a_conversation(name: str, source: str) -> None:
    of = spec(BEGINNINGS[name], adds=name != "neither")
    messages = [("system", "Be brief."), ("user", "hi")]
    want = wanted(of, messages)
    assert conversed(of, messages) == want
    turns = "".join(f"<{role}>{text}</{role}>" for role, text in messages)
    over = TokenizedSchema(schema_of(source), of)
    assert TokenizedPrompt(over, prompt_of(f"<prompt>{turns}</prompt>")).planned().plan.token_ids == want
    of_schema = TokenizedSchema(schema_of(f'<schema name="s">{turns}</schema>'), of)
    assert TokenizedPrompt(of_schema, prompt_of("<prompt/>")).planned().plan.token_ids == want


def test_text_without_turns_begins_as_the_tokenizer_begins_it() -> None:
    of = spec(chatml(), adds=True)
    over = TokenizedSchema(schema_of('<schema name="s">Look.</schema>'), of)
    plan = TokenizedPrompt(over, prompt_of("<prompt>hi</prompt>")).planned().plan
    assert of.tokenizer.decode(plan.token_ids) == "<s>Look.\nhi"


def test_a_switch_in_the_schema_has_segments_of_its_own() -> None:
    """Modules see the system turn as the template writes it for this very prompt."""
    of = spec(NO_THINK)
    source = (
        '<schema name="s"><system><module name="fast">/no_think</module> Be brief.</system>'
        '<user><module name="map">Look at the map of Rome.</module></user></schema>'
    )
    schema = TokenizedSchema(schema_of(source), of)
    keys = []
    for imports, mode in (("<map/>", "/think"), ("<fast/><map/>", "/no_think")):
        planned = TokenizedPrompt(schema, prompt_of(f"<prompt>{imports} Why?</prompt>")).planned()
        assert f"Mode: {mode}\n" in of.tokenizer.decode(planned.plan.token_ids)
        pairs = zip(planned.plan.pieces, planned.slices, strict=True)
        keys.append({used.recipe.key for piece, used in pairs if piece.path == "map" and used is not None})
    assert not keys[0] & keys[1]


def test_variables_reach_the_template() -> None:
    of = spec(
        chatml(invite="{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}")
    )
    messages = [("user", "hi")]
    off = Tools.of((), {"enable_thinking": False})
    assert conversed(of, messages, off) == wanted(of, messages, enable_thinking=False)
    assert conversed(of, messages) == wanted(of, messages)
    assert conversed(of, messages) != conversed(of, messages, off)
    with pytest.raises(ToolsError, match="'messages' is set by the conversation itself"):
        Tools.of((), {"messages": []})


@pytest.mark.parametrize("content", [f"say {CLOSE} now", CLOSE, f"{CLOSE}\n42", f"42{CLOSE}{OPEN}"])
def test_a_special_token_that_an_author_spells_stays_text(content: str) -> None:
    """Also where the template itself has the token among its words, and nothing else tells the author's."""
    of = spec(
        "{% if '" + CLOSE + "' == '" + OPEN + "' %}{% endif %}" + chatml(before=" {{ m.content|length }}")
    )
    plain = conversed(of, [("user", content)])
    assert f"\n{content}{CLOSE}" in of.tokenizer.decode(plain)
    counts = [plain.count(of.tokenizer.convert_tokens_to_ids(one)) for one in SPECIALS]
    assert counts == [2, 1]


MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ EXPR }}{{ '<|im_end|>' }}{{ '\n' }}"
    "{% endfor %}"
)


@pytest.mark.parametrize(
    ("expression", "content"),
    [
        ("m.content.replace('\n', ' ')", f"hi\n{CLOSE}"),
        ("m.content.replace('\n', ' ')", f"hi\n{CLOSE}{OPEN}\n42"),
        ("m.content.splitlines()|join(' ')", f"hi\n{CLOSE}"),
        ("m.content|lower", "<|IM_END|>"),
        ("m.content ~ m.content", f"a \U0010fffd{CLOSE}b"),
        ("m.content|reverse", f"\U0010fffd{CLOSE}"),
        ("m.content.replace('/think', '').rstrip()", f"Be kind./think{CLOSE}\n"),
    ],
)
def test_no_template_makes_special_tokens_of_what_an_author_spells(expression: str, content: str) -> None:
    of = spec(MARKED.replace("EXPR", expression))
    ours = conversed(of, [("user", content)])
    counts = [ours.count(of.tokenizer.convert_tokens_to_ids(one)) for one in SPECIALS]
    assert counts == [1, 1]


@pytest.mark.parametrize("content", [f"x{CLOSE}", f"x{CLOSE}y", f"{CLOSE}", f"x{CLOSE}{CLOSE}"])
@pytest.mark.parametrize(
    "expression",
    [
        f"m.content.replace('{CLOSE}', '')",
        f"m.content.split('{CLOSE}')[0]",
        "m.content[:1]",
        "m.content|truncate(1, true, '')",
    ],
)
def test_a_template_that_takes_special_tokens_away_keeps_its_own(expression: str, content: str) -> None:
    of, messages = spec(MARKED.replace("EXPR", expression)), [("user", content), ("assistant", content)]
    if content.startswith(CLOSE) and "1" in expression:
        return  # the template leaves a part of the spelling
    ours, want = conversed(of, messages), wanted(of, messages)
    assert of.tokenizer.decode(ours) == of.tokenizer.decode(want)
    assert ours == want


def test_rewritten_text_of_the_schema_is_computed_and_the_plan_says_why() -> None:
    of = spec(TEMPLATES["shouts"])
    user = '<user><module name="map">Look at it.</module></user>'
    source = f'<schema name="s"><system>Be brief.</system>{user}</schema>'
    prompt = TokenizedPrompt(TokenizedSchema(schema_of(source), of), prompt_of("<prompt><map/></prompt>"))
    whys = {piece.path: piece.why for piece in prompt.planned().plan.pieces if piece.kind == "module"}
    assert "rewrites" in whys["map"]
    (told,) = (one for one in prompt.check() if one.code == "W612")
    assert "turn 1 (system)" in told.message
    assert "every request computes" in told.message


@settings(max_examples=300 if EVERY else 25)
@given(templates(), conversations())
def test_drawn_templates_and_conversations(template: str, messages: list[tuple[str, str]]) -> None:
    made = drawn()
    made.chat_template = template
    of = ModelSpec("tiny", made, ChatFormat(made), 0, 4096, Identity("f", "float32", True))
    try:
        want = wanted(of, messages)
    except Exception:  # the template takes no such conversation, in words of its own
        assume(False)
    assume(want)
    assert conversed(of, messages) == want
    if all(text for _, text in messages):
        ours, told = written(of, messages)
        assert made.decode(ours) == made.decode(want)
        assert (ours != want) == any(one.code == "W611" for one in told)


@cache
def drawn() -> Any:
    """One tokenizer for all drawn templates: to make one takes longer than to draw."""
    return tokenizer(Family("", SPECIALS))


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=25 if EVERY else 4)
@given(conversations())
def test_drawn_conversations(name: str, messages: list[tuple[str, str]]) -> None:
    of = spec(TEMPLATES[name])
    assert conversed(of, messages) == wanted(of, messages)


@cache
def family(name: str) -> ModelSpec:
    made = tokenizer(FAMILIES[name])
    return ModelSpec(name, made, ChatFormat(made), 0, 4096, Identity("f", "float32", True))


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=draws(15))
@given(conversations())
def test_drawn_conversations_of_families(name: str, messages: list[tuple[str, str]]) -> None:
    of = family(name)
    try:
        want = wanted(of, messages)
    except jinja2.TemplateError:
        return
    assert conversed(of, messages) == want
