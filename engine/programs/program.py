"""A Python function as a schema and its prompts."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, overload

from engine.pml import NAME, Prompt, Schema
from engine.pml.edit.writer import WriteError, require_document, write_schema
from engine.pml.tree.conversation import Message
from engine.pml.xml.names import NAME_RULE, PATH
from engine.programs.build import build_prompt, build_schema
from engine.programs.compile.compiler import compile_program
from engine.programs.compile.naming import legible
from engine.programs.compile.outline import Compiled
from engine.programs.schema_endings import has_seams
from engine.programs.source.errors import ProgramArgumentError, ProgramError
from engine.programs.source.objects import MISSING, Bindable, Defaults
from engine.programs.source.parameters import Parameter, complete
from engine.programs.source.program_files import Decorated, ProgramFile
from engine.programs.source.scopes import Definition, definition_of
from engine.programs.writer_api import Recorder

# arguments of `schema` as a decorator
Decorable: TypeAlias = "types.FunctionType | staticmethod[..., Any] | classmethod[Any, ..., Any]"

# modules that are encoded together: each entry has several paths, in a list or separated by spaces
Scaffolds = Iterable[str | Iterable[str]]


class Program(Bindable):
    """A function decorated with `schema`. It is compiled at its first use.

    A call returns a prompt. A call with the recorder of another program makes it a module of that one. In a
    class it is a method: attributes of its object are constants of the program.

    Args:
        definition: finds the function's source.
        function: the function; None if its file is not run.
        name: name of the schema; None for the function's name.
        scaffolds: modules that are encoded together.
    """

    def __init__(
        self,
        definition: Callable[[], Definition],
        function: Callable[..., Any] | None,
        name: str | None = None,
        scaffolds: Any = (),
    ) -> None:
        self._find = definition
        self._function = function
        self._name = name
        self._scaffolds = scaffolds
        if function is not None:
            functools.update_wrapper(self, function)

    @cached_property
    def definition(self) -> Definition:
        """The function's source.

        Raises:
            ProgramError: there is no source.
        """
        return self._find()

    def __get__(self, instance: object, owner: type | None = None) -> Program:
        """Returns the program of an object, or of its class."""
        return self.of(owner if instance is None else instance)

    def of(self, receiver: Any) -> Program:
        """Returns the program as a method of an object or class; unchanged outside of classes."""
        above = getattr(self._function, "__qualname__", "").rpartition(".")[0]
        if self._function is None:
            above = self.definition.owner
        if not above or above.endswith("<locals>"):
            return self
        return Program(lambda: self.definition.of(receiver), self._function, self._name, self._scaffolds)

    @cached_property
    def _compiled(self) -> Compiled:
        definition = self.definition
        name: Any = legible(definition.node.name) if self._name is None else self._name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise definition.fault(definition.node, f"{name!r} cannot name a schema: {NAME_RULE}")
        return compile_program(definition, name, self._read_scaffolds(definition))

    def _read_scaffolds(self, definition: Definition) -> tuple[tuple[str, ...], ...]:
        scaffolds: list[tuple[str, ...]] = []
        message = 'scaffolds must be a list such as ["trip-plan trip-plan/overseas"]'
        if isinstance(self._scaffolds, str) or not isinstance(self._scaffolds, Iterable):
            raise definition.fault(definition.node, message)
        for entry in self._scaffolds:
            paths = tuple(PATH.findall(entry) if isinstance(entry, str) else entry)
            if not all(isinstance(path, str) for path in paths):
                raise definition.fault(definition.node, message)
            scaffolds.append(paths)
        return tuple(scaffolds)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a call.

        Raises:
            ProgramError: the program cannot be compiled.
        """
        return self._compiled.parameters

    @cached_property
    def _schema(self) -> Schema:
        compiled = self._compiled
        try:
            schema = build_schema(compiled)
        except RecursionError:
            definition = self.definition
            raise definition.fault(definition.node, "the schema is nested too deep; flatten it") from None
        except ProgramError as error:
            raise self.definition.fault(self.definition.node, str(error)) from None
        if has_seams(schema):
            self._check_seams(schema)
        for scaffold in schema.scaffolds:
            for path in scaffold.modules:
                if schema.module(path) is None:
                    node = self.definition.node
                    raise self.definition.fault(
                        node, f"a scaffold contains {path!r}, which is not the path of a module"
                    )
        return schema

    def _check_seams(self, schema: Schema) -> None:
        """Checks that a document can represent the texts next to separators."""
        try:
            require_document(schema)
        except WriteError:
            definition = self.definition
            message = (
                "a text next to a separator begins or ends with white space, which no document can have; "
                'write end="" and use p.seam(); all branches of a choice need the same separator'
            )
            raise definition.fault(definition.node, message) from None

    def schema(self) -> Schema:
        """Returns the schema of the program.

        Raises:
            ProgramError: a statement has no counterpart in a schema; the error names the line.
        """
        return self._schema

    def source(self) -> str:
        """Returns the schema as a PML document.

        Raises:
            ProgramError: a statement has no counterpart in a schema.
            WriteError: the schema is too deep or too large for a document.
        """
        return write_schema(self.schema())

    @overload
    def __call__(self, recorder: Recorder, /, *args: Any, **arguments: Any) -> None: ...

    @overload
    def __call__(self, /, *args: Any, **arguments: Any) -> Prompt: ...

    def __call__(self, /, *args: Any, **arguments: Any) -> Prompt | None:
        """Returns the prompt for some arguments; with a recorder first, writes the text of the program.

        Raises:
            ProgramArgumentError: an argument is unknown, missing, or of the wrong kind.
            ProgramError: the program cannot be compiled.
        """
        if args and isinstance(args[0], Recorder):
            self._run(*args, **arguments)
            return None
        return build_prompt(self._compiled, self._values(args, arguments))

    def messages(self, /, *args: Any, **arguments: Any) -> tuple[Message, ...]:
        """Runs the function and returns its output as the turns of a conversation.

        The prompt for the same arguments, bound to the schema, has the same turns.

        Raises:
            ProgramArgumentError: an argument is unknown, missing, or of the wrong kind.
            ProgramError: the program cannot be compiled, or its file is not run.
        """
        compiled = self._compiled
        recorder = Recorder(compiled.opened, self.definition.base)
        self._run(recorder, **self._values(args, arguments))
        system = () if compiled.system is None else (Message("system", compiled.system),)
        return system + recorder.messages()

    def text(self, /, *args: Any, **arguments: Any) -> str:
        """Runs the function and returns its output, with turns concatenated.

        Raises:
            ProgramArgumentError: an argument is unknown, missing, or of the wrong kind.
            ProgramError: the program cannot be compiled, or its file is not run.
        """
        return "".join(message.text for message in self.messages(*args, **arguments))

    def _run(self, /, *args: Any, **arguments: Any) -> None:
        if self._function is None:
            raise ProgramError("this program was read from a file that is not run; import it to run it")
        definition = self.definition
        receiver = definition.receiver
        if definition.takes_receiver:
            if receiver is MISSING or isinstance(receiver, Defaults):
                name = definition.name
                message = f"{name} is a method, so it needs an object; write {definition.owner}(…)"
                raise ProgramError(f"{message}.{definition.node.name}")
            args = (receiver, *args)
        done = self._function(*args, **arguments)
        if definition.waits:
            _finish(done)

    def _values(self, args: tuple[Any, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
        parameters, name = self.parameters, self.definition.node.name
        if len(args) > len(parameters):
            raise ProgramArgumentError(f"{name} takes {len(parameters)} arguments but got {len(args)}")
        values = dict(zip((parameter.name for parameter in parameters), args, strict=False))
        for twice in values.keys() & arguments.keys():
            raise ProgramArgumentError(f"{name} got {twice} twice; give it once")
        return complete(name, parameters, values | dict(arguments))


@overload
def schema(name: Decorable, /) -> Program: ...


@overload
def schema(name: str | None = None, *, scaffolds: Scaffolds = ()) -> Callable[[Decorable], Program]: ...


def schema(
    name: Decorable | str | None = None, *, scaffolds: Scaffolds = ()
) -> Program | Callable[[Decorable], Program]:
    """Makes a function a program: `@schema`, or `@schema("travel")` with another name."""
    if isinstance(name, (types.FunctionType, staticmethod, classmethod)):
        return schema()(name)

    def decorate(decorated: Decorable) -> Program:
        function: Any = decorated if isinstance(decorated, types.FunctionType) else decorated.__func__
        return Program(lambda: definition_of(function), function, name, scaffolds)

    return decorate


def compile_source(
    source: str, filename: str = "program.py", *, name: str | None = None, base: Path | None = None
) -> Program:
    """Returns the program in a Python file, without running it.

    Args:
        source: the text of the file.
        filename: its name, for messages.
        name: the function; by default the last program.
        base: the folder of modules with `src`.

    Raises:
        ProgramError: the file is not Python or has no such program. Errors in the program itself are raised
            at its first use.
    """

    def wrap(found: Decorated) -> Program:
        return Program(lambda: found.definition, None, found.name, found.scaffolds)

    modules: dict[str, types.ModuleType] = {"engine.programs": sys.modules["engine.programs"]}
    file = ProgramFile(source, filename, base, modules, schema, wrap)
    programs: list[Program] = file.programs
    if name is not None:
        programs = [item for item in programs if name in (item.definition.node.name, item.definition.name)]
    if programs:
        return programs[-1]
    wanted = f"no program {name}" if name else "no program"
    message = f"there is {wanted}; begin a function with @schema from engine.programs"
    hidden = file.hidden()
    if hidden is not None:
        function, line = hidden
        message = (
            f"{function} (line {line}) is not a readable program: @schema must be imported from "
            "engine.programs, and the function must be at the top level of the file or in a top-level class"
        )
    elif name and file.programs:
        listed = ", ".join(item.definition.name for item in file.programs)
        message = f"there is {wanted}; the file has {listed}"
    raise ProgramError(f"{Path(filename).name}: {message}")


def _finish(running: Coroutine[Any, Any, Any]) -> None:
    """Runs an `async` function without pending awaits."""
    try:
        running.send(None)
    except StopIteration:
        return
    finally:
        running.close()
    raise ProgramError("an async program cannot await; remove await")
