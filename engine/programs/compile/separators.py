"""Assigns separators of a program to texts and modules; a separator counts only if both sides are read.

A separator at the end of a module's content belongs to the module; any other belongs to the text before it. A
prompt reads the separator of a module only if the module has text, which the running program cannot check.
Therefore a module with a separator must have constant text, or use `with p.module(…, seam=…)`.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, Final

from engine.pml.whitespace.separators import SEAMS, larger
from engine.programs.compile.modules import require_turns_alone
from engine.programs.compile.outline import ModuleNode, Node, Say, Seam
from engine.programs.compile.statements import Frame
from engine.programs.source.expressions import Const

_ALWAYS: Final = Const(True)


def checked_seam(given: Any, node: ast.AST, frame: Frame) -> str:
    """Returns the separator of a program.

    Raises:
        ProgramError: documents have no such separator.
    """
    if isinstance(given, str) and given in SEAMS:
        return given
    raise frame.fault(
        node, r'a separator is "\n", "\n\n" for a blank line, or " "; write longer white space as text'
    )


def seam_of(call: ast.Call, frame: Frame) -> Seam:
    """Returns the separator of `p.seam(…)`.

    Raises:
        ProgramError: the argument is not a separator.
    """
    if len(call.args) > 1 or call.keywords:
        raise frame.fault(
            call, f'{frame.recorder}.seam takes one text; write {frame.recorder}.seam("\\n\\n")'
        )
    if not call.args:
        return Seam("\n")
    return Seam(checked_seam(frame.reader.constant(call.args[0], "a seam", frame.names), call, frame))


def add_node(nodes: list[Node], node: Node, place: ast.AST, frame: Frame) -> None:
    """Adds a node to a block; adjacent texts are joined, and separators join the text or module before them.

    Raises:
        ProgramError: a separator follows nothing, or content that a prompt may leave out.
    """
    last = nodes[-1] if nodes else None
    match node, last:
        case Seam(""), _:
            return
        case Seam(text), Seam(before):
            nodes[-1] = Seam(text if larger(text, before) else before)
        case Seam(), Say():
            nodes.append(node)
        case Seam(text), ModuleNode(condition=condition) if condition == _ALWAYS and says((last,)):
            nodes[-1] = replace(last, seam=text if larger(text, last.seam) else last.seam)
        case Seam(), _:
            raise frame.fault(place, _misplaced(last, frame.recorder))
        case Say(), Say():
            nodes[-1] = Say(last.parts + node.parts)
        case Say(), Seam(text):
            if not says(nodes[-2:-1]) or not _begins(node):
                message = "white space between texts of one module is always read; write it as text"
                raise frame.fault(place, message)
            nodes.pop()
            add_node(nodes, Say((Const(text), *node.parts)), place, frame)
        case _:
            nodes.append(node)


def module_of(module: ModuleNode, place: ast.AST, frame: Frame) -> ModuleNode:
    """Moves the separator at the end of a module's body to the module.

    Raises:
        ProgramError: the module may be empty, so its separator is not read, or it mixes whole turns with
            other content.
    """
    require_turns_alone(module.body, place, frame)
    *before, last = module.body or (None,)
    if not isinstance(last, Seam):
        return module
    if not says(before):
        p, name = frame.recorder, module.name
        message = f"the text before this separator may be empty; write with {p}.module({name!r}, seam=…):"
        raise frame.fault(place, f"{message}, and no {p}.seam")
    seam = last.text if larger(last.text, module.seam) else module.seam
    return replace(module, body=tuple(before), seam=seam)


def says(nodes: Any) -> bool:
    """Whether some nodes have text in every prompt that reads them."""
    for node in nodes:
        if isinstance(node, Say) and any(isinstance(part, Const) and part.value for part in node.parts):
            return True
        if isinstance(node, ModuleNode) and node.condition == _ALWAYS and says(node.body):
            return True
    return False


def _begins(node: Say) -> bool:
    """Whether a text begins with a constant."""
    first = node.parts[0]
    return isinstance(first, Const) and bool(first.value)


def _misplaced(last: Node | None, p: str) -> str:
    if last is None:
        return f"{p}.seam needs text before it; write it after a text"
    if isinstance(last, ModuleNode) and last.condition == _ALWAYS:
        option = f"write with {p}.module({last.name!r}, seam=…):"
        return f"the module before this separator may be empty; {option}"
    return (
        "a prompt may leave out the module before this separator; "
        f"write {p}.seam(…) as the last line of each branch"
    )
