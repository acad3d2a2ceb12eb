"""Typical mistakes in the samples: after the offered fixes the model reads what the author meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from engine.pml import Diagnostic, Schema, bind, folded, mended, parse_prompt
from tests.pml.documents import schema_tree
from tests.pml.mistakes import Pair, reading, samples

_TAG = re.compile(r"<([\w.-]+)([^<>]*)/>")
_END = re.compile(r"</([\w.-]+)>")


def bare(prompt: str) -> str:
    """The question without its tag, as most people type it."""
    return re.sub(r"<user>(.*?)</user>", r"\1", prompt, flags=re.DOTALL)


def flat(prompt: str) -> str:
    return re.sub(r"(?m)^[ \t]+", "", prompt)


def deeper(prompt: str) -> str:
    """What follows the first import is indented as if it were inside."""
    first, *rest = bare(prompt).split("\n  <")
    return "\n  <".join([first, *rest[:1]]) + "".join(f"\n    <{one}" for one in rest[1:])


LAYOUTS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "bare": bare,
    "flat": lambda prompt: flat(bare(prompt)),
    "deeper": deeper,
}


def diagnose_against(schema: Schema) -> Callable[[str], Sequence[Diagnostic]]:
    def diagnose(source: str) -> Sequence[Diagnostic]:
        parsed = parse_prompt(source)
        return (*parsed.diagnostics, *(bind(schema, parsed.tree).diagnostics if parsed.tree else ()))

    return diagnose


def pressed(source: str, diagnose: Callable[[str], Sequence[Diagnostic]]) -> str:
    """The document after the first fix of the first problem, again and again."""
    for _ in range(20):
        faults = sorted(folded(diagnose(source)), key=lambda one: one.span.start)
        tried = (mended(source, fault, diagnose, fix) for fault in faults for fix in fault.fixes[:1])
        after = next((text for text in tried if text not in (None, source)), None)
        if after is None:
            break
        source = after
    return source


def without_slash(prompt: str) -> Iterator[str]:
    for match in _TAG.finditer(prompt):
        yield f"{prompt[: match.end() - 2]}>{prompt[match.end() :]}"


def without_end(prompt: str) -> Iterator[str]:
    for match in _END.finditer(prompt):
        yield prompt[: match.start()] + prompt[match.end() :]


def with_two_brackets(prompt: str) -> Iterator[str]:
    for match in re.finditer(r"\n[ \t]*(?=<)", prompt):
        yield f"{prompt[: match.end()]}<{prompt[match.end() :]}"


def with_backslash(prompt: str) -> Iterator[str]:
    for match in _END.finditer(prompt):
        yield f"{prompt[: match.start() + 1]}\\{prompt[match.start() + 2 :]}"


def without_space(prompt: str) -> Iterator[str]:
    for match in re.finditer(r"(?<=\w) (?=\w+=\")", prompt):
        yield prompt[: match.start()] + prompt[match.end() :]


def without_quote(prompt: str) -> Iterator[str]:
    for match in re.finditer('"', prompt):
        yield prompt[: match.start()] + prompt[match.end() :]


MISTAKES = (without_slash, without_end, with_two_brackets, with_backslash, without_space, without_quote)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pair", samples(), ids=lambda pair: pair.name)
def test_the_fixes_restore_what_the_prompt_says(pair: Pair, layout: str) -> None:
    prompt = LAYOUTS[layout](pair.prompts[0])
    meant, diagnose = reading(pair.schema, prompt), diagnose_against(schema_tree(pair.schema))
    assert meant is not None
    restored = left = 0
    for spoil in MISTAKES:
        for broken in spoil(prompt):
            now = reading(pair.schema, pressed(broken, diagnose))
            assert now in (meant, None), broken
            restored, left = restored + (now == meant), left + (now is None)
            assert spoil is not without_slash or now == meant, broken
    assert restored > 8 * left


@pytest.mark.parametrize("layout", ["bare", "flat", "deeper"])
def test_a_missing_slash_is_one_error_with_one_fix(layout: str) -> None:
    pair = next(one for one in samples() if one.name == "documents")
    diagnose = diagnose_against(schema_tree(pair.schema))
    for broken in list(without_slash(LAYOUTS[layout](pair.prompts[0])))[:-1]:
        (error,) = (one for one in folded(diagnose(broken)) if one.severity == "error")
        (fix,) = error.fixes
        assert re.fullmatch(r"Write <[\w-]+/>", fix.title), broken
        assert fix.title.removeprefix("Write") in error.message


def test_an_error_that_follows_from_no_tag_stays() -> None:
    pair = next(one for one in samples() if one.name == "documents")
    diagnose = diagnose_against(schema_tree(pair.schema))
    broken = pair.prompts[0].replace("<torlin/>", "<torlin>").replace("lena-varga", "lena-vargas")
    assert {one.code for one in folded(diagnose(broken)) if one.severity == "error"} == {"E402", "E105"}
