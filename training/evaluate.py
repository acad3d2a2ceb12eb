"""How well the demo model answers the bundled samples: every place, traits, questions, every prompt.

    python -m training.evaluate assets/demo_model [--out samples.json]

Plain greedy decoding of the whole prompt, every piece tokenised alone as the engine does it. The samples are
a demonstration; the measure is `python -m benchmarks quality --suite demo`, over prompts that are drawn.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from engine.pml import (
    ArgumentText,
    Module,
    NewText,
    RoleOpen,
    Schema,
    SchemaText,
    Text,
    bind,
    parse_prompt,
    parse_schema,
)
from sample_schemas import samples
from training.worlds.chat import NOT_STATED
from training.worlds.example import CLOSE, OPEN

log = logging.getLogger("evaluation")
SEED = 987_654_321
LEARNERS = 15  # drawn combinations of traits
DURATIONS = ("2 days", "3 days", "4 days", "5 days", "7 days")
TOPICS = ("sights", "surf spots", "markets", "viewpoints", "museums")


@dataclass(frozen=True)
class Reader:
    """A model with its tokenizer."""

    model: Any
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


def days_of(text: str) -> list[int]:
    """The days that a plan lists."""
    return [int(d) for d in re.findall(r"Day (\d+):", text)]


def text_of(module: Module) -> str:
    """A module's own text."""
    return "".join(c.text for c in module.children if isinstance(c, Text)).strip()


def schema_named(name: str) -> tuple[str, Schema]:
    """Source and tree of a sample."""
    source = next(s.schema_path for s in samples() if s.name == name).read_text(encoding="utf-8")
    tree = parse_schema(source).tree
    if tree is None:
        raise ValueError(f"sample {name!r} does not parse; run tests/test_samples.py")
    return source, tree


def travel_sample(reader: Reader) -> dict[str, float]:
    """The travel sample with every destination, several durations and topics."""
    source, schema = schema_named("travel")
    places = [m for m in schema.modules() if m.path.startswith("trip-plan/overseas/")]
    total = named = kept = days = copied = topical = listed = 0
    for index, module in enumerate(places):
        body = text_of(module)
        place = body.removeprefix("Welcome to ").removeprefix("the ").split(",")[0]
        for offset, topic in enumerate(t for t in TOPICS if t in body):
            length = DURATIONS[(index + offset) % len(DURATIONS)]
            prompt = (
                f'<prompt schema="travel"><trip-plan duration="{length}"><overseas><{module.name}/>'
                f"</overseas></trip-plan><user>Highlight the {topic}.</user></prompt>"
            )
            text = reader.answer(pieces_of(source, prompt))
            log.info("%s, %s, %s:\n%s\n", module.name, length, topic, text)
            total += 1
            named += place in text
            stops = re.findall(r"(?:start at|go on to|finish at) (.+?)\.(?:\n|$)", text)
            if not stops:
                continue
            listed += 1
            kept += length in text
            days += days_of(text) == list(range(1, int(length[0]) + 1))
            copied += all(s in body for s in stops)
            sentence = next(line for line in body.split("\n") if topic in line)
            topical += stops[0] in sentence
    return {
        "travel sample: names the picked destination": named / total,
        "travel sample: gives a plan": listed / total,
        "travel sample: a plan names the duration": kept / max(1, listed),
        "travel sample: a plan has exactly those days": days / max(1, listed),
        "travel sample: every stop of a plan stands in the picked text": copied / max(1, listed),
        "travel sample: a plan begins with what was asked for": topical / max(1, listed),
    }


QUESTIONS = (
    ("lena-varga", "Where does Lena Varga live?", "The home of Lena Varga is Torlin."),
    ("tomas-brekk", "What is the job of Tomas Brekk?", "The job of Tomas Brekk is potter."),
    ("lena-varga", "When was Lena Varga born?", "The year of birth of Lena Varga is 1978."),
    ("lena-varga", "Which instrument does Lena Varga play?", "The instrument of Lena Varga is the cello."),
    ("tomas-brekk", "What is the hobby of Tomas Brekk?", "The hobby of Tomas Brekk is chess."),
    ("torlin", "Who is the mayor of Torlin?", "The mayor of Torlin is Nadia Orsk."),
    ("salmora", "Who is the mayor of Salmora?", "The mayor of Salmora is Karim Helt."),
    ("salmora", "Which river flows through Salmora?", "The river of Salmora is Dune."),
    ("torlin", "What is Torlin known for?", "The pride of Torlin is its bells."),
    ("ridgeway", "Who founded Ridgeway Works?", "The founder of Ridgeway Works is Clara Holm."),
    ("dune-mills", "How many people work for Dune Mills?", "The number of people at Dune Mills is 85."),
    ("dune-mills", "Who leads Dune Mills?", "The director of Dune Mills is Grace Aumont."),
    ("harlow-bridge", "Who designed the Harlow Bridge?", "The architect of the Harlow Bridge is Ines Corvo."),
    ("harlow-bridge", "How high is the Harlow Bridge?", "The height of the Harlow Bridge is 47 metres."),
    ("merlin-lamp", "How much is the Merlin lamp?", "The price of the Merlin lamp is 64 euros."),
    ("merlin-lamp", "Who makes the Merlin lamp?", "The maker of the Merlin lamp is Ashen Labs."),
)


TRAITS = {
    "small-budget": "sleep in shared hostels",
    "generous-budget": "reserve private rooms",
    "in-april": "carry light umbrellas",
    "in-december": "look for heated museums",
    "with-children": "look for open playgrounds",
    "with-grandmother": "prefer slow boats",
}
INTERESTS = {"loves-markets": "markets", "loves-viewpoints": "viewpoints"}


