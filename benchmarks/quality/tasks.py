"""The prompts of `python -m benchmarks quality`: files of questions, labelled texts, or folders of PML.

A file of questions has one JSON object per line, like LongBench: `input` (the question), `context` or
`documents` (a list of texts, one module each), `answers`, `dataset` or `metric`, and optionally `all_classes`
and `system`. A `context` is cut between its passages, or else between paragraphs. A line may have a `schema`
and a `prompt` in PML instead. A line of labelled texts has `split` (`train` or `test`), `text` and `label`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.quality.metrics import DATASETS, LABELS, METRICS
from engine import Engine, PreparedPrompt
from engine.base.errors import PromptCacheError
from engine.files.text_files import is_folder, read_text_file
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, PromptError, Schema, parse_prompt, parse_schema
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text

MAX_QUESTIONS = 1 << 30  # bytes of a file
MODULE_CHARACTERS = 2000  # of a context without passages
SYSTEM = "You give short answers from the documents below."
ASK = {
    "f1": "Answer with as few words as possible and nothing else.",
    "exact": "",
    "rouge-l": "Write a summary.",
    "accuracy": "Name the class and nothing else.",
    "numbers": "Answer with the number and nothing else.",
    "edit-similarity": "Write the next line of code and nothing else.",
}
NEW_TOKENS = {"rouge-l": 512, "edit-similarity": 64, "exact": 160, "mentions": 320}
# LongBench's own bounds (config/dataset2maxlen.json)
DATASET_TOKENS = {
    **dict.fromkeys(("narrativeqa", "qasper", "samsum"), 128),
    **dict.fromkeys(("multifieldqa_en", "trec", "lcc", "repobench-p"), 64),
    **dict.fromkeys(("hotpotqa", "2wikimqa", "musique", "triviaqa"), 32),
    **dict.fromkeys(("passage_count", "passage_retrieval_en"), 32),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news"), 512),
    LABELS: 24,
}
SUITES = {"demo": ("documents", "travel", "learning", "code")}
_STEP = 0.97  # of the tokens are tried next, if the cut into modules added tokens


class TooLongError(PromptCacheError):
    """A prompt is too long to be measured."""


@dataclass(frozen=True)
class Question:
    """A question to a long text, and the system message."""

    context: str
    text: str
    system: str


@dataclass(frozen=True)
class Task:
    """One prompt, with right answers if they are known."""

    name: str  # in messages
    schema: Schema  # a tree without errors
    prompt: Prompt  # a tree without errors
    metric: str = ""  # a name of `METRICS`; "" without references
    answers: tuple[str, ...] = ()  # references
    classes: tuple[str, ...] = ()  # for accuracy, the names of all classes
    dataset: str = ""  # the data set of LongBench, or ""
    documents: int = 0  # number of imported modules
    kind: str = ""  # of question, or ""
    position: float | None = None  # of the module with the answer, 0 (first) to 1, or None
    # whether the bundled weights were chosen by their score on this one; None if unknown
    chosen_on: bool | None = None
    question: Question | None = None  # the source of schema and prompt, if it can be shortened

    @property
    def new_tokens(self) -> int:
        """Most tokens of an answer."""
        return DATASET_TOKENS.get(self.dataset) or NEW_TOKENS.get(self.metric, 64)

    def settings(self, given: RunSettings) -> RunSettings:
        """Settings with the bounds of this task's answer. A labelled text ends with its line."""
        stop = ("\n",) if self.dataset == LABELS else ()
        return replace(given, max_new_tokens=self.new_tokens, stop=stop)

    def on(self, engine: Engine) -> PreparedPrompt:
        """Prepares the prompt."""
        return engine.schema(self.schema).prompt(self.prompt)

    def about(self, context: str) -> Task:
        """The same question to another context."""
        assert self.question is not None
        pieces = cut(context)
        schema, prompt = _as_pml(pieces, self.question.text, self.question.system)
        return replace(self, schema=schema, prompt=prompt, documents=len(pieces))


def shortened(engine: Engine, task: Task, settings: RunSettings, most: int | None = None) -> Task | None:
    """Removes the middle of a context that is too long, like LongBench (section 4.1)."""
    assert task.question is not None
    model = engine.model
    tokens = model.tokenize(task.question.context)
    room = model.context_length - 1 - settings.max_new_tokens
    kept = min(len(tokens), room if most is None else min(room, most))
    while kept >= 2:
        half = kept // 2
        ends = (tokens[:half], tokens[-half:])
        found = task.about("".join(model.tokenizer.decode(end, skip_special_tokens=False) for end in ends))
        if fits(engine, found, settings, most):
            return found
        kept = int(kept * _STEP)
    return None


