"""Finds modules of an imported template that belong together because one variable decides on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from jinja2 import nodes

from engine.exchange.templates.expressions import UNDEFINED, decided, paths_in
from engine.exchange.templates.values import Values

_LISTED: Final = 20


@dataclass(frozen=True)
class _Choice:
    """The module paths of one statement's alternatives, its variables, and its place."""

    modules: tuple[str, ...]
    variables: tuple[str, ...]
    where: str


class Choices:
    """Collects the conditions of a template's modules.

    Attributes:
        written: by module path, the conditions on the prompt's variables under which the module's text is
            written.
    """

    def __init__(self) -> None:
        self._choices: list[_Choice] = []
        self._uses: dict[str, dict[str, None]] = {}
        self.written: dict[str, tuple[nodes.Expr, ...]] = {}

    def between(self, modules: Sequence[str], tests: Sequence[nodes.Expr], where: str) -> None:
        """Records that one statement chooses between modules."""
        variables = dict.fromkeys(path for test in tests for path in paths_in(test))
        self._choices.append(_Choice(tuple(modules), tuple(variables), where))

    def use(self, name: str, module: str) -> None:
        """Records that a variable is an argument of a module."""
        self._uses.setdefault(name, {})[module] = None

    def always(self, defaults: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the names of modules that the template writes with only default values."""
        bare = cache(partial(_bare, defaults=defaults))
        outermost = ((path, tests) for path, tests in self.written.items() if "/" not in path)
        return tuple(path for path, tests in outermost if all(map(bare, tests)))

    def told(self) -> Iterator[str]:
        """Yields a sentence for the variables that decide on several modules, or are arguments of several."""
        groups: dict[tuple[str, str], list[str]] = {}
        for name in dict.fromkeys(
            (*(variable for choice in self._choices for variable in choice.variables), *self._uses)
        ):
            choices = [choice for choice in self._choices if name in choice.variables]
            chosen = [path for choice in choices for path in choice.modules]
            used = [path for path in self._uses.get(name, ()) if not _inside(path, chosen)]
            if len(choices) + len(used) > 1:
                shown = _listed([f"{path} ({choice.where})" for choice in choices for path in choice.modules])
                groups.setdefault((shown, _listed(used)), []).append(name)
        for (shown, listed), names in groups.items():
            single = len(names) == 1
            decides = f"{'decides' if single else 'decide'} on the modules {shown}" if shown else ""
            argument = (
                f"{'is an argument' if single else 'are arguments'} of the modules {listed}" if listed else ""
            )
            uses = " and ".join(filter(None, (decides, argument)))
            fits = f"import those that fit one value of {'it' if single else 'each'}"
            yield f"{' and '.join(names)} {uses}; {fits if shown else 'give them the same value'}"


def _bare(test: nodes.Expr, defaults: Mapping[str, str]) -> bool:
    values = {path: defaults.get(path) for path in paths_in(test)}
    constants = {path: UNDEFINED if value is None else nodes.Const(value) for path, value in values.items()}
    return decided(Values(constants).condition(test)) is True


def _inside(path: str, above: list[str]) -> bool:
    return any(path == parent or path.startswith(f"{parent}/") for parent in above)


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
