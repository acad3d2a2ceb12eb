"""Having a prompt answered, by a studio that runs or here, and following what it tells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from app.base.signals import StoppedError
from app.cli.base.documents import Document
from app.cli.base.options import ModelOptions
from app.cli.base.output import Progress, say
from app.remote.lines import Line, answering, taken_in
from engine.base.errors import PromptCacheError
from engine.base.events import ReuseTaken
from engine.base.stopwatch import milliseconds
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, Schema
from engine.pml.edit.writer import self_contained, write_schema

if TYPE_CHECKING:
    from engine import Engine
    from engine.prepared import PreparedPrompt

Mode = Literal["cached", "uncached", "both"]
_SKIPPED = "pml: The check of the answer was skipped. The answer is complete."
_UNCHECKED = "pml: The answer is complete, but it could not be checked"


@dataclass
class Outcome:
    """What a run has brought so far.

    Attributes:
        answers: the finished sides, `cached` and `uncached`, as in `--json`.
        comparison: what lies between them, as in `--json`; empty unless both ran.
        begun: the first line of the run: placement, probe, and whether the store keeps segments at all.
        reuse: the remedy that the cached side took, where it was answered under a promise.
        printed: a part of an answer is on standard output.
        saw_all: whether what was read from segments saw all that stands before it.
        studio: address of the studio that computes it; "" where this process does.
        answered: whether all of it has come, and only the studio's check goes on.
    """

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    comparison: dict[str, Any] = field(default_factory=dict)
    begun: Line = field(default_factory=dict)
    reuse: ReuseTaken | None = None
    printed: bool = False
    saw_all: bool = True
    studio: str = ""
    answered: bool = False

    @property
    def differs(self) -> str:
        """Says that the cached answer is, or may be, another than the uncached one; else ""."""
        found = self.comparison
        if found and not (found["same_text"] and found["first_token_agrees"]):
            return "Reuse changed the answer."
        unseen = "Modules did not see all that stands before them, so reuse may change the answer."
        return "" if self.saw_all else unseen

    def warnings(self) -> list[str]:
        """What went wrong without keeping the answer from coming, each once."""
        return list(dict.fromkeys(text for answer in self.answers.values() for text in answer["warnings"]))


@dataclass(frozen=True)
class Work:
    """What is to be answered, and how. A schema without a source is written where one is needed."""

    schema: Document[Schema]
    prompt: Document[Prompt]
    settings: RunSettings
    mode: Mode

    def request(self) -> dict[str, Any]:
        """Returns it for a studio, which reads no file for it: texts of `src` files stand in the schema."""
        tree = self_contained(self.schema.tree)
        same = tree is self.schema.tree and self.schema.source
        text = self.schema.source if same else write_schema(tree)
        settings = {**asdict(self.settings), "stop": list(self.settings.stop)}
        return {"schema": text, "prompt": self.prompt.source, "settings": settings, "mode": self.mode}


def handed(
    work: Work,
    options: ModelOptions,
    server: str,
    progress: Progress,
    *,
    aloud: bool,
    answered: Callable[[Outcome], None] = lambda _: None,
) -> Outcome | None:
    """Has a studio compute the answer; None where none does, and nothing was printed on standard output.

    `answered` is called with the whole answer, before the studio checks it; nothing in that check costs it.

    Raises:
        PromptCacheError: the studio went away or failed when a part of the answer was printed.
    """
    if server == "never":
        return None
    from app.remote.client import LostError, asked, choose
    from app.remote.terms import Terms

    choice = choose(server, Terms.of(options.name, **options.for_engine()))
    if choice.why_not:
        say(f"pml: {choice.why_not} The model is loaded here.", err=True)
    losses, request = [], {}
    if choice.studios:
        try:
            request = work.request()
        except PromptCacheError as error:  # a text of `src` that no document can hold
            say(f"pml: No studio is asked, for {error}. The model is loaded here.", err=True)
            return None
    for studio in choice.studios:
        outcome = Outcome(studio=studio.url)
        try:
            with contextlib.closing(asked(studio, request)) as lines:
                follow(lines, progress, outcome, aloud=aloud, answered=answered)
        except StoppedError:
            raise
        except KeyboardInterrupt:
            if not outcome.answered:
                raise
            say(_SKIPPED, err=True)
        except LostError as lost:
            if outcome.answered:
                say(f"{_UNCHECKED}: {lost}", err=True)
                return outcome
            if outcome.printed:
                raise PromptCacheError(
                    f"the studio at {studio.url} gave no whole answer ({lost}). Run it again."
                ) from lost
            if not isinstance(lost.__cause__, ConnectionRefusedError) or server != "auto":
                losses.append(f"The studio at {studio.url} does not answer ({lost}).")
            continue
        if not outcome.answered:
            answered(outcome)
        return outcome
    if losses:
        say(f"pml: {' '.join(losses)} The model is loaded here.", err=True)
    return None


def prepared(work: Work, engine: Engine) -> PreparedPrompt:
    """Reads the prompt over its schema.

    Raises:
        PromptError: the prompt does not fit the schema or the context window.
    """
    return engine.schema(work.schema.tree).prompt(work.prompt.source)


def computed(work: Work, engine: Engine, prompt: PreparedPrompt) -> Iterator[Line]:
    """Has this process compute the answer, as the lines that a studio would send.

    Raises:
        PromptError: the prompt does not fit the context window.
    """
    return answering(engine, prompt, work.settings, work.mode)


def check(work: Work, prompt: PreparedPrompt, outcome: Outcome, progress: Progress) -> None:
    """Checks an answer under a promise, behind it; Ctrl-C skips that, and nothing in it costs the answer."""
    if outcome.reuse is None:
        return
    both = "uncached" in outcome.answers
    read = outcome.answers["uncached" if both else "cached"]["token_ids"]
    try:
        outcome.reuse = prompt.check_answer(read, outcome.reuse, work.settings, progress, every=both)
    except StoppedError:
        raise
    except KeyboardInterrupt:
        say(_SKIPPED, err=True)
    except Exception as error:  # whatever it is: the answer is there
        say(f"{_UNCHECKED}: {error}", err=True)


def follow(
    lines: Iterable[Line],
    progress: Progress,
    outcome: Outcome,
    *,
    aloud: bool,
    answered: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Consumes a run's lines, printing the answers as they come; `answered` as for `handed`."""
    for line in lines:
        match line["event"]:
            case "begun":
                outcome.begun = line
            case "working":
                progress(line["done"], line["total"], line["what"])
            case "first token" if aloud:
                outcome.printed = True
                say(f"{line['side']}, first token after {milliseconds(line['ttft_ms'])}", bold=True)
            case "delta" if aloud:
                say(line["text"], nl=False)
            case "finished":
                outcome.answers[line["side"]] = line["answer"]
                if aloud:
                    say("\n")
            case "unsaved":
                outcome.answers["cached"]["warnings"].append(line["warning"])
            case "reuse":
                outcome.reuse = taken_in(line)
            case "read":
                outcome.saw_all = line["saw_all"]
            case "compared":
                outcome.comparison = line["comparison"]
            case "answered":
                outcome.answered = True
                answered(outcome)
                progress(0, 1, "checking the answer")
            case "unchecked":
                say(f"{_UNCHECKED}: {line['why']}", err=True)
    return outcome
