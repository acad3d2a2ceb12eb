"""The recorder that a running program writes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engine.pml.parse.sources import SourceError, Sources
from engine.pml.tree.conversation import Message
from engine.pml.whitespace.separators import larger
from engine.programs.source.errors import ProgramError
from engine.programs.source.expressions import text_of

_LINE_BREAK: Final = "\n"


class Recorder:
    """The first parameter of a program, `p`; `opened` is the default turn of text, if any."""

    def __init__(self, opened: str | None = None, base: Path | None = None) -> None:
        self._opened = opened
        self._base = base
        self._files = Sources()
        self._role = opened
        self._texts: list[str] = []
        self._said = 0  # number of non-empty texts
        self._began = 0  # its value at the start of the turn
        self._seam = ""
        self._messages: list[Message] = []
        self._sources: list[str | None] = []

    def text(self, *parts: str | float | None, end: str = "\n") -> None:
        r"""Writes parts one after another, then `end`, a line break by default; None writes nothing.

        Raises:
            TypeError: a part is neither text nor a number.
        """
        self._say("".join(_written(part) for part in (*parts, end)))

    def seam(self, text: str = "\n") -> None:
        r"""Adds a separator between the text before it and the next text of the same turn, if any.

        It is a line break, `"\n\n"` for a blank line, or a space. Of two adjacent separators, the larger one
        wins.
        """
        if self._said > self._began and larger(text, self._seam):
            self._seam = text

    @contextmanager
    def module(
        self, name: str, *, cache: bool = True, src: str | None = None, seam: str = ""
    ) -> Iterator[None]:
        """Begins a named module: always imported, or conditional if it is the only statement of an `if`.

        Args:
            name: its name in the schema.
            cache: False if it is computed in every prompt and never stored.
            src: a file relative to the program with its text; write `p.include()` in it.
            seam: the separator after it, as for `seam`.
        """
        self._sources.append(src)
        before = self._said
        yield
        self._sources.pop()
        if self._said > before:
            self.seam(seam)

    @contextmanager
    def union(self, *, scaffold: str | None = None) -> Iterator[None]:
        """Encloses one `if` or `match`: a union with the name of a scaffold."""
        yield

    def include(self) -> None:
        """Writes the `src` file of the module.

        Raises:
            ProgramError: the file is not readable.
        """
        src = self._sources[-1] if self._sources else None
        try:
            self._say(self._files.read(src or "", self._base))
        except SourceError as error:
            raise ProgramError(str(error)) from None

    @contextmanager
    def system(self) -> Iterator[None]:
        """Begins the system turn."""
        yield from self._turn("system")

    @contextmanager
    def user(self) -> Iterator[None]:
        """Begins a user turn."""
        yield from self._turn("user")

    @contextmanager
    def assistant(self) -> Iterator[None]:
        """Begins an assistant turn."""
        yield from self._turn("assistant")

    def _say(self, text: str) -> None:
        if text:
            self._texts.extend((self._seam, text))
            self._seam = ""
            self._said += 1

    def _turn(self, role: str) -> Iterator[None]:
        self._close()
        self._role = role
        yield
        self._close()
        self._role = self._opened

    def _close(self) -> None:
        text = "".join(self._texts)
        if text and self._role is None and self._messages and self._messages[-1].role is None:
            before = self._messages.pop().text  # an empty turn between them is dropped
            text = f"{before}{'' if before[-1].isspace() or text[0].isspace() else _LINE_BREAK}{text}"
        if text:
            self._messages.append(Message(self._role, text))
        self._texts.clear()
        self._seam, self._began = "", self._said

    def messages(self) -> tuple[Message, ...]:
        """Returns the output as the turns of a conversation."""
        self._close()
        return tuple(self._messages)


def _written(part: Any) -> str:
    if isinstance(part, bool) or not isinstance(part, (str, int, float, type(None))):
        raise TypeError(f"{part!r} is not text; write it in quotes")
    return text_of(part)
