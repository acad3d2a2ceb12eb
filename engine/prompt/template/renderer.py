"""Renders a model's chat template within limits of time and size.

A template comes with a model and is an untrusted program. The sandbox of jinja2 blocks access to files and to
Python, and `engine.prompt.template.budget` limits time and size. Every loop step and every new text or list
counts. Needs neither tokenizers nor schemas.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from engine.base.errors import PromptCacheError
from engine.prompt.conversation.tools import characters
from engine.prompt.template import budget as budgets
from engine.prompt.template.budget import (
    Budget,
    SharedTime,
    TemplateError,
    TemplateLimitError,
)
from engine.prompt.template.thinking import Thinking

MAX_SOURCE = 100_000  # characters of a template
_MAX_NUMBER = 100_000
_STEP = 10  # characters per loop step
_TEXT_METHODS = frozenset(
    re.findall(
        r"\w+",
        "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower "
        "isidentifier isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix "
        "removesuffix rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase "
        "title upper center ljust rjust zfill replace join",
    )
)
_UNBOUNDED_FILTERS = (
    "filesizeformat",
    "pprint",
    "random",
    "striptags",
    "urlize",
    "wordwrap",
    "xmlattr",
)


class ChatTemplate:
    """One chat template, compiled; `variables` holds the special tokens by their roles.

    Raises:
        TemplateError: it is invalid Jinja, or too long.
    """

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateLimitError(
                f"it has {len(source):,} characters, and at most {MAX_SOURCE:,} are read"
            )
        self._variables = dict(variables)
        self._environment = _Environment()
        self._source = source
        with self._environment.bounded(0):
            try:
                self._template = self._environment.from_string(source)
            except TemplateError:
                raise
            except Exception as error:  # jinja2 and Python's compiler each raise their own
                raise TemplateError(f"it cannot be read: {_words(error)}") from error

    @cached_property
    def words(self) -> frozenset[str]:
        """Returns the texts that the template may compare contents with."""
        consts = self._environment.parse(self._source).find_all(nodes.Const)
        return frozenset(const.value for const in consts if isinstance(const.value, str))

    @cached_property
    def thinking(self) -> Thinking:
        """Returns what the template says of reasoning."""
        names = meta.find_undeclared_variables(self._environment.parse(self._source))
        return Thinking.of(self._source, names)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Makes all renderings of this thread in this context share the time of one rendering.

        Raises:
            TemplateTimeError: on exit, if they took longer; their results must not be used, even if the
                caller ignored a rendering's own error.
        """
        with self._environment.sharing() as shared:
            try:
                yield
            except PromptCacheError:
                if not shared.over or shared.renderings < 2:
                    raise
        if shared.over:
            raise shared.error()

    def render(
        self,
        messages: Sequence[Any],
        *,
        invite: bool,
        today: datetime.date,
        tools: Sequence[Any] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the text of a conversation, with the invitation for the assistant if `invite`.

        `variables` adds other template variables by name, such as `enable_thinking`.

        Raises:
            TemplateError: the template refuses the messages, or exceeds a limit.
        """
        size = characters((messages, tools))
        context = {
            **self._variables,
            "documents": None,
            "strftime_now": datetime.datetime.combine(today, datetime.time()).strftime,
            **(variables or {}),
            "messages": [dict(message) for message in messages],
            "tools": [*tools] or None,
            "add_generation_prompt": invite,
        }
        pieces: list[str] = []
        with self._environment.bounded(size) as budget:
            try:
                for piece in self._template.generate(**context):
                    budget.text(piece)
                    pieces.append(piece)
            except TemplateError:
                raise
            except RecursionError as error:
                raise TemplateLimitError("its macros call themselves endlessly") from error
            except Exception as error:  # templates may raise anything
                raise TemplateError(_words(error)) from error
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    """The transformers environment for templates, with a budget."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], optimized=False
        )
        self._thread = threading.local()
        for name in _UNBOUNDED_FILTERS:
            del self.filters[name]
        self.filters |= {"tojson": _tojson}
        self.filters = {name: _counted(self, name, made) for name, made in self.filters.items()}
        self.filters |= {"(loop)": self.loop, "(value)": self.value, "(join)": self.concat}
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise, "dict": _Dict(), "namespace": _namespace(self)}

    def bounded(self, size: int) -> _Bounded:
        """Returns a budget for messages of `size` characters in this thread.

        Raises:
            TemplateTimeError: the time shared with other renderings is over.
        """
        shared: SharedTime | None = getattr(self._thread, "shared", None)
        if shared is not None:
            shared.renderings += 1
            if shared.over:
                raise shared.error()
        return _Bounded(self._thread, Budget(size, shared))

    @contextlib.contextmanager
    def sharing(self) -> Iterator[SharedTime]:
        """Shares one time limit among all renderings of this thread."""
        self._thread.shared = SharedTime()
        try:
            yield self._thread.shared
        finally:
            del self._thread.shared

    @property
    def budget(self) -> Budget:
        budget: Budget = self._thread.budget
        return budget

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        made: str = super()._generate(_Marker().visit(source), *args, **kwargs)
        return made

    def loop(self, values: Any) -> Iterator[Any]:
        """Yields the values of a loop and counts each step."""
        for value in values:
            self.budget.spend(_STEP)
            yield value

    def value(self, value: Any) -> Any:
        return self.budget.weigh(value)

    def concat(self, parts: Iterable[Any]) -> str:
        texts = [part if isinstance(part, str) else str(part) for part in parts]
        self.budget.fits(sum(map(len, texts)))
        return self.budget.text("".join(texts))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The sandbox's `str.format`, which checks the size of the result first."""
        plain = super().wrap_str_format(value)
        if plain is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            _check_format(self.budget, value.__self__, "{", [*args, *kwargs.values()])
            return plain(*args, **kwargs)

        return formatted

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Evaluates an operator, and checks the size of the result first."""
        budget = self.budget
        if operator == "%" and isinstance(left, str):
            _check_format(budget, left, "%", [right])
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                    budget.fits(max(len(sequence), 1) * times)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > budgets.MAX_BITS:
                raise TemplateLimitError("it makes a number of thousands of digits")
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            budget.fits(len(left) + len(right))
        return budget.weigh(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        budget = __self.budget
        budget.spend(1)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, (str, bytes)):
            _check_method(budget, owner, getattr(__obj, "__name__", ""), args, kwargs)
        elif isinstance(__obj, LoopContext) and args:
            args = (__self.loop(args[0]), *args[1:])
        return budget.weigh(super().call(__context, __obj, *args, **kwargs))


class _Bounded:
    def __init__(self, thread: threading.local, budget: Budget) -> None:
        self._thread, self._budget = thread, budget

    def __enter__(self) -> Budget:
        self._thread.budget = self._budget
        return self._budget

    def __exit__(self, *error: object) -> None:
        del self._thread.budget


class _Marker(NodeTransformer):
    """Makes loops, lists, joined texts, slices and comparisons count, like calls, filters and operators."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For):
            node.iter = _filtered(node.iter, "(loop)")
        elif isinstance(node, nodes.Concat):
            return _filtered(nodes.Tuple(node.nodes, "load", lineno=node.lineno), "(join)")
        elif isinstance(node, nodes.Tuple):
            return _filtered(node, "(value)") if node.ctx == "load" else node
        elif isinstance(node, (nodes.Compare, nodes.List, nodes.Dict)) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            return _filtered(node, "(value)")
        return node


