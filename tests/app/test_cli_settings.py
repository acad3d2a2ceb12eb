"""The options of a run come from the declaration of its settings, and so do the refusals."""

from __future__ import annotations

import click
import pytest

from app.cli.command import pml
from engine.inference.params import RunSettings
from engine.inference.settings import settings_of

SETTINGS = settings_of(RunSettings)


def options_of(command: str) -> dict[str, click.Option]:
    found = pml.commands[command].params
    return {one.name: one for one in found if isinstance(one, click.Option) and one.name}


def test_the_command_line_offers_the_declared_settings() -> None:
    options = options_of("run")
    offered = {name: one for name, one in options.items() if name in SETTINGS}
    assert set(offered) == set(SETTINGS) - {"hold_conversation"}, "a run answers once: nothing follows it"
    for name, option in offered.items():
        declared = SETTINGS[name]
        assert option.help is not None
        assert option.help.startswith(declared.sentence)
        if declared.kind != "texts":
            assert option.default == declared.default
        if declared.choices:
            assert isinstance(option.type, click.Choice)
            assert tuple(option.type.choices) == tuple(declared.choices)
        if isinstance(option.type, click.IntRange | click.FloatRange):
            assert (option.type.min, option.type.max) == (declared.least, declared.most)
            assert option.type.min_open == declared.above
    assert options_of("fidelity")["max_new_tokens"].default == RunSettings().max_new_tokens


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--temperature", "nan", "temperature is nan; it must be a number"),
        ("--stop", "", "it must be texts of at least one character"),
        ("--repair", "link", "repair is 'link'; it must be none, link:K"),
    ],
)
def test_the_command_line_refuses_in_the_words_of_the_declaration(
    option: str, value: str, words: str
) -> None:
    with pytest.raises(click.BadParameter) as refused:
        pml.commands["run"].make_context("run", ["p.pml", "--schema", "s.pml", option, value])
    assert words in str(refused.value)
