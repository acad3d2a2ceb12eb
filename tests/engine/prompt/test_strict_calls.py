"""Free text with calls: a call that has begun keeps to the parameters of a strict tool."""

from __future__ import annotations

import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.model import Model
from engine.prompt.conversation.tools import Tools
from engine.prompt.template.call_syntax import call_syntax
from tests.engine.prompt.tool_templates import WITH_TOOLS
from tests.engine.tiny import tiny_network

CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY |= {"additionalProperties": False}
TOOLS = Tools.of(
    [
        {"type": "function", "function": {"name": "weather", "parameters": CITY}},
        {"type": "function", "function": {"name": "note", "parameters": CITY}},
    ]
)


class Writer:
    """A model of a family that writes a given text under the grammar of strict calls."""

    def __init__(self, family: str) -> None:
        chosen, words = WITH_TOOLS[family], byte_tokenizer()
        words.add_special_tokens({"additional_special_tokens": [*chosen.specials]})
        words.chat_template = chosen.template
        self.model = Model("caller", tiny_network(), words, "caller")
        self.syntax = call_syntax(self.model.chat, TOOLS)
        self.grammar = self.syntax.grammar_of_text(TOOLS, ("weather",), self.model.chat.tokens)

    def call(self, name: str, arguments: str) -> str:
        """A call as the template writes it."""
        syntax = self.syntax
        text = f"{syntax.before}{name}{syntax.between}{arguments}{syntax.after}"
        return text.replace("a1B2c3D4e", "z9Y8x7W6v")

    def refused(self, text: str) -> str:
        """The rest of a text from its first refused token on; "" if the whole text may be the answer."""
        matcher = self.model.matcher(self.grammar)
        assert matcher is not None
        tokens = self.model.chat.tokens.marked(text)
        for place, token in enumerate(tokens):
            if not matcher.permits(token):
                return str(self.model.tokenizer.decode(tokens[place:]))
            matcher.take(token)
        ends = any(map(matcher.permits, self.model.end_tokens))
        return "" if matcher.complete or ends else "the end"


@pytest.fixture(scope="module", params=WITH_TOOLS)
def writer(request: pytest.FixtureRequest) -> Writer:
    return Writer(request.param)


def test_text_is_free(writer: Writer) -> None:
    for text in ("", "It is warm.", 'A list: [1, {"a": "b"}] <b>\n\n"</b>'):
        assert writer.refused(text) == ""


def test_a_call_keeps_to_its_schema(writer: Writer) -> None:
    rome = writer.call("weather", '{"city": "Rome"}')
    for text in (rome, f"Let me see.\n{rome}", f"{rome}{rome}", f"{rome} And then:"):
        assert writer.refused(text) == "", text
    assert writer.refused(writer.call("weather", '{"city": "Paris"}')).startswith("Paris")
    assert writer.refused(writer.call("weather", '{"town": "Rome"}')).startswith("town")
    assert writer.refused(f"First: {rome} {writer.call('weather', '{}')}").startswith("}")
    if writer.syntax.before:  # else only the name of a tool begins a call
        assert writer.refused(writer.call("winter", "{}")).startswith("i")
    assert writer.refused(writer.call("note", '{"any": [1, {"thing": null}]}')) == ""
    assert writer.refused(rome[: rome.index("Rome")]) == "the end"


def test_many_tools_can_be_strict() -> None:
    many = Tools.of([{"type": "function", "function": {"name": f"tool_{n}"}} for n in range(200)])
    writer = Writer("hermes")
    grammar = writer.syntax.grammar_of_text(many, many.names, writer.model.chat.tokens)
    assert writer.model.matcher(grammar) is not None