def trait_sample(reader: Reader) -> dict[str, float]:
    """The travel sample with a budget, a season, company and an interest beside each destination."""
    source, schema = schema_named("travel")
    places = [m for m in schema.modules() if m.path.startswith("trip-plan/overseas/")]
    r = random.Random(SEED)
    told = wanted = interested = plans = 0
    for place in places:
        picked = [r.choice(names) for names in (list(TRAITS)[:2], list(TRAITS)[2:4], list(TRAITS)[4:])]
        fitting = [name for name, topic in INTERESTS.items() if topic in text_of(place)]
        interest = r.choice(fitting) if fitting else ""
        imports = "".join(f"<{name}/>" for name in [*picked, *([interest] if interest else [])])
        prompt = (
            f'<prompt schema="travel"><trip-plan duration="3 days"><overseas><{place.name}/></overseas>'
            f"</trip-plan>{imports}<user>Make a plan.</user></prompt>"
        )
        text = reader.answer(pieces_of(source, prompt), most=240)
        log.info("%s, %s:\n%s\n", place.name, imports, text)
        wanted += len(picked)
        told += sum(TRAITS[name] in text for name in picked)
        if interest:
            plans += 1
            interested += f"with the {INTERESTS[interest]}" in text
    return {
        "travel sample: advice of a picked trait stands in the plan": told / wanted,
        "travel sample: a plan follows the picked interest": interested / max(1, plans),
    }


COUNSEL = re.compile(r"(?:[Ll]essons should|It is best to|[Tt]he plan should|A good teacher will|So) (.+?)\.")


def learning_sample(reader: Reader) -> dict[str, float]:
    """The personalization sample with drawn learners: each picked trait's advice, and the subject."""
    source, schema = schema_named("personalization")
    unions: dict[object, list[Module]] = {}
    for module in schema.modules():
        unions.setdefault(schema.union_of(module.path), []).append(module)
    r = random.Random(SEED)
    told = wanted = named = 0
    for _ in range(LEARNERS):
        picked = [r.choice(members) for members in unions.values()]
        subject = r.choice(["geometry", "statistics", "music", "grammar"])
        imports = "".join(f"<{module.name}/>" for module in picked)
        prompt = (
            f'<prompt schema="personalization">{imports}'
            f"<user>Write a learning plan for {subject}.</user></prompt>"
        )
        text = reader.answer(pieces_of(source, prompt), most=240)
        log.info("%s:\n%s\n", imports, text)
        counsel = [found[1] for module in picked if (found := COUNSEL.search(text_of(module)))]
        wanted += len(counsel)
        told += sum(f": {advice}." in text for advice in counsel)
        named += subject in text
    return {
        "personalization sample: advice of a picked trait stands in the plan": told / wanted,
        "personalization sample: names the subject": named / LEARNERS,
    }


HOPS = (
    ("Who is the mayor of the home town of Lena Varga?", "The mayor of Torlin is Nadia Orsk."),
    ("Which river flows through the home town of Tomas Brekk?", "The river of Salmora is Dune."),
    ("What is the job of the friend of Lena Varga?", "The job of Tomas Brekk is potter."),
    ("What is the home town of Lena Varga known for?", "The pride of Torlin is its bells."),
    ("When was the friend of Lena Varga born?", "The year of birth of Tomas Brekk is 1969."),
)
NOWHERE = (
    "Which instrument does Tomas Brekk play?",
    "What does the Harlow Bridge cost?",
    "Who is the mayor of Ridgeway?",
    "Where does Lena Holm live?",
    "What colour is the Harlow lamp?",
    "What is the capital of France?",
    "Who is the captain of the ship Torlin?",
    "What is the weather like in Salmora?",
)


def document_sample(reader: Reader) -> dict[str, float]:
    """Questions to the documents sample with all eight modules, and with the one that tells and another."""
    source, schema = schema_named("documents")
    modules = schema.modules()
    right = {"all": 0, "two": 0}
    for index, (told, question, expected) in enumerate(QUESTIONS):
        other = modules[index % len(modules)].name
        picks = {"all": list(modules), "two": [m for m in modules if m.name in (told, other)]}
        for key, picked in picks.items():
            imports = "".join(f"<{m.name}/>" for m in picked)
            prompt = f'<prompt schema="documents">{imports}<user>{question}</user></prompt>'
            text = reader.answer(pieces_of(source, prompt))
            log.info("%s (%s): %s", question, key, text)
            right[key] += text == expected
    everything = "".join(f"<{m.name}/>" for m in modules)

    def answer(question: str) -> str:
        prompt = f'<prompt schema="documents">{everything}<user>{question}</user></prompt>'
        text = reader.answer(pieces_of(source, prompt))
        log.info("%s: %s", question, text)
        return text

    return {
        "documents sample, over two documents: exact answer": sum(answer(q) == a for q, a in HOPS)
        / len(HOPS),
        "documents sample, not stated: says so": sum(answer(q).endswith(NOT_STATED) for q in NOWHERE)
        / len(NOWHERE),
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
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    torch.set_num_threads(given.threads)
    model = LlamaForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    reader = Reader(model, AutoTokenizer.from_pretrained(given.model))
    prompts(reader)
    figures = travel_sample(reader) | trait_sample(reader) | learning_sample(reader) | document_sample(reader)
    text = json.dumps({k: round(v, 3) for k, v in figures.items()}, indent=2)
    log.info("%s", text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
