"""Which modules of an imported template belong together, as one variable decides on them."""

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
    """Modules between which one statement chooses, by their paths; the variables it asks; where it stands."""

    modules: tuple[str, ...]
    variables: tuple[str, ...]
    where: str


class Choices:
    """Gathers what the modules of a template depend on.

    Attributes:
        written: the conditions, over what a prompt gives, that have to hold for the text of each module to be
            written, by the module's path.
    """

    def __init__(self) -> None:
        self._choices: list[_Choice] = []
        self._uses: dict[str, dict[str, None]] = {}
        self.written: dict[str, tuple[nodes.Expr, ...]] = {}

    def between(self, modules: Sequence[str], tests: Sequence[nodes.Expr], where: str) -> None:
        """Notes that one statement chooses between modules."""
        variables = dict.fromkeys(path for test in tests for path in paths_in(test))
        self._choices.append(_Choice(tuple(modules), tuple(variables), where))

    def use(self, name: str, module: str) -> None:
        """Notes that a variable is an argument of a module."""
        self._uses.setdefault(name, {})[module] = None

    def always(self, defaults: Mapping[str, str]) -> tuple[str, ...]:
        """The names of the modules that the template writes where it is given nothing but defaults."""
        bare = cache(partial(_bare, defaults=defaults))
        outermost = ((path, tests) for path, tests in self.written.items() if "/" not in path)
        return tuple(path for path, tests in outermost if all(map(bare, tests)))

    def told(self) -> Iterator[str]:
        """A sentence for the variables that decide on several modules, or are arguments of several."""
        groups: dict[tuple[str, str], list[str]] = {}
        for name in dict.fromkeys(
            (*(one for choice in self._choices for one in choice.variables), *self._uses)
        ):
            choices = [choice for choice in self._choices if name in choice.variables]
            chosen = [path for choice in choices for path in choice.modules]
            used = [path for path in self._uses.get(name, ()) if not _inside(path, chosen)]
            if len(choices) + len(used) > 1:
                shown = _listed([f"{path} ({one.where})" for one in choices for path in one.modules])
                groups.setdefault((shown, _listed(used)), []).append(name)
        for (shown, listed), names in groups.items():
            one = len(names) == 1
            decides = f"{'decides' if one else 'decide'} on the modules {shown}" if shown else ""
            argument = (
                f"{'is an argument' if one else 'are arguments'} of the modules {listed}" if listed else ""
            )
            what = " and ".join(filter(None, (decides, argument)))
            fits = f"import those that fit one value of {'it' if one else 'each'}"
            yield f"{' and '.join(names)} {what}; {fits if shown else 'give them the same value'}"


def _bare(test: nodes.Expr, defaults: Mapping[str, str]) -> bool:
    given = {path: defaults.get(path) for path in paths_in(test)}
    held = {path: UNDEFINED if value is None else nodes.Const(value) for path, value in given.items()}
    return decided(Values(held).condition(test)) is True


def _inside(path: str, above: list[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in above)


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")