def fits(engine: Engine, task: Task, settings: RunSettings, most: int | None = None) -> bool:
    """Whether a prompt and its longest answer fit the window, and the prompt has at most `most` tokens."""
    try:
        plan = task.on(engine).plan(settings)
    except PromptError:
        return False
    if most is not None and plan.total_tokens > most:
        return False
    return plan.total_tokens + settings.max_new_tokens <= engine.model.context_length


@dataclass(frozen=True)
class Questions:
    """The tasks of one file or folder."""

    name: str  # in tables
    tasks: Sequence[Task]  # at least one
    identity: dict[str, str] = field(default_factory=dict)  # a digest of the file, and the given metric


def own_questions() -> Path:
    """The document questions of the project, separate from its training texts."""
    return Path(__file__).parents[1] / "questions" / "documents.jsonl"


def suite(name: str) -> dict[str, Path]:
    """The files of a suite by world, separate from the bundled model's training texts."""
    return {world: own_questions().with_name(f"{world}.jsonl") for world in SUITES[name]}


def read_questions(paths: Sequence[Path], *, metric: str = "", limit: int | None = None) -> list[Questions]:
    """Reads files and folders. A file is named by its stem, or by its path if that is not unique."""
    found, stems = [], Counter(path.stem for path in paths)
    for path in dict.fromkeys(paths):
        tasks = read_tasks(path, metric=metric, limit=limit)
        digest = hashlib.sha256()
        for file in sorted(path.glob("*.pml")) if is_folder(path) else [path]:
            digest.update(f"{file.name}\0".encode() + file.read_bytes())
        name = path.stem if stems[path.stem] == 1 else str(path)
        found.append(Questions(name, tasks, {"sha256": digest.hexdigest(), "metric": metric}))
    return found


def read_tasks(path: Path, *, metric: str = "", limit: int | None = None) -> list[Task]:
    """Reads a file of questions, or a folder of schemas and prompts."""
    tasks = list(itertools.islice(_folder(path) if is_folder(path) else _lines(path, metric), limit))
    if not tasks:
        raise PromptCacheError(
            f"{str(path)!r} holds no task. A folder needs NAME.pml with NAME.prompt.1.pml."
        )
    return tasks


def _folder(path: Path) -> Iterator[Task]:
    for schema_path in sorted(path.glob("*.pml")):
        if ".prompt." in schema_path.name:
            continue
        schema = parse_schema(read_text_file(schema_path), base=path)
        for prompt_path in sorted(path.glob(f"{schema_path.stem}.prompt.*.pml")):
            prompt = parse_prompt(read_text_file(prompt_path))
            try:
                yield Task(prompt_path.name, _tree(schema, schema_path.name), _tree(prompt, prompt_path.name))
            except ValueError as error:
                raise PromptCacheError(str(error)) from error


def _tree(parsed: Any, name: str) -> Any:
    """The tree of a document."""
    if not parsed.ok:
        error = next(one for one in parsed.diagnostics if one.severity == "error")
        raise ValueError(f"{name}, line {error.line}: {error.code}: {error.message}")
    return parsed.tree


