"""Gets answers to a prompt, from a running studio or from this process, and prints them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from app.base.signals import StoppedError
from app.cli.base.documents import Document, folder_of, self_contained_source
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
CHECKING = "checking whether the cache changed the answer"
_UNCHECKED = "pml: The answer is complete, but it could not be checked"


@dataclass
class Outcome:
    """The results of a run so far."""

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # the finished sides, as in `--json`
    comparison: dict[str, Any] = field(default_factory=dict)  # as in `--json`; empty unless both ran
    begun: Line = field(default_factory=dict)  # the run's first line, with placement and probe
    reuse: ReuseTaken | None = None  # the repair of the cached side, if `--reuse` chose one
    printed: bool = False  # whether a part of an answer is on standard output
    saw_all: bool = True  # whether cached segments saw all text before them
    studio: str = ""  # address of the studio that computes; "" for this process
    answered: bool = False  # whether all answers are complete and only the studio's check continues

    @property
    def differs(self) -> str:
        """Returns a note if the cached answer may differ from the uncached one; else ""."""
        comparison = self.comparison
        if comparison and not (comparison["same_text"] and comparison["first_token_agrees"]):
            return "Reuse changed the answer."
        unseen = "Modules did not see all text before them, so reuse may change the answer."
        return "" if self.saw_all else unseen

    def warnings(self) -> list[str]:
        """Returns the warnings of the answers, without duplicates."""
        return list(dict.fromkeys(text for answer in self.answers.values() for text in answer["warnings"]))


@dataclass(frozen=True)
class Work:
    """The prompt to answer and its settings. A schema without a source is serialized if needed."""

    schema: Document[Schema]
    prompt: Document[Prompt]
    settings: RunSettings
    mode: Mode

    def request(self) -> dict[str, Any]:
        """Returns the request for a studio, with texts of `src` files inlined."""
        tree = self_contained(self.schema.tree)
        same = tree is self.schema.tree and self.schema.source
        text = self.schema.source if same else write_schema(tree)
        prompt = self_contained_source(self.prompt)
        settings = {**asdict(self.settings), "stop": list(self.settings.stop)}
        return {"schema": text, "prompt": prompt, "settings": settings, "mode": self.mode}


def handed(
    work: Work,
    options: ModelOptions,
    server: str,
    progress: Progress,
    *,
    aloud: bool,
    answered: Callable[[Outcome], None] = lambda _: None,
) -> Outcome | None:
    """Lets a studio compute the answer; None if there is no studio and nothing is printed yet.

    Calls `answered` with the complete answer before the studio checks it; a failed check does not affect the
    answer.

    Raises:
        PromptCacheError: the studio failed after a part of the answer was printed.
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
        except PromptCacheError as error:  # a `src` text with invalid characters
            say(f"pml: No studio is used, because {error}. The model is loaded here.", err=True)
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
                    f"the studio at {studio.url} gave no complete answer ({lost}). Run it again."
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
    """Reads the prompt with its schema; raises PromptError if it does not fit schema or window."""
    return engine.schema(work.schema.tree).prompt(work.prompt.source, base=folder_of(work.prompt.name))


def computed(work: Work, engine: Engine, prompt: PreparedPrompt) -> Iterator[Line]:
    """Yields the lines that a studio would send; raises PromptError if the prompt is too long."""
    return answering(engine, prompt, work.settings, work.mode)


def check(work: Work, prompt: PreparedPrompt, outcome: Outcome, progress: Progress) -> None:
    """Checks an answer whose repair `--reuse` chose; Ctrl-C or an error skips only the check."""
    if outcome.reuse is None:
        return
    both = "uncached" in outcome.answers
    read = outcome.answers["uncached" if both else "cached"]["token_ids"]
    progress(0, 1, CHECKING)
    try:
        outcome.reuse = prompt.check_answer(read, outcome.reuse, work.settings, progress, every=both)
    except StoppedError:
        raise
    except KeyboardInterrupt:
        say(_SKIPPED, err=True)
    except Exception as error:  # the answer is complete
        say(f"{_UNCHECKED}: {error}", err=True)


def follow(
    lines: Iterable[Line],
    progress: Progress,
    outcome: Outcome,
    *,
    aloud: bool,
    answered: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Consumes a run's lines and prints the answers; `answered` as for `handed`."""
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
                progress(0, 1, CHECKING)
            case "unchecked":
                say(f"{_UNCHECKED}: {line['why']}", err=True)
    return outcome
