"""How well the demo model answers held-out generated examples, and the bundled samples with every place.

    python -m training.evaluate assets/demo_model [--count 40] [--out results.json]

Plain greedy decoding of the whole prompt, every piece tokenised alone as the engine does it.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from engine.pml import bind, parse_prompt, parse_schema
from engine.pml.binding import ArgumentText, NewText, RoleOpen, SchemaText
from engine.pml.tree import Module
from sample_schemas import samples
from training.corpus import WORLDS, draw
from training.worlds.example import CLOSE, OPEN, question_pieces

log = logging.getLogger("evaluation")
SEED = 987_654_321
DURATIONS = ("2 days", "3 days", "4 days", "5 days", "7 days")
TOPICS = ("sights", "surf spots", "markets", "viewpoints")


@dataclass(frozen=True)
class Reader:
    """A model with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def ids(self, pieces: list[str]) -> list[int]:
        """Token ids of pieces that are tokenised alone, after the start token."""
        return [1, *(i for p in pieces for i in self.tokenizer.encode(p, add_special_tokens=False))]

    def answer(self, pieces: list[str], most: int = 160) -> str:
        """The greedy answer."""
        prompt = torch.tensor([self.ids(pieces)])
        with torch.inference_mode():
            out = self.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=most, do_sample=False
            )
        return str(self.tokenizer.decode(out[0, prompt.shape[1] :], skip_special_tokens=True)).strip()


def pieces_of(schema_source: str, prompt_source: str) -> list[str]:
    """The pieces of a bound prompt, with the opening of the answer."""
    schema, prompt = parse_schema(schema_source).tree, parse_prompt(prompt_source).tree
    if schema is None or prompt is None:
        raise ValueError("the sample does not parse; run tests/test_samples.py")
    found: list[str] = []
    for part in bind(schema, prompt).parts:
        if isinstance(part, SchemaText):
            found.append(part.node.text)
        elif isinstance(part, ArgumentText | NewText):
            found.append(part.text)
        else:
            found.append(OPEN.format(part.role) if isinstance(part, RoleOpen) else CLOSE)
    return [*found, OPEN.format("assistant")]


def generated(reader: Reader, count: int) -> dict[str, float]:
    """Held-out generated prompts: share of exact answers per world and size, and what a trip kept."""
    r = random.Random(SEED)
    result: dict[str, float] = {}
    for world in WORLDS:
        for size in (1, 3):
            exact, named, kept, plans = 0, 0, 0, 0
            for _ in range(count):
                example = draw(r, size, 1, world)
                turn = example.turns[0]
                text = reader.answer(
                    [*(p.text for p in example.pieces), *question_pieces(example, turn.question)]
                )
                exact += text == turn.answer
                if world == "travel":
                    named += example.subject in text
                if turn.answer.startswith("Here is your plan"):
                    plans += 1
                    kept += example.argument in text and days_of(text) == days_of(turn.answer)
            result[f"{world}, size {size}: exact answer"] = exact / count
            if world == "travel":
                result[f"{world}, size {size}: names the destination"] = named / count
                result[f"{world}, size {size}: plan keeps the duration"] = kept / max(1, plans)
    return result


def days_of(text: str) -> list[int]:
    """The days that a plan lists."""
    return [int(d) for d in re.findall(r"Day (\d+):", text)]


def destinations(schema_source: str) -> dict[str, str]:
    """Module name → the name that the text begins with, for every place of the travel sample."""
    schema = parse_schema(schema_source).tree
    overseas = schema.module("trip-plan/overseas") if schema else None
    if overseas is None:
        raise ValueError("the travel sample has no module 'trip-plan/overseas'")
    members = [
        m for c in overseas.children if hasattr(c, "members") for m in c.members if isinstance(m, Module)
    ]
    first = {m.name: next(c.text for c in m.children if hasattr(c, "text")).strip() for m in members}
    return {name: re.split(r"[,]| lies| is ", text)[0].removeprefix("The ") for name, text in first.items()}


