"""Compiles the source of a program to a tree of text, modules and unions, without running it."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

from engine.pml import RoleName
from engine.pml.parse.sources import Sources
from engine.pml.xml.entities import forbidden_character
from engine.programs.compile.calls import bind_call, callee_of
from engine.programs.compile.modules import (
    begins_with_new_words,
    branches_of,
    included,
    module_name,
    options_of,
)
from engine.programs.compile.naming import legible, unique
from engine.programs.compile.outline import Compiled, ModuleNode, NewTurn, Node, Say, Turn, UnionNode
from engine.programs.compile.separators import add_node, checked_seam, module_of, seam_of
from engine.programs.compile.statements import (
    Bind,
    Branch,
    Frame,
    LocalFunction,
    LoopEnd,
    Rounds,
    Step,
    callee_frame,
    chain,
    entered,
    exits_of,
    leave,
    line_of,
    method_of,
    opposite,
    reach,
    statements_of,
    turn_of,
)
from engine.programs.source.constants import Budget, UncomputableError
from engine.programs.source.expressions import Const, Expr, Join, Logic, Not, Ref, text_of
from engine.programs.source.functions import Work
from engine.programs.source.refusals import refused_statement
from engine.programs.source.scopes import Definition

MAX_DEPTH: Final = 100  # depth of program calls and nested blocks

_ALWAYS: Final = Const(True)


def compile_program(definition: Definition, name: str, scaffolds: tuple[tuple[str, ...], ...]) -> Compiled:
    """Compiles a function to a schema with this name and these scaffolds, given as paths.

    Raises:
        ProgramError: a statement has no counterpart in a schema; the error names the line.
    """
    node = definition.node
    docstring = ast.get_docstring(node)
    explicit = any(turn_of(inner, "") for inner in ast.walk(node))
    opened: RoleName | None = "user" if docstring is not None and not explicit else None
    frame = Frame.of(definition, "turn" if opened else "schema", opened, Work(Budget.of(node)))
    compiler = _Compiler(explicit)
    recorder, parameters = frame.signature.read(definition)
    frame = entered(frame, recorder, {parameter.name: Ref(parameter) for parameter in parameters})
    if docstring is not None:
        bad = forbidden_character(docstring)
        if bad is not None:
            raise frame.fault(node.body[0], f"documents cannot contain {bad!r}; remove it")
    try:
        body, _ = compiler.block(statements_of(node), frame)
    except RecursionError:
        raise frame.fault(node, f"{node.name} is nested too deep to be compiled; flatten it") from None
    return Compiled(name, parameters, tuple(body), tuple(compiler.tail), scaffolds, opened, docstring)


class _Compiler:
    """Compiles statements, and collects the new text at the end."""

    def __init__(self, turns: bool) -> None:
        self._turns = turns
        self._sources = Sources()
        self.tail: list[NewTurn] = []

    def block(self, steps: Iterable[Step], frame: Frame) -> tuple[list[Node], ast.stmt | None]:
        """Returns the nodes of a block, and the statement that leaves the enclosing block, if any."""
        pending: deque[Step] = deque(steps)
        nodes: list[Node] = []
        while pending:
            step = pending.popleft()
            self._count(step, frame)
            match step:
                case LoopEnd():
                    continue
                case Rounds(_, items, at):
                    if at >= len(items):
                        pending.popleft()  # removes the end of the loop, which does not contain its `else`
                    pending.extendleft(reversed(step.steps()))
                    continue
                case Bind(target, value):
                    frame.reader.unpack(target, value, frame.names)
                    continue
                case ast.Return(value=None | ast.Constant(value=None)):
                    return nodes, step
                case ast.Break() | ast.Continue():
                    if not leave(pending, "loop" if isinstance(step, ast.Break) else "round"):
                        return nodes, step
                    continue
            for node in self._statement(step, frame, pending):
                add_node(nodes, node, step, frame)
        return nodes, None

    def _count(self, step: Step, frame: Frame) -> None:
        place = step if isinstance(step, ast.stmt) else frame.definition.node
        if frame.depth > MAX_DEPTH:
            raise frame.fault(place, f"this is nested more than {MAX_DEPTH} deep; flatten it")
        try:
            frame.reader.work.budget.step()
        except UncomputableError as reason:
            raise frame.fault(place, str(reason)) from None

    def _statement(self, node: ast.stmt, frame: Frame, pending: deque[Step]) -> Iterator[Node]:
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return
            case ast.FunctionDef():
                self._define(node, frame)
                return
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._assign(node, frame)
                return
            case ast.For():
                self._unroll(node, frame, pending)
                return
            case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "text")) as call):
                if name == frame.recorder:
                    yield from self._text(call, frame)
                    return
        if self.tail and not isinstance(node, ast.If) and not turn_of(node, frame.recorder):
            raise frame.fault(node, "only text can follow the new words of a prompt; move this up")
        match node:
            case ast.With():
                yield from self._with(node, frame, pending)
            case ast.If():
                yield from self._if(node, frame, pending)
            case ast.Match():
                yield from self._match(node, frame, pending)
            case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "seam")) as call):
                if name == frame.recorder:
                    yield seam_of(call, frame)
                else:
                    yield self._call(call, frame)
            case ast.Expr(value=ast.Call() as call):
                yield self._call(call, frame)
            case _:
                raise frame.fault(node, refused_statement(node, frame.recorder))

    def _define(self, node: ast.FunctionDef, frame: Frame) -> None:
        for decorator in node.decorator_list:
            head = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(head).rpartition(".")[2] != "schema":
                shown = ast.unparse(decorator)[:60]
                raise frame.fault(decorator, f"@{shown} would have to run; remove it from {node.name}")
        definition = frame.definition
        frame.names[node.name] = LocalFunction(
            node, frame.names, definition.look_up, definition.fault, frame=frame
        )

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, frame: Frame) -> None:
        if node.value is None:
            return
        if isinstance(node, ast.AugAssign):
            self._add(node, frame)
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        match targets, node.value:
            case [ast.Tuple(elts=names)], ast.Tuple(elts=values) if len(names) == len(values):
                read = [frame.reader.read(value, frame.names) for value in values]
                for name, item in zip(names, read, strict=True):
                    frame.reader.unpack(name, item, frame.names)
            case _:
                result = frame.reader.read(node.value, frame.names)
                for target in targets:
                    frame.reader.unpack(target, result, frame.names)

    def _add(self, node: ast.AugAssign, frame: Frame) -> None:
        """Compiles `text += more`, which sets the name again."""
        if not isinstance(node.target, ast.Name):
            shown = ast.unparse(node.target)[:60]
            raise frame.fault(node, f"{shown} cannot be changed, because values are constant; set a name")
        name = node.target.id
        old = frame.reader.read(ast.copy_location(ast.Name(name, ast.Load()), node), frame.names)
        kind = type(old.value).__name__ if isinstance(old, Const) else "str"
        if kind not in ("str", "int", "float", "bool", "tuple"):
            message = f"+= would change a {kind} in place, and values are constant"
            raise frame.fault(node, f"{message}; write {name} = {name} + …")
        added = frame.reader.read(node.value, frame.names)
        frame.names[name] = frame.reader.combine(node, node.op, old, added)

    def _unroll(self, node: ast.For, frame: Frame, pending: deque[Step]) -> None:
        """Inserts the rounds of a loop over constants before the statements after it."""
        items = frame.reader.items(node.iter, frame.names)
        pending.extendleft((LoopEnd("loop"), Rounds(node, items)))

    def _text(self, call: ast.Call, frame: Frame) -> Iterator[Node]:
        parts: list[Expr] = []
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                lines = frame.reader.items(argument.value, frame.names)
                values = [frame.reader.text_of_constant(argument, line) for line in lines]
                parts.extend(values)
                continue
            value = frame.reader.read_text(argument, frame.names)
            parts.extend(value.parts if isinstance(value, Join) else (value,))
        end = "\n"
        for keyword in call.keywords:
            if keyword.arg != "end":
                raise frame.fault(keyword, f"text has no option {keyword.arg}; use end")
            end = frame.reader.constant(keyword.value, "the end of a text", frame.names)
            if not isinstance(end, str):
                raise frame.fault(keyword, 'the end of a text must be text; write end=""')
        parts.append(Const(end))
        parts = [Const(text_of(piece.value)) if isinstance(piece, Const) else piece for piece in parts]
        for part in parts:
            bad = forbidden_character(part.value) if isinstance(part, Const) else None
            if bad is not None:
                raise frame.fault(call, f"documents cannot contain {bad!r}; remove it")
        if self.tail:
            self._more_new_words(call, parts, frame)
            return
        new = next((i for i, piece in enumerate(parts) if isinstance(piece, Ref) and piece.arg is None), None)
        if new is not None:
            self._check_new_words(call, parts[new], frame)
            self.tail.append(NewTurn(None, tuple(parts[new:])))
            parts = parts[:new]
        yield from self._say(call, tuple(part for part in parts if part != Const("")), frame)

    def _say(self, node: ast.AST, parts: tuple[Expr, ...], frame: Frame) -> Iterator[Node]:
        """Yields text; outside of modules, text with a parameter becomes a module named after it."""
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
            message = f"{name} is text of any length, which modules cannot contain; {remedy}"
            if frame.left:
                message = f"{name} is text of any length, which must end every prompt or none, but "
                remedy = f"give it a length, {name}: Arg[50], or put the skipped lines into an if"
                message = f"{message}line {frame.left} makes it conditional; {remedy}"
            raise frame.fault(node, message)
        if frame.place == "turn" and frame.role != "user":
            message = f"{name} is text of any length, which must be in the user's turn; {remedy}"
            raise frame.fault(node, message)
        if frame.place == "schema" and self._turns:
            message = f"{name} is outside a turn. Move it into the block `with {frame.recorder}.user():`"
            raise frame.fault(node, message)

    def _more_new_words(self, node: ast.AST, parts: list[Expr], frame: Frame) -> None:
        if frame.place == "schema" and self._turns:
            raise frame.fault(
                node, f"this text is outside a turn. Move it into the block `with {frame.recorder}.user():`"
            )
        last = self.tail[-1]
        self.tail[-1] = NewTurn(last.role, last.parts + tuple(parts))

    def _with(self, node: ast.With, frame: Frame, pending: deque[Step]) -> Iterator[Node]:
        p, role = frame.recorder, turn_of(node, frame.recorder)
        method = method_of(node, p)
        if node.items[0].optional_vars is not None or len(node.items) > 1:
            raise frame.fault(node, f"with takes one of {p}.… without as; write each on a separate line")
        leaving = None
        if role is not None:
            turn, leaving = self._turn(node, role, frame)
            yield from turn
        elif method == "module":
            module, leaving = self._branch(
                _ALWAYS, node, [node], "", frame, replace(frame.inside(), within=True)
            )
            yield module
        elif method == "union":
            yield self._explicit_union(node, frame)
        else:
            message = f"with needs {p}.system(), {p}.user(), {p}.assistant(), {p}.module(…), or {p}.union(…)"
            raise frame.fault(node, message)
        if leaving is not None:
            pending.appendleft(leaving)

    def _turn(self, node: ast.With, role: RoleName, frame: Frame) -> tuple[list[Node], ast.stmt | None]:
        if frame.place != "schema" and (frame.left or not frame.outermost):
            where = "a nested module" if frame.place == "module" else "a turn"
            message = f"a turn cannot be in {where}; put conditional content into the turn"
            if frame.left:
                message = f"line {frame.left} makes this turn conditional, but a schema has all of its turns"
                message = f"{message}; write an if within the turn instead of return"
            raise frame.fault(node, message)
        call = cast(ast.Call, node.items[0].context_expr)
        if call.args or call.keywords:
            raise frame.fault(node, f"write with {frame.recorder}.{role}():")
        new = not frame.outermost and begins_with_new_words(node, frame)
        if self.tail and (not new and not self.tail[-1].role):
            message = "turns of the schema cannot follow the new words of a prompt; move it up"
            raise frame.fault(node, message)
        inner = replace(frame, role=role, depth=frame.depth + 1, within=True, outermost=False)
        inner = replace(inner, place="module" if frame.outermost else "turn")
        if not new and not self.tail:
            body, leaving = self.block(node.body, inner)
            return [Turn(role, tuple(body))], leaving
        self.tail.append(NewTurn(role, ()))
        body, leaving = self.block(node.body, inner)
        if body:
            raise frame.fault(node, "a turn that begins with new words can contain only text")
        return [], leaving

    def _explicit_union(self, node: ast.With, frame: Frame) -> Node:
        options = options_of(node, frame, ("scaffold",))
        scaffold = options.get("scaffold")
        if scaffold is not None and not isinstance(scaffold, str):
            raise frame.fault(node, "the scaffold of a union must be the name of one of its modules")
        branches: tuple[Branch, ...]
        match [step for step in node.body if not isinstance(step, ast.Pass)]:
            case []:
                return UnionNode((), scaffold)
            case [ast.If() as inner]:
                read = [replace(step, condition=self._condition(step, frame)) for step in chain(inner)]
                branches = tuple(read)
            case [ast.Match() as inner]:
                branches = branches_of(inner, frame.reader.read(inner.subject, frame.names), frame)
            case _:
                raise frame.fault(node, "a union must contain one if with its elif and else, or one match")
        members = self._members(branches, replace(frame, within=True), deque())
        return UnionNode(tuple(members), scaffold)

    def _if(self, node: ast.If, frame: Frame, pending: deque[Step]) -> Iterator[Node]:
        branches: list[Branch] = []
        for branch in chain(node):
            condition = self._condition(branch, frame)
            if isinstance(condition, Const) and not condition.value:
                continue
            branches.append(replace(branch, condition=condition))
            if isinstance(condition, Const):
                break
        yield from self._choice(branches, frame, pending, False)

    def _match(self, node: ast.Match, frame: Frame, pending: deque[Step]) -> Iterator[Node]:
        subject = frame.reader.read(node.subject, frame.names)
        cases = list(branches_of(node, subject, frame))
        live = [one for one in cases if not isinstance(one.condition, Const) or one.condition.value]
        sure = next((place for place, one in enumerate(live) if isinstance(one.condition, Const)), len(live))
        yield from self._choice(live[: sure + 1], frame, pending, not isinstance(subject, Const))

    def _choice(
        self, branches: list[Branch], frame: Frame, pending: deque[Step], union: bool
    ) -> Iterator[Node]:
        """Yields a module or union; a choice with a constant condition is compiled in place."""
        if not branches:
            return
        if not union and isinstance(branches[0].condition, Const):
            pending.extendleft(reversed(branches[0].body))
            return
        if self.tail:
            raise frame.fault(
                branches[0].node, "only text can follow the new words of a prompt; move this up"
            )
        members = self._members(tuple(branches), frame, pending)
        if union or len(members) > 1:
            yield UnionNode(tuple(members))
        else:
            yield from members

    def _condition(self, branch: Branch, frame: Frame) -> Expr:
        if branch.condition is not None:
            return branch.condition
        return _ALWAYS if branch.test is None else frame.reader.read_condition(branch.test, frame.names)

    def _members(self, branches: tuple[Branch, ...], frame: Frame, pending: deque[Step]) -> list[ModuleNode]:
        """Returns the modules of some branches.

        If a branch may exit early, each module contains the statements after the choice.
        """
        exits = set[str]().union(*(exits_of(item.body) for item in branches))
        first = branches[0]
        rest = self._rest(exits, first.node, frame, pending)
        if exits and not isinstance(branches[-1].condition, Const):
            branches = (*branches, Branch(first.node, None, [], _ALWAYS))
        members: list[ModuleNode] = []
        left_by: list[Expr] = []
        frames: list[Frame] = []
        for place, item in enumerate(branches):
            condition, name = item.condition or _ALWAYS, item.name()
            if item.test is None and not item.case:
                name = "otherwise"
                if place == 1 and len(branches) == 2 and first.condition:
                    name = opposite(first.condition, bool(exits))
            inner = frame.branch()
            frames.append(replace(inner, left=line_of(first.node)) if exits else inner)
            module, leaving = self._branch(condition, item.node, [*item.body, *rest], name, frame, frames[-1])
            if isinstance(leaving, (ast.Break, ast.Continue)):
                raise frame.fault(leaving, "this leaves a loop from outside; write it in the loop")
            if exits and not module.body:
                left_by.append(Not(condition))
                continue
            if left_by:
                all_of = tuple(left_by) if condition == _ALWAYS else (*left_by, condition)
                module = replace(module, condition=all_of[0] if len(all_of) == 1 else Logic("and", all_of))
            members.append(module)
        for inner in frames:
            frame.merge(inner, line_of(first.node))
        return members

    def _rest(self, exits: set[str], node: ast.AST, frame: Frame, pending: deque[Step]) -> list[Step]:
        """Takes the statements after a choice with an early exit from `pending`."""
        if not exits:
            return []
        count = reach(exits, list(pending))
        every = exits | exits_of(list(pending)[:count])
        if count is None or (frame.within and "return" in every):
            statement = next(word for word in ("return", "break", "continue") if word in every)
            message = f"{statement} is conditional and leaves a with that every prompt has"
            raise frame.fault(node, f"{message}; write the rest of the with under else")
        frame.reader.work.budget.steps -= count + 20
        return [pending.popleft() for _ in range(count)]

    def _branch(
        self, condition: Expr, node: ast.AST, steps: list[Step], words: str, frame: Frame, within: Frame
    ) -> tuple[ModuleNode, ast.stmt | None]:
        """Compiles a branch to a module. A single `with p.module(…)` in the branch names that module."""
        inner = [step for step in steps if not isinstance(step, (ast.Pass, LoopEnd))]
        if self.tail:
            raise frame.fault(node, "modules cannot follow the new words of a prompt; move it up")
        options: dict[str, Any] = {}
        match inner:
            case [ast.With() as only] if method_of(only, frame.recorder) == "module" and len(only.items) == 1:
                options = options_of(only, frame, ("name", "cache", "src", "seam"))
                node, steps = only, list(only.body)
                within = replace(within, within=True)
        cache, src = options.get("cache", True), options.get("src")
        if not isinstance(cache, bool):
            raise frame.fault(node, "cache must be True or False")
        seam = checked_seam(options.get("seam", ""), node, frame)
        name = module_name(options.get("name"), words, node, frame)
        if src is not None:
            body = [step for step in steps if isinstance(step, ast.stmt)]
            text = included(src, body, node, frame, self._sources)
            return ModuleNode(name, condition, text, cache, src, seam), None
        nodes, leaving = self.block(steps, within)
        module = ModuleNode(name, condition, tuple(nodes), cache, src, seam)
        return module_of(module, node, frame), leaving

    def _call(self, call: ast.Call, frame: Frame) -> Node:
        callee = callee_of(call, frame)
        first = call.args[0] if call.args else None
        if not (isinstance(first, ast.Name) and first.id == frame.recorder):
            name = ast.unparse(call.func)
            message = f"{name} needs the recorder; write {name}({frame.recorder}, …)"
            raise frame.fault(call, message)
        inner = callee_frame(callee, frame)
        definition = inner.definition
        if definition.place in frame.calls:
            message = f"{definition.node.name} calls itself endlessly; a schema is finite"
            raise frame.fault(call, message)
        if len(frame.calls) > MAX_DEPTH:
            raise frame.fault(call, f"programs call one another more than {MAX_DEPTH} deep")
        recorder, parameters = inner.signature.read(definition)
        bound = bind_call(call, parameters, frame.reader, frame.names, frame.fault)
        inner = entered(replace(inner, calls=(*frame.calls, definition.place)), recorder, bound)
        name = unique(legible(definition.node.name), frame.taken, call.lineno)
        nodes, _ = self.block(statements_of(definition.node), inner)
        return module_of(ModuleNode(name, _ALWAYS, tuple(nodes)), call, frame)
