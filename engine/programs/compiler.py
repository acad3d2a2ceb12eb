"""From the source of a program to its tree: statements become text, modules and unions; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

from engine.pml import NAME, RESERVED, RoleName
from engine.pml.entities import forbidden_character
from engine.pml.names import NAME_RULE
from engine.pml.sources import SourceError, Sources
from engine.programs.calls import bind_call
from engine.programs.expressions import (
    Comparison,
    Const,
    Expr,
    Join,
    Logic,
    Ref,
    describe,
    references,
    text_of,
)
from engine.programs.naming import legible, unique
from engine.programs.outline import Compiled, ModuleNode, NewTurn, Node, Say, Turn, UnionNode
from engine.programs.scopes import Definition
from engine.programs.statements import (
    Branch,
    Frame,
    LocalFunction,
    callee_frame,
    chain,
    line_of,
    method_of,
    statements_of,
    turn_of,
)

MAX_DEPTH: Final = 100
"""How deep programs may call one another and blocks may nest."""

_ALWAYS: Final = Const(True)


def compile_program(definition: Definition, name: str, scaffolds: tuple[tuple[str, ...], ...]) -> Compiled:
    """Compiles a function.

    Args:
        definition: the function.
        name: name of its schema.
        scaffolds: modules that are encoded together, as paths.

    Raises:
        ProgramError: something in it has no counterpart in a schema; the error names the line.
    """
    node = definition.node
    docstring = ast.get_docstring(node)
    explicit = any(turn_of(inner, "") for inner in ast.walk(node))
    opened: RoleName | None = "user" if docstring is not None and not explicit else None
    frame = Frame.of(definition, place="turn" if opened else "schema", role=opened)
    compiler = _Compiler(explicit)
    recorder, parameters = frame.signature.read(node)
    frame.names.update({one.name: Ref(one) for one in parameters})
    frame = replace(frame, recorder=recorder)
    if docstring is not None:
        bad = forbidden_character(docstring)
        if bad is not None:
            raise frame.fault(node.body[0], f"{bad!r} may stand in no document; remove it")
    try:
        body = compiler.block(statements_of(node), frame)
    except RecursionError:
        raise frame.fault(node, f"{node.name} is nested too deep to be compiled; flatten it") from None
    return Compiled(name, parameters, tuple(body), tuple(compiler.tail), scaffolds, opened, docstring)


class _Compiler:
    """Compiles statements; collects the new text at the end."""

    def __init__(self, turns: bool) -> None:
        self._turns = turns
        self._sources = Sources()
        self.tail: list[NewTurn] = []

    def block(self, statements: list[ast.stmt], frame: Frame) -> list[Node]:
        """The nodes of the statements of one block."""
        if frame.depth > MAX_DEPTH:
            raise frame.fault(statements[0], f"this is nested more than {MAX_DEPTH} deep; flatten it")
        nodes: list[Node] = []
        for statement in statements:
            for node in self._statement(statement, frame):
                if isinstance(node, Say) and nodes and isinstance(nodes[-1], Say):
                    nodes[-1] = Say(nodes[-1].parts + node.parts)
                else:
                    nodes.append(node)
        return nodes

    def _statement(self, node: ast.stmt, frame: Frame) -> Iterator[Node]:
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return
            case ast.FunctionDef():
                frame.names[node.name] = LocalFunction(node, frame)
                return
            case (
                ast.Assign(targets=[ast.Name() as target], value=value)
                | ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value)
            ):
                self._assign(target, value, frame)
                return
            case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "text")) as call):
                if name == frame.recorder:
                    yield from self._text(call, frame)
                    return
        if self.tail and not turn_of(node, frame.recorder):
            raise frame.fault(node, "after the new words of a prompt only text can follow; move this up")
        match node:
            case ast.With():
                yield from self._with(node, frame)
            case ast.If():
                yield from self._if(node, frame)
            case ast.Match():
                yield self._union(self._cases(node, frame), None, frame)
            case ast.Expr(value=ast.Call() as call):
                yield self._call(call, frame)
            case _:
                what = ast.unparse(node).partition("\n")[0]
                message = (
                    f"{what[:60]!r} cannot be compiled; a program consists of text, if, match, with, names "
                    "that are set once, and calls of other programs"
                )
                raise frame.fault(node, message)

    def _assign(self, target: ast.Name, value: ast.expr, frame: Frame) -> None:
        if target.id in frame.names or target.id == frame.recorder:
            message = f"{target.id} has a value already; a name is set once, so take another one"
            raise frame.fault(target, message)
        frame.names[target.id] = frame.reader.read(value, frame.values)

    # Text

    def _text(self, call: ast.Call, frame: Frame) -> Iterator[Node]:
        parts: list[Expr] = []
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                raise frame.fault(argument, "* cannot be compiled; write each part of the text")
            value = frame.reader.read_text(argument, frame.values)
            parts.extend(value.parts if isinstance(value, Join) else (value,))
        end = "\n"
        for keyword in call.keywords:
            if keyword.arg != "end":
                raise frame.fault(keyword, f"text has no option {keyword.arg}; it has end")
            end = frame.reader.constant(keyword.value, "the end of a text", frame.values)
            if not isinstance(end, str):
                raise frame.fault(keyword, 'the end of a text is text; write end=""')
        parts.append(Const(end))
        parts = [Const(text_of(one.value)) if isinstance(one, Const) else one for one in parts]
        for part in parts:
            bad = forbidden_character(part.value) if isinstance(part, Const) else None
            if bad is not None:
                raise frame.fault(call, f"{bad!r} may stand in no document; remove it")
        if self.tail:
            self._more_new_words(call, parts, frame)
            return
        new = next((i for i, one in enumerate(parts) if isinstance(one, Ref) and one.arg is None), None)
        if new is not None:
            self._check_new_words(call, parts[new], frame)
            self.tail.append(NewTurn(None, tuple(parts[new:])))
            parts = parts[:new]
        yield from self._say(call, tuple(part for part in parts if part != Const("")), frame)

    def _say(self, node: ast.AST, parts: tuple[Expr, ...], frame: Frame) -> Iterator[Node]:
        """Text with a parameter outside of modules becomes a module, named after the parameter."""
        slot = next((part for part in parts if isinstance(part, Ref)), None)
        if frame.place == "module" or slot is None:
            if parts:
                yield Say(parts)
            return
        name = unique(legible(slot.name or slot.parameter.name), frame.taken, line_of(node))
        yield ModuleNode(name, _ALWAYS, (Say(parts),))

    def _check_new_words(self, node: ast.AST, part: Expr, frame: Frame) -> None:
        name = part.parameter.name if isinstance(part, Ref) else ""
        remedy = f"give it a length, {name}: Arg[50], or move it to the end"
        if frame.place == "module":
            message = f"{name} is text of any length, which belongs to no module; {remedy}"
            raise frame.fault(node, message)
        if frame.place == "turn" and frame.role != "user":
            message = f"{name} is text of any length, which a prompt adds to the turn of the user; {remedy}"
            raise frame.fault(node, message)
        if frame.place == "schema" and self._turns:
            message = f"{name} stands in no turn; write it under with {frame.recorder}.user():"
            raise frame.fault(node, message)

    def _more_new_words(self, node: ast.AST, parts: list[Expr], frame: Frame) -> None:
        if frame.place == "schema" and self._turns:
            raise frame.fault(
                node, f"this text stands in no turn; write it under with {frame.recorder}.user():"
            )
        last = self.tail[-1]
        self.tail[-1] = NewTurn(last.role, last.parts + tuple(parts))

    # Modules

    def _with(self, node: ast.With, frame: Frame) -> Iterator[Node]:
        role = turn_of(node, frame.recorder)
        if role is not None:
            yield from self._turn(node, role, frame)
            return
        method = method_of(node, frame.recorder)
        if method == "module":
            yield self._branch(_ALWAYS, node, [node], "", frame)
        elif method == "union":
            yield self._explicit_union(node, frame)
        else:
            p = frame.recorder
            message = (
                f"after with comes {p}.system(), {p}.user(), {p}.assistant(), {p}.module(…), or {p}.union(…)"
            )
            raise frame.fault(node, message)

    def _turn(self, node: ast.With, role: RoleName, frame: Frame) -> Iterator[Node]:
        if frame.place != "schema":
            where = "a module" if frame.place == "module" else "a turn"
            message = f"a turn cannot stand in {where}; put what depends on a condition into the turn"
            raise frame.fault(node, message)
        call = cast(ast.Call, node.items[0].context_expr)
        if call.args or call.keywords or node.items[0].optional_vars:
            raise frame.fault(node, f"write with {frame.recorder}.{role}():")
        new = self._begins_with_new_words(node, frame)
        if self.tail and (not new and not self.tail[-1].role):
            message = "no turn of the schema can follow the new words of a prompt; move it up"
            raise frame.fault(node, message)
        if new or self.tail:
            self.tail.append(NewTurn(role, ()))
            inner = replace(frame, place="turn", role=role, depth=frame.depth + 1)
            if self.block(list(node.body), inner):
                raise frame.fault(node, "a turn that begins with new words holds text only")
            return
        inner = replace(frame, place="turn", role=role, depth=frame.depth + 1)
        yield Turn(role, tuple(self.block(list(node.body), inner)))

    def _begins_with_new_words(self, node: ast.With, frame: Frame) -> bool:
        """Whether the first thing in a turn is text of any length, so that the prompt adds the whole turn."""
        match node.body[0]:
            case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "text"), args=[first, *_])):
                if name == frame.recorder and not isinstance(first, ast.Starred):
                    found = next(references(frame.reader.read_text(first, frame.values)), None)
                    return found is not None and found.arg is None
        return False

    def _explicit_union(self, node: ast.With, frame: Frame) -> Node:
        options = self._options(node, frame, ("scaffold",))
        scaffold = options.get("scaffold")
        if scaffold is not None and not isinstance(scaffold, str):
            raise frame.fault(node, "the scaffold of a union is the name of one of its modules")
        body = [one for one in node.body if not isinstance(one, ast.Pass)]
        match body:
            case []:
                return UnionNode((), scaffold)
            case [ast.If() as inner]:
                return self._union(chain(inner), scaffold, frame)
            case [ast.Match() as inner]:
                return self._union(self._cases(inner, frame), scaffold, frame)
        raise frame.fault(node, "a union holds one if with its elif and else, or one match")

    def _if(self, node: ast.If, frame: Frame) -> Iterator[Node]:
        kept: list[Branch] = []
        for branch in chain(node):
            condition = self._condition(branch, frame)
            if isinstance(condition, Const) and not condition.value:
                continue
            kept.append(replace(branch, condition=condition))
            if isinstance(condition, Const):
                break
        if kept and isinstance(kept[0].condition, Const):
            yield from self.block(kept[0].body, replace(frame, depth=frame.depth + 1))
        elif len(kept) == 1:
            yield self._branch(kept[0].condition, kept[0].node, kept[0].body, kept[0].name(), frame)
        elif kept:
            yield self._union(tuple(kept), None, frame)

    def _condition(self, branch: Branch, frame: Frame) -> Expr:
        if branch.condition is not None:
            return branch.condition
        return _ALWAYS if branch.test is None else frame.reader.read(branch.test, frame.values)

    def _union(self, branches: tuple[Branch, ...], scaffold: str | None, frame: Frame) -> Node:
        members = []
        read = [replace(one, condition=self._condition(one, frame)) for one in branches]
        for place, one in enumerate(read):
            name = one.name()
            if one.test is None and not one.case:
                first = read[0].condition
                name = f"not-{describe(first)}" if place == 1 and len(read) == 2 and first else "otherwise"
            members.append(self._branch(one.condition, one.node, one.body, name, frame))
        return UnionNode(tuple(members), scaffold)

    def _cases(self, node: ast.Match, frame: Frame) -> tuple[Branch, ...]:
        subject = frame.reader.read(node.subject, frame.values)
        found = []
        for case in node.cases:
            condition, name = self._pattern(case.pattern, subject, frame)
            if case.guard is not None:
                guard = frame.reader.read(case.guard, frame.values)
                condition, name = Logic("and", (condition, guard)), f"{name}-and-{describe(guard)}"
            found.append(Branch(case.pattern, None, case.body, condition, name))
        return tuple(found)

    def _pattern(self, node: ast.pattern, subject: Expr, frame: Frame) -> tuple[Expr, str]:
        """The condition of a pattern, and the words its module is named by."""
        match node:
            case ast.MatchValue(value=value):
                constant = frame.reader.constant(value, "what a case names", frame.values)
                condition = Comparison("==", subject, Const(constant))
                return condition, describe(condition)
            case ast.MatchSingleton(value=constant):
                condition = Comparison("is", subject, Const(constant))
                return condition, describe(condition)
            case ast.MatchOr(patterns=patterns):
                read = [self._pattern(one, subject, frame) for one in patterns]
                return Logic("or", tuple(one for one, _ in read)), "-or-".join(name for _, name in read)
            case ast.MatchAs(pattern=None, name=None):
                return _ALWAYS, "otherwise"
        raise frame.fault(node, "a case names a value, several with |, or _ for all others")

    def _branch(
        self, condition: Expr | None, node: ast.AST, statements: list[ast.stmt], words: str, frame: Frame
    ) -> ModuleNode:
        """A module; one `with p.module(…)` as all that a branch holds names the branch's own module."""
        inner = [one for one in statements if not isinstance(one, ast.Pass)]
        if self.tail:
            raise frame.fault(node, "no module can follow the new words of a prompt; move it up")
        options: dict[str, Any] = {}
        body = statements
        match inner:
            case [ast.With() as only] if method_of(only, frame.recorder) == "module":
                options = self._options(only, frame, ("name", "cache", "src"))
                node, body = only, only.body
        cache, src = options.get("cache", True), options.get("src")
        if not isinstance(cache, bool):
            raise frame.fault(node, "cache is True or False")
        name = self._module_name(options.get("name"), words, node, frame)
        within: tuple[Node, ...]
        if src is not None:
            within = self._included(src, body, node, frame)
        else:
            within = tuple(self.block(list(body), frame.inside()))
        return ModuleNode(name, condition or _ALWAYS, within, cache, src)

    def _module_name(self, given: Any, words: str, node: ast.AST, frame: Frame) -> str:
        if given is None:
            return unique(legible(words), frame.taken, line_of(node))
        if not isinstance(given, str) or not NAME.fullmatch(given):
            raise frame.fault(node, f"{given!r} is no name of a module; {NAME_RULE}")
        if given in RESERVED:
            raise frame.fault(node, f"{given!r} is a word of the language; take another name")
        if given in frame.taken:
            line = frame.taken[given]
            raise frame.fault(node, f"{given!r} already names the module of line {line}; take another name")
        frame.taken[given] = line_of(node)
        return given

    def _included(self, src: Any, body: list[ast.stmt], node: ast.AST, frame: Frame) -> tuple[Node, ...]:
        match body:
            case [
                ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "include"), args=[], keywords=[]))
            ]:
                if name == frame.recorder and isinstance(src, str):
                    try:
                        text = self._sources.read(src, frame.definition.base)
                    except SourceError as error:
                        raise frame.fault(node, str(error)) from None
                    return (Say((Const(text),)),) if text else ()
        p = frame.recorder
        raise frame.fault(node, f"a module with src holds the text of that file; write {p}.include() in it")

    def _options(self, node: ast.With, frame: Frame, known: tuple[str, ...]) -> dict[str, Any]:
        """The arguments of `p.module(…)` or `p.union(…)`; only the name of a module goes without its key."""
        call = cast(ast.Call, node.items[0].context_expr)
        options: dict[str, Any] = {}
        if len(call.args) > (1 if "name" in known else 0):
            raise frame.fault(call, f"give {', '.join(known)} by their names")
        pairs = [("name", one) for one in call.args] + [(one.arg or "**", one.value) for one in call.keywords]
        for key, value in pairs:
            if key not in known or key in options:
                raise frame.fault(value, f"{key} is not to be given here; there is {', '.join(known)}")
            options[key] = frame.reader.constant(value, key, frame.values)
        if "name" in known and "name" not in options:
            raise frame.fault(call, f'the module has no name; write {frame.recorder}.module("…")')
        return options

    # Calls

    def _call(self, call: ast.Call, frame: Frame) -> Node:
        callee = self._callee(call, frame)
        first = call.args[0] if call.args else None
        if not (isinstance(first, ast.Name) and first.id == frame.recorder):
            name = ast.unparse(call.func)
            message = f"{name} writes with the recorder; write {name}({frame.recorder}, …)"
            raise frame.fault(call, message)
        inner = callee_frame(callee, frame)
        node = inner.definition.node
        if node in frame.calls:
            raise frame.fault(call, f"{node.name} would call itself without end; a schema is finite")
        if len(frame.calls) > MAX_DEPTH:
            raise frame.fault(call, f"programs call one another more than {MAX_DEPTH} deep")
        recorder, parameters = inner.signature.read(node)
        bound = bind_call(call, parameters, frame.reader, frame.values, frame.fault)
        inner.names.update(bound)
        inner = replace(inner, recorder=recorder, calls=(*frame.calls, node))
        name = unique(legible(node.name), frame.taken, call.lineno)
        return ModuleNode(name, _ALWAYS, tuple(self.block(statements_of(node), inner)))

    def _callee(self, call: ast.Call, frame: Frame) -> LocalFunction | Definition:
        found: Any = None
        match call.func:
            case ast.Name(id=name):
                found = frame.names[name] if name in frame.names else frame.reader.name(call.func)
            case ast.Attribute(value=ast.Name() as owner, attr=attribute) if owner.id not in frame.names:
                found = None
                if owner.id != frame.recorder:
                    found = getattr(frame.reader.name(owner), attribute, None)
        definition = getattr(found, "definition", None)
        if isinstance(found, LocalFunction):
            return found
        if isinstance(definition, Definition):
            return definition
        what = ast.unparse(call.func)
        message = f"{what} is no program, so this call cannot be compiled; give it the decorator @schema"
        if what.startswith(f"{frame.recorder}."):
            p = frame.recorder
            message = f"{what}(…) is no statement of a program; there is {p}.text(…), and with {p}.module(…):"
        raise frame.fault(call, message)
