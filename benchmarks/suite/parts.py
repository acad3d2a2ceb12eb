"""The parts of the suite by their names, and those that cannot be measured yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale


@dataclass(frozen=True)
class Part:
    """A part of the suite.

    Attributes:
        name: of the part, as `--only` takes it.
        title: what it measures, in a heading.
        source: module and function that measure it.
        reading: how its figures are to be read.
    """

    name: str
    title: str
    source: tuple[str, str]
    reading: str

    def measure(self, scale: Scale, say: Say) -> list[Group]:
        """Measures it. Torch is loaded here and not before."""
        import importlib

        module, function = self.source
        run: Callable[[Scale, Say], list[Group]] = getattr(
            importlib.import_module(f"benchmarks.suite.{module}"), function
        )
        return run(scale, say)


_FROM_TEXT = """From the text of the prompt to its first token: reading it, planning, finding and
loading segments, the forward pass and the choice of the token are in it; the schema
is laid out before. Other software begins at token ids, which is to its advantage.
`prefix`: what is cached lies ready in its memory; `full`: all is computed."""

PARTS = (
    Part(
        "T1",
        "Time to first token, 1.1B",
        ("first_token", "large"),
        f"{_FROM_TEXT} The whole prefill of transformers is left out here: a minute a run.",
    ),
    Part("T2", "Time to first token, 0.1B", ("first_token", "small"), _FROM_TEXT),
    Part(
        "T3",
        "Against the floor",
        ("first_token", "floor"),
        """From token ids with the segments in hand. The floor is a forward pass of the same new
tokens with nothing before them.""",
    ),
    Part(
        "T4",
        "Against the paper's method",
        ("first_token", "paper"),
        """From token ids with the segments in hand. `tokens_copy` copies all modules into one
buffer, which is kept from run to run, and computes the new tokens over it, with the
attention that `tokens_cached` has too.""",
    ),
    Part(
        "T5",
        "From files",
        ("first_token", "files"),
        """From text. `files_later`: digests were checked before by this process; `files_first`:
they are checked now; `files_cold`: the same after the operating system was asked to
drop the files from its page cache.""",
    ),
    Part(
        "T6",
        "By number of modules",
        ("modules", "counts"),
        """The same tokens in few and in many modules. One module is one contiguous cache. The time
per token is the mean of an answer of 64, without the first, and has in it the copy of
many modules into one buffer before the second.""",
    ),
    Part("T7", "What an edit costs", ("modules", "edits"), "Tokens that are encoded, not times."),
    Part(
        "T8",
        "The first run",
        ("beginnings", "first_runs"),
        """Every sample has an empty store. `first` encodes what is missing and writes it behind
the answer; `first_sync` has written it before the first token; `first_written` is
over when all is written.""",
    ),
    Part(
        "T9",
        "All but the forward pass",
        ("modules", "overhead"),
        "The parts of the time to first token without the forward pass: parse, plan, load, sample.",
    ),
    Part(
        "T10",
        "Mistakes while typing",
        ("mistakes", "mistakes"),
        """All diagnostics of a schema with a mistake in its middle; from a key in a browser to
its mark, which waits 90 ms for the next key.""",
    ),
    Part(
        "T11",
        "Many prompts at once",
        ("crowds", "together"),
        """First one layer's attention of a row of each of 32 prompts: `private` is one fused call over
a copy for each prompt, `unaware` reads the shared text where it lies, but for each prompt
by itself, `reordered` is ours with the shared text as eight modules in another order in
every prompt. Then whole answers, from when all prompts are handed in until the last is
whole: they read the same stored modules and end with a text of their own. `one_by_one` is
timed on two or four prompts and counted up; in bf16 it computes an idle second row with
every token, as the product does there, some 8% of its time, and neither side guesses
tokens. `batch_reordered` has the modules in another order in every prompt, `batch_plain`
has the same text as plain text, `private` reads modules of its own in every prompt. Memory
is the most that segments, and what answers under way hold of their own, have taken in any
pass; of prompts that share nothing it is told with the steps, a copy for each. A newcomer
is timed from when it is handed in to its first token, by itself and while 16 others decode.
A step of 8 prompts is timed by how much each has of its own, `private` over copies of what
is shared. Answers are looked at too, before the time is taken: those to up to eight prompts
in `batch` and `batch_reordered` beside the same one by one, the logits of a step of many
beside those of each prompt alone, attention beside `private`. Where logits are further
apart than a tenth of their spread (0.001 in fp32), in the mean of their squares, or attention
is anywhere, or more than one answer in four begins otherwise, `same text` is "no", and no
goal is met.""",
    ),
    Part(
        "arrivals",
        "Prompts that arrive by themselves, and llama.cpp with slots",
        ("crowds", "small"),
        """First whole answers to eight prompts as in T11, on the small model, beside llama.cpp with as
many slots over one cache: what prompts begin with in common is there before on both
sides, and where each has the modules in another order, that is little. Then prompts
arrive by themselves, at times that are drawn: a token counts from when its prompt was due,
and a system keeps up as long as it takes at most twice as long as by itself. That is one
draw of 48 arrivals at each of four rates, and what a system keeps up with lies on a
straight line between two rates, which are named beside it: differences smaller than from
one rate to the next say little. A kind is asked for more until it takes longer than that,
and for less only where its first rate is too high. Answers are looked at as in T11.""",
    ),
    Part(
        "T13",
        "Decoding",
        ("decoding", "steps"),
        """A `token` is the mean of an answer of 64, without the first, and has in it the copy of
many segments into one buffer before the second. A `step` is the median step, from the
token before to the text of this one, and of other software to the choice of the token.
A network that is "told" an answer computes every pass of it with drawn weights, and only
the choice of a token is taken from an answer that the bundled model gave to the same
prompt: with it guesses are kept as often as there. Answers that quote are those to all
prompts of the sample `documents`, at most 64 tokens each, and a sample is the mean over
all of them. For the large networks drawn tokens make the prompts as long as the longest,
or 4,096; beside the bundled model others decode behind the mean length of its prompts.
Other software decodes token by token, though some of it can look up guesses in its
prompt too.""",
    ),
    Part(
        "T14",
        "Starting",
        ("beginnings", "starts"),
        """From the start of a process: `pml run` until it says that the first token of a stored
prompt is there, the studio until its page was sent, `pml check` to its end. The
bundled model.""",
    ),
    Part(
        "M1",
        "Memory",
        ("storing", "memory"),
        """Bytes in the store's files per token by those of keys and values. The shapes of known
models are arithmetic: with keys and values for every head, as the Prompt Cache paper
counts in its table 2, and with the heads that the model has for them.""",
    ),
    Part(
        "lengths",
        "By length of what is cached",
        ("first_token", "lengths"),
        f"""{_FROM_TEXT} The limit is the arithmetic of the new tokens at the rate of large
products in the same process; reading weights, keys and values is not in it.""",
    ),
    Part(
        "answers",
        "By length of the answer",
        ("decoding", "answers"),
        "Whole answers, the time to first token in them. Without guesses.",
    ),
    Part(
        "store",
        "By size of the store",
        ("storing", "lookups"),
        """Segments of one token. Ten have files; the others are rows that were entered into the
index by one transaction. `find`: is it there; `miss`: it is not; `load`: row and file
of one of the ten, mapped.""",
    ),
)
NOT_YET = {
    "T12": "a GPU and its measurement at 7B",
    "T15": "a server that streams to other programs",
}
BY_NAME = {part.name: part for part in PARTS}