class _Generation(Extension):
    """The block by which transformers marks the assistant's words; renders its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_spoken"), [], [], body).set_lineno(line)

    def _spoken(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _namespace(environment: _Environment) -> type[Namespace]:
    class Counted(Namespace):
        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_") or isinstance(value, Namespace):
                raise jinja2.exceptions.SecurityError(f"a namespace cannot store {name!r}")
            super().__setitem__(name, environment.value(value))

    return Counted


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _counted(environment: _Environment, name: str, plain: Any) -> Any:
    """A filter that checks its arguments first and counts its result."""
    passed = getattr(plain, "jinja_pass_arg", None)

    def counted(*args: Any, **kwargs: Any) -> Any:
        budget = environment.budget
        budget.spend(1)
        _check_filter(budget, name, args[1:] if passed else args, kwargs)
        made = plain(*args, **kwargs)
        if isinstance(made, Iterator):
            made = list(environment.loop(made))
        return budget.weigh(made)

    if passed is not None:
        counted.jinja_pass_arg = passed  # type: ignore[attr-defined]
    return counted


def _check_filter(budget: Budget, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    value, rest = args[0] if args else "", [*args[1:], *kwargs.values()]
    if name in ("batch", "center", "indent", "round", "slice", "tojson"):
        _small_numbers(rest)
    if name == "sum" and any(not isinstance(item, (int, float, str)) for item in rest):
        raise TemplateLimitError("it adds lists up")
    if isinstance(value, str):
        if name == "indent":
            width = rest[0] if rest else 4
            budget.fits(
                len(value) + (value.count("\n") + 1) * (len(width) if isinstance(width, str) else width)
            )
        elif name == "replace":
            _check_method(budget, value, name, args[1:], kwargs)
        elif name == "format":
            _check_format(budget, value, "%", rest)
    if name == "join" and not isinstance(value, Iterator):
        glue = max((len(item) for item in rest if isinstance(item, str)), default=0)
        budget.fits(budget.weight(value) + glue * (len(value) if hasattr(value, "__len__") else 1))
    if name == "tojson" and rest:
        longest = max((len(str(item)) for item in rest if not isinstance(item, int)), default=0)
        widest = max((item for item in rest if isinstance(item, int)), default=0)
        budget.fits(budget.weight(value) * (1 + longest + budgets.MAX_DEPTH * widest // 8))


def _check_method(
    budget: Budget, text: str | bytes, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if isinstance(text, bytes) or name not in _TEXT_METHODS:
        raise TemplateLimitError(f"it calls {name!r} on a text, which no chat template needs")
    if name in ("center", "ljust", "rjust", "zfill"):
        _small_numbers(args)
    elif name == "replace":
        old, new, *_ = (*args, "", "")
        old, new = str(kwargs.get("old", old)), str(kwargs.get("new", new))
        budget.fits(len(text) + text.count(old) * len(new))
    elif name == "join" and args and hasattr(args[0], "__len__"):
        budget.fits(budget.weight(args[0]) + len(text) * len(args[0]))


def _check_format(budget: Budget, pattern: str, sign: str, values: Sequence[Any]) -> None:
    """Checks whether a filled pattern could be too large."""
    widths = sum(int(number[:12]) for number in re.findall(r"\d+", pattern))
    largest = max((budget.weight(value) for value in values), default=0)
    if re.search(r"%[^a-zA-Z%]*\*" if sign == "%" else r"{[^{}]*{", pattern):  # the values contain widths
        numbers = [abs(item) for value in values for item in _flat(value) if isinstance(item, int)]
        largest = max(largest, *numbers, 0)
    budget.fits(len(pattern) + widths + pattern.count(sign) * largest)


def _flat(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _small_numbers(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_NUMBER:
            raise TemplateLimitError(f"it asks for a width of {value:,}; at most {_MAX_NUMBER:,} are allowed")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: object) -> None:
    raise jinja2.exceptions.TemplateError(str(message))


def _words(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"
