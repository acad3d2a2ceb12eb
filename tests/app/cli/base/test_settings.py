"""The options of a run come from the declaration of its settings, and so do the refusals."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from app.cli.base.param_types import Name, Number, Origin, Whole
from app.cli.command import pml
from engine.inference.run_settings import RunSettings
from engine.inference.setting import settings_of

SETTINGS = settings_of(RunSettings)


def options_of(command: str) -> dict[str, click.Option]:
    found = pml.commands[command].params
    return {one.name: one for one in found if isinstance(one, click.Option) and one.name}


def test_the_command_line_offers_the_declared_settings() -> None:
    options = options_of("run")
    offered = {name: one for name, one in options.items() if name in SETTINGS}
    # A run answers once, has an option for each kind of grammar, and biases of token ids are for programs.
    assert set(offered) == set(SETTINGS) - {"hold_conversation", "grammar", "logit_bias"}
    for name, option in offered.items():
        declared = SETTINGS[name]
        assert option.help is not None
        assert option.help.startswith(declared.sentence)
        if declared.kind != "texts":
            assert option.default == ("auto" if name == "reuse" else declared.default)
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
        ("--stop", "", "it must be a list of texts of at least one character"),
        ("--repair", "link", "repair is 'link'; it must be none, link:K"),
        ("--max-new-tokens", "0", "max_new_tokens is 0; it must be a whole number, at least 1 and at most"),
        ("--seed", "x", "seed is 'x'; it must be a whole number, at least 0"),
        ("--top-p", "0", "top_p is 0.0; it must be a number, above 0 and at most 1"),
        ("--scope", "wide", "scope is 'wide'; it must be one of isolated, anchored, preceding, scaffold"),
        ("--mode", "fast", "mode is 'fast'; it must be one of cached, uncached, both"),
    ],
)
def test_the_command_line_refuses_in_the_words_of_the_declaration(
    option: str, value: str, words: str
) -> None:
    with pytest.raises(click.BadParameter) as refused:
        pml.commands["run"].make_context("run", ["p.pml", "--schema", "s.pml", option, value])
    assert words in str(refused.value)


def parameters(group: click.Group) -> Iterator[click.Parameter]:
    for command in group.commands.values():
        yield from parameters(command) if isinstance(command, click.Group) else command.params


def test_every_option_refuses_in_these_words() -> None:
    """Click has sentences of its own for numbers and names that do not fit."""
    own = (
        click.IntRange,
        click.FloatRange,
        click.Choice,
        click.types.IntParamType,
        click.types.FloatParamType,
    )
    taken = [one.type for one in parameters(pml) if isinstance(one.type, own)]
    assert len(taken) > 30
    assert {type(one) for one in taken} == {Whole, Number, Name}


def test_what_is_no_setting_is_refused_in_the_same_words() -> None:
    for given, words in (
        ("0", "port is 0; it must be a whole number, at least 1 and at most 65535"),
        ("http", "port is 'http'; it must be a whole number"),
        ("1.5", "port is '1.5'; it must be a whole number"),
    ):
        with pytest.raises(click.BadParameter) as refused:
            pml.commands["studio"].make_context("studio", ["--port", given])
        assert words in str(refused.value)
    helped = click.Context(pml.commands["studio"]).get_help()
    assert "1<=x<=65535" in helped


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://localhost:3000/", "http://localhost:3000"),
        ("HTTPS://Chat.Example:443", "https://chat.example"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("app://obsidian.md", "app://obsidian.md"),
        ("null", "null"),
    ],
)
def test_a_site_is_named_as_browsers_name_it(given: str, origin: str) -> None:
    assert Origin().convert(given, None, None) == origin


@pytest.mark.parametrize("given", ["*", "localhost:3000", "http://*.example", "http://a/b", "http://a:x", ""])
def test_what_no_page_can_come_from_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a site\. Write it as http://localhost:3000"):
        Origin().convert(given, None, None)