def _lines(path: Path, metric: str) -> Iterator[Task]:
    labels = Labels()
    for number, line in enumerate(read_text_file(path, limit=MAX_QUESTIONS).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if isinstance(record, dict) and {"split", "text", "label"} <= record.keys():
                labels.take(record, number)
            else:
                yield _question(record, metric, f"{path.stem}:{number}")
        except (ValueError, KeyError, TypeError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise PromptCacheError(f"{path.name}, line {number}: {what}") from error
    try:
        yield from labels.tasks(path.stem, metric or "accuracy")
    except ValueError as error:
        raise PromptCacheError(f"{path.name}: {error}") from error


class Labels:
    """Labelled texts as few-shot classification: a module for each label's examples, a prompt for each test.

    Like LongBench's few-shot examples, the prompts have no chat template: in a conversation, models answer in
    sentences.
    """

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = {}
        self._tests: dict[str, list[tuple[int, str]]] = {}

    def take(self, record: dict[str, Any], number: int) -> None:
        """Takes a line."""
        text, label, split = str(record["text"]), str(record["label"]), record["split"]
        if split == "train":
            self._examples.setdefault(label, []).append(text)
        elif split == "test":
            self._tests.setdefault(label, []).append((number, text))
        else:
            raise ValueError(f"the split is {split!r}; it must be 'train' or 'test'")

    def tasks(self, stem: str, metric: str) -> Iterator[Task]:
        """The tests: one of each label, then another of each."""
        for label in self._tests:
            if label not in self._examples:
                raise ValueError(f"the label {label!r} has no example of the split 'train'")
        if not self._tests:
            return
        names, parsed = tuple(self._examples), parse_schema(self._schema())
        imports = "".join(f"<label-{n}/>" for n in range(1, len(names) + 1))
        for of_each in itertools.zip_longest(
            *([(label, *one) for one in tests] for label, tests in self._tests.items())
        ):
            for label, number, text in filter(None, of_each):
                question = escaped(f"Sentence: {text}\nLabel:")
                prompt = parse_prompt(
                    f'<prompt schema="labels" xml:space="preserve">{imports}{question}</prompt>'
                )
                trees = _tree(parsed, stem), _tree(prompt, stem)
                yield Task(f"{stem}:{number}", *trees, metric, (label,), names, LABELS, len(names))

    def _schema(self) -> str:
        modules = (
            "".join(f"Sentence: {text}\nLabel: {label}\n\n" for text in texts)
            for label, texts in self._examples.items()
        )
        written = "\n".join(
            f'<module name="label-{n}" xml:space="preserve">{escaped(text)}</module>'
            for n, text in enumerate(modules, 1)
        )
        return f'<schema name="labels">{written}</schema>'


def _question(record: dict[str, Any], metric: str, name: str) -> Task:
    if not isinstance(record, dict):
        raise ValueError("a line must be one JSON object")
    dataset = str(record.get("dataset") or "").removesuffix("_e")
    chosen = metric or record.get("metric") or DATASETS.get(dataset)
    if chosen is None:
        what = f"how the data set {dataset!r} is scored is not known" if dataset else "it names no data set"
        raise ValueError(f"{what}; give a 'metric' or --metric. Known: {', '.join(sorted(DATASETS))}")
    if chosen not in METRICS:
        raise ValueError(f"the metric {chosen!r} is not known; use one of {', '.join(METRICS)}")
    task_name, classes = str(record.get("_id") or name), tuple(record.get("all_classes") or ())
    if "schema" in record:
        schema = _tree(parse_schema(str(record["schema"])), "its schema")
        prompt = _tree(parse_prompt(str(record["prompt"])), "its prompt")
        position, chosen_on = record.get("position"), record.get("chosen_on")
        return Task(
            task_name,
            schema,
            prompt,
            chosen,
            _answers(record),
            classes,
            documents=int(record.get("documents") or 0),
            kind=str(record.get("kind") or ""),
            position=None if position is None else float(position),
            chosen_on=None if chosen_on is None else bool(chosen_on),
        )
    answers = _answers(record)
    question = " ".join(part for part in (str(record.get("input") or ""), ASK.get(chosen, "")) if part)
    system = str(record.get("system") or SYSTEM)
    documents, source = [str(d) for d in record.get("documents") or ()], None
    if not documents:
        source = Question(str(record["context"]), question, system)
        documents = cut(source.context)
    trees = _as_pml(documents, question, system)
    return Task(task_name, *trees, chosen, answers, classes, dataset, len(documents), question=source)


def _answers(record: dict[str, Any]) -> tuple[str, ...]:
    answers = record["answers"]
    answers = (answers,) if isinstance(answers, str) else tuple(str(answer) for answer in answers)
    if not answers:
        raise ValueError("the field 'answers' is empty")
    return answers


def cut(context: str) -> list[str]:
    """Cuts a context between its passages, or else between paragraphs into pieces of 2,000 characters."""
    starts = [found.start() for found in re.finditer(r"(?m)^(?:Passage|Paragraph|Document) \d+", context)]
    if len(starts) > 1:
        pieces = [context[a:b] for a, b in itertools.pairwise([*starts, len(context)])]
        return [piece for piece in (context[: starts[0]], *pieces) if piece.strip()]
    pieces = [""]
    for paragraph in re.split(r"(?<=\n)", context):
        if pieces[-1] and len(pieces[-1]) + len(paragraph) > MODULE_CHARACTERS:
            pieces.append("")
        pieces[-1] += paragraph
    return [piece for piece in pieces if piece.strip()]


def _as_pml(documents: list[str], question: str, system: str) -> tuple[Schema, Prompt]:
    modules = "\n".join(
        f'<module name="document-{n}" xml:space="preserve">{escaped(text.strip())}</module>'
        for n, text in enumerate(documents, 1)
    )
    imports = "".join(f"<document-{n}/>" for n in range(1, len(documents) + 1))
    schema = parse_schema(
        f'<schema name="questions"><system>{escaped(system)}</system>'
        f"<user>Read these documents.\n{modules}</user>"
        "<assistant>I have read the documents. What would you like to know?</assistant></schema>"
    )
    prompt = parse_prompt(f'<prompt schema="questions">{imports}<user>{escaped(question)}</user></prompt>')
    return _tree(schema, "the schema"), _tree(prompt, "the prompt")


def escaped(text: str) -> str:
    """Text as PML, without forbidden characters."""
    while (found := forbidden_character(text)) is not None:
        text = text.replace(found[0], " ")
    return escaped_text(text)