def travel_sample(reader: Reader) -> dict[str, float]:
    """The travel sample with every destination, several durations and topics."""
    path = next(s.schema_path for s in samples() if s.name == "travel")
    source = path.read_text(encoding="utf-8")
    schema = parse_schema(source).tree
    total = named = kept = days = copied = listed = 0
    for index, (module, place) in enumerate(destinations(source).items()):
        body = (
            " ".join(
                c.text for c in schema.module(f"trip-plan/overseas/{module}").children if hasattr(c, "text")
            )
            if schema
            else ""
        )
        for offset, topic in enumerate(TOPICS):
            length = DURATIONS[(index + offset) % len(DURATIONS)]
            prompt = (
                f'<prompt schema="travel"><trip-plan duration="{length}"><overseas><{module}/></overseas>'
                f"</trip-plan><user>Highlight the {topic}.</user></prompt>"
            )
            text = reader.answer(pieces_of(source, prompt))
            log.info("%s, %s, %s:\n%s\n", module, length, topic, text)
            total += 1
            named += place in text
            if "name no" in text:
                continue
            listed += 1
            kept += length in text
            days += days_of(text) == list(range(1, int(length[0]) + 1))
            stops = re.findall(r"(?:start at|go on to|finish at) (.+?)\.(?:\n|$)", text)
            copied += bool(stops) and all(s in body for s in stops)
    return {
        "travel sample: names the picked destination": named / total,
        "travel sample: gives a plan (else says the notes name none)": listed / total,
        "travel sample: a plan names the duration": kept / max(1, listed),
        "travel sample: a plan has exactly those days": days / max(1, listed),
        "travel sample: every stop of a plan stands in the picked text": copied / max(1, listed),
    }


QUESTIONS = (
    ("Where does Lena Varga live?", "Lena Varga lives in Torlin."),
    ("What is the job of Tomas Brekk?", "Tomas Brekk works as a potter."),
    ("When was Lena Varga born?", "Lena Varga was born in 1978."),
    ("Which instrument does Lena Varga play?", "Lena Varga plays the cello."),
    ("What is the hobby of Tomas Brekk?", "The hobby of Tomas Brekk is chess."),
    ("Who is the mayor of Torlin?", "The mayor of Torlin is Nadia Orsk."),
    ("Who is the mayor of Salmora?", "The mayor of Salmora is Karim Helt."),
    ("Which river flows through Salmora?", "Salmora lies on the river Dune."),
    ("What is Torlin known for?", "Torlin is known for its bells."),
    ("Who founded Ridgeway Works?", "Ridgeway Works was founded by Clara Holm."),
    ("How many people work for Dune Mills?", "Dune Mills employs 85 people."),
    ("Who leads Dune Mills?", "Dune Mills is led by Grace Aumont."),
    ("Who designed the Harlow Bridge?", "The Harlow Bridge was designed by Ines Corvo."),
    ("How high is the Harlow Bridge?", "The Harlow Bridge is 47 metres high."),
    ("How much is the Merlin lamp?", "The Merlin lamp costs 64 euros."),
    ("Who makes the Merlin lamp?", "The Merlin lamp is made by Ashen Labs."),
)


def document_sample(reader: Reader) -> dict[str, float]:
    """Questions to the documents sample with all eight modules, and with two of them."""
    source = next(s.schema_path for s in samples() if s.name == "documents").read_text(encoding="utf-8")
    schema = parse_schema(source).tree
    modules = schema.modules() if schema else ()
    right = {"all": 0, "two": 0}
    for index, (question, expected) in enumerate(QUESTIONS):
        names = re.findall(r"[A-Z]\w+", question)[1:]
        told = [
            m
            for m in modules
            if any(
                f"About {s}{' '.join(names)}." in c.text
                for c in m.children
                if hasattr(c, "text")
                for s in ("", "the ")
            )
        ]
        told = told or [
            m for m in modules if any(names[-1] in getattr(c, "text", "")[:40] for c in m.children)
        ]
        other = modules[index % len(modules)]
        picks = {"all": list(modules), "two": [m for m in modules if m in told or m is other]}
        for key, picked in picks.items():
            imports = "".join(f"<{m.name}/>" for m in picked)
            text = reader.answer(
                pieces_of(source, f'<prompt schema="documents">{imports}<user>{question}</user></prompt>')
            )
            log.info("%s (%s): %s", question, key, text)
            right[key] += text == expected
    return {
        "documents sample, all eight: exact answer": right["all"] / len(QUESTIONS),
        "documents sample, one or two picked: exact answer": right["two"] / len(QUESTIONS),
    }


def prompts(reader: Reader) -> None:
    """Shows the answer to every prompt that is bundled."""
    for sample in samples():
        for path in sample.prompts:
            pieces = pieces_of(
                sample.schema_path.read_text(encoding="utf-8"), path.read_text(encoding="utf-8")
            )
            log.info("%s (%d tokens):\n%s\n", path.name, len(reader.ids(pieces)), reader.answer(pieces))


def main() -> None:
    """Evaluates a folder and prints the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--count", type=int, default=40, help="generated examples per world and size")
    parser.add_argument("--samples-only", action="store_true")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    torch.set_num_threads(given.threads)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    reader = Reader(model, AutoTokenizer.from_pretrained(given.model))
    prompts(reader)
    figures = travel_sample(reader) | document_sample(reader)
    if not given.samples_only:
        figures |= generated(reader, given.count)
    text = json.dumps({k: round(v, 3) for k, v in figures.items()}, indent=2)
    log.info("%s", text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
