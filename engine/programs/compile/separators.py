"""Seams of a program: what sets texts and modules apart, and only where both sides of it are read.

A seam at the end of what a module holds is the module's own, and gone with it; any other is that of the text
before it. A prompt reads the seam of a module only where the module said something, which the running program
cannot see: so what has a seam has a text that it always says, or is written `with p.module(…, seam=…)`.
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
    """The seam that a program gives.

    Raises:
        ProgramError: no white space of a document makes it.
    """
    if isinstance(given, str) and given in SEAMS:
        return given
    raise frame.fault(
        node, r'a seam is "\n", "\n\n" for a blank line, or " "; write longer white space as text'
    )


def seam_of(call: ast.Call, frame: Frame) -> Seam:
    """What `p.seam(…)` says.

    Raises:
        ProgramError: its argument is none.
    """
    if len(call.args) > 1 or call.keywords:
        raise frame.fault(
            call, f'{frame.recorder}.seam takes one text; write {frame.recorder}.seam("\\n\\n")'
        )
    if not call.args:
        return Seam("\n")
    return Seam(checked_seam(frame.reader.constant(call.args[0], "a seam", frame.names), call, frame))


def add_node(nodes: list[Node], node: Node, place: ast.AST, frame: Frame) -> None:
    """Adds what a statement gave to a block; neighbouring texts become one, and seams go to what they follow.

    Args:
        nodes: the block so far.
        node: what comes to it.
        place: the statement, for an error.
        frame: where it stands.

    Raises:
        ProgramError: a seam follows nothing, or what a prompt may leave out.
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
                message = "between the texts of one module white space is always there; write it as text"
                raise frame.fault(place, message)
            nodes.pop()
            add_node(nodes, Say((Const(text), *node.parts)), place, frame)
        case _:
            nodes.append(node)


def module_of(module: ModuleNode, place: ast.AST, frame: Frame) -> ModuleNode:
    """A module with the seam at its end as its own.

    Raises:
        ProgramError: it may say nothing, and then its seam is not read, or it holds whole turns and
            something beside them.
    """
    require_turns_alone(module.body, place, frame)
    *before, last = module.body or (None,)
    if not isinstance(last, Seam):
        return module
    if not says(before):
        p, name = frame.recorder, module.name
        message = f"what stands before this seam may say nothing; write with {p}.module({name!r}, seam=…):"
        raise frame.fault(place, f"{message}, and no {p}.seam")
    seam = last.text if larger(last.text, module.seam) else module.seam
    return replace(module, body=tuple(before), seam=seam)


def says(nodes: Any) -> bool:
    """Whether some nodes say something in every prompt that reads them."""
    for node in nodes:
        if isinstance(node, Say) and any(isinstance(part, Const) and part.value for part in node.parts):
            return True
        if isinstance(node, ModuleNode) and node.condition == _ALWAYS and says(node.body):
            return True
    return False


def _begins(node: Say) -> bool:
    """Whether a text begins with what is always said."""
    first = node.parts[0]
    return isinstance(first, Const) and bool(first.value)


def _misplaced(last: Node | None, p: str) -> str:
    if last is None:
        return f"{p}.seam sets apart what was said before, and here that is nothing; write it behind a text"
    if isinstance(last, ModuleNode) and last.condition == _ALWAYS:
        option = f"write with {p}.module({last.name!r}, seam=…):"
        return f"the module before this seam may say nothing, and then has no seam; {option}"
    return (
        "a prompt may leave out what stands before this seam, and the seam with it; "
        f"write {p}.seam(…) as the last line of each branch"
    )
