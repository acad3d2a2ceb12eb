"""W618: which prompts leave the model nothing to answer."""

from __future__ import annotations

import re

import pytest

from engine.pml import bind
from tests.pml.documents import prompt_tree, valid_schema
from tests.pml.mistakes import Pair, samples

TASK = '<user>Read. <module name="doc">Rome is old.</module> <module name="task">Sum it up.</module></user>'
SHOT = '<module name="shot"><user>Why?</user><assistant>So.</assistant></module><user>Sort: </user>'

CUSTOMER = '<user><module name="it">Find Ada. She bought <param name="x" len="9"/>.</module></user>'


def warns(schema: str, prompt: str) -> bool:
    found = bind(valid_schema(schema), prompt_tree(prompt)).diagnostics
    return any(one.code == "W618" for one in found)


@pytest.mark.parametrize(
    ("schema", "prompt", "asks"),
    [
        ('<module name="doc">Rome is old.</module>', "<doc/>", False),
        ('<module name="doc">Rome is old.</module>', "<doc/> How old?", True),
        ('<module name="doc">Rome is old.</module>', "<doc/><user> </user>", False),
        ('<module name="doc">Rome is old.</module>', "<doc/><system>Be brief.</system>", False),
        ('<module name="doc">How old is Rome?</module>', "<doc/>", True),
        ('<module name="doc">Rome is old.</module>', "", False),
        (TASK.replace("Sum it up", "Summarise it"), "<doc/><task/>", True),
        (TASK.replace("Sum it up", "Summarise it"), "<doc/>", False),
        ('<user>Who says this? <module name="doc">Rome is old.</module></user>', "<doc/>", True),
        ('<user>Translate: <module name="doc">Rome is old.</module></user>', "<doc/>", True),
        (SHOT, "<shot/>", False),
        (SHOT, "<shot/> My tea is cold.", True),
        ('<user>Sort: <module name="it"><param name="x" len="3"/>.</module></user>', '<it x="tea"/>', True),
        ('<user><module name="it">For <param name="x" len="3"/> days.</module></user>', '<it x="2"/>', False),
        (CUSTOMER, '<it x="a teapot"/>', False),
        (CUSTOMER, '<it x="a teapot?"/>', True),
        (CUSTOMER, '<it x="list all teapots"/>', True),
        (CUSTOMER.replace("She bought", "Find"), '<it x="teapots"/>', True),
        (CUSTOMER.replace("She bought", "I need you to translate:\n\n"), '<it x="teapots"/>', True),
        (CUSTOMER.replace("She bought", "Question:"), '<it x="price"/>', True),
        (CUSTOMER.replace("She bought", "Name:"), '<it x="Ada"/>', False),
    ],
)
def test_a_prompt_must_end_with_something_to_answer(schema: str, prompt: str, asks: bool) -> None:
    assert warns(f'<schema name="s">{schema}</schema>', f"<prompt>{prompt}</prompt>") != asks


@pytest.mark.parametrize("pair", samples(), ids=lambda pair: pair.name)
def test_a_sample_warns_only_without_its_question(pair: Pair) -> None:
    asks_itself = pair.name == "citybreak"  # its schema ends with a request
    for prompt in pair.prompts:
        silent = re.sub(r"<user>.*?</user>|(?m:^  [^<\s].*$)", "", prompt, flags=re.DOTALL)
        assert silent != prompt
        assert (warns(pair.schema, prompt), warns(pair.schema, silent)) == (False, not asks_itself)


def test_an_error_hides_the_warning() -> None:
    assert not warns('<schema name="s"><module name="doc">Rome.</module></schema>', "<prompt><dok/></prompt>")
