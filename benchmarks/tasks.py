"""What `pml bench quality` runs over: a file of questions, or a folder of schemas and prompts, as PML.

A file holds one JSON object per line, as LongBench's files do: `input` (the question), `context` or
`documents` (a list of texts, one module each), `answers`, `dataset` or `metric`, and where they are known
`all_classes`, `system`. A `context` is cut where its passages begin, else between paragraphs. In place of a
question and its context a line may hold a `schema` and a `prompt` in PML. A file of labelled texts is read by
`benchmarks.labels`.
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

from benchmarks.labels import Labels, escaped
from benchmarks.metrics import DATASETS, LABELS, METRICS
from engine import Engine, PreparedPrompt
from engine.base.errors import PromptCacheError
from engine.files.text_files import is_folder, read_text_file
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, Schema, parse_prompt, parse_schema

MAX_QUESTIONS = 1 << 30  # bytes of a file of questions
MODULE_CHARACTERS = 2000  # of a context that names no passages
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
# as LongBench bounds its answers (config/dataset2maxlen.json)
DATASET_TOKENS = {
    **dict.fromkeys(("narrativeqa", "qasper", "samsum"), 128),
    **dict.fromkeys(("multifieldqa_en", "trec", "lcc", "repobench-p"), 64),
    **dict.fromkeys(("hotpotqa", "2wikimqa", "musique", "triviaqa"), 32),
    **dict.fromkeys(("passage_count", "passage_retrieval_en"), 32),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news"), 512),
    LABELS: 24,
}
SUITES = {"demo": ("documents", "travel", "learning", "code")}


@dataclass(frozen=True)
class Question:
    """What is asked of a context.

    Attributes:
        context: a long text.
        text: the question.
        system: what the model is told first.
    """

    context: str
    text: str
    system: str


@dataclass(frozen=True)
class Task:
    """One prompt, with the answers it should get where they are known.

    Attributes:
        name: what people call it.
        schema: a tree without errors.
        prompt: a tree without errors.
        metric: a name of `METRICS`; "" without references.
        answers: references.
        classes: all names that a right answer may be, for accuracy.
        dataset: the data set of LongBench, where it is one.
        documents: how many modules the prompt imports.
        kind: what kind of question it is; "" where the file does not say.
        position: of the module that holds the answer, 0 (first) to 1; None where it is not known.
        question: what schema and prompt were made of, where that is a context; such a one can be shortened.
        chosen_on: the bundled weights were chosen by their score on this one among others; None elsewhere.
    """

    name: str
    schema: Schema
    prompt: Prompt
    metric: str = ""
    answers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    dataset: str = ""
    documents: int = 0
    kind: str = ""
    position: float | None = None
    chosen_on: bool | None = None
    question: Question | None = None

    @property
    def new_tokens(self) -> int:
        """How long an answer may be."""
        return DATASET_TOKENS.get(self.dataset) or NEW_TOKENS.get(self.metric, 64)

    @property
    def stop(self) -> tuple[str, ...]:
        """What ends an answer: the end of the line, where the text would go on with another example."""
        return ("\n",) if self.dataset == LABELS else ()

    def settings(self, given: RunSettings) -> RunSettings:
        """Settings of a run with the bounds of this task's answer."""
        return replace(given, max_new_tokens=self.new_tokens, stop=self.stop)

    def on(self, engine: Engine) -> PreparedPrompt:
        """The prompt, prepared for a model.

        Raises:
            PromptError: it does not fit the model.
        """
        return engine.schema(self.schema).prompt(self.prompt)

    def about(self, context: str) -> Task:
        """The same question to another context."""
        assert self.question is not None
        pieces = cut(context)
        schema, prompt = _as_pml(pieces, self.question.text, self.question.system)
        return replace(self, schema=schema, prompt=prompt, documents=len(pieces))


@dataclass(frozen=True)
class Questions:
    """The tasks of one file or folder.

    Attributes:
        name: what the tables call it.
        tasks: at least one.
        identity: what its samples are known by: a digest of what was read, and the metric that was given.
    """

    name: str
    tasks: Sequence[Task]
    identity: dict[str, str] = field(default_factory=dict)


def own_questions() -> Path:
    """The document questions that come with the project, drawn apart from its training texts."""
    return Path(__file__).parent / "questions" / "documents.jsonl"


def suite(name: str) -> dict[str, Path]:
    """The files of a suite by the world they are about, drawn apart from the bundled model's training texts.

    Its weights were chosen by their score on those whose `chosen_on` is true.
    """
    return {world: own_questions().with_name(f"{world}.jsonl") for world in SUITES[name]}


def read_questions(paths: Sequence[Path], *, metric: str = "", limit: int | None = None) -> list[Questions]:
    """Reads files and folders, each with its tasks; arguments and faults are those of `read_tasks`.

    Files are named by their stem, and by their path where two have the same.
    """
    found, stems = [], Counter(path.stem for path in paths)
    for path in dict.fromkeys(paths):
        tasks = read_tasks(path, metric=metric, limit=limit)
        read = sorted(path.glob("*.pml")) if is_folder(path) else [path]
        digest = hashlib.sha256()
        for file in read:
            digest.update(f"{file.name}\0".encode() + file.read_bytes())
        name = path.stem if stems[path.stem] == 1 else str(path)
        found.append(Questions(name, tasks, {"sha256": digest.hexdigest(), "metric": metric}))
    return found


def read_tasks(path: Path, *, metric: str = "", limit: int | None = None) -> list[Task]:
    """Reads a file of questions or a folder of schemas and prompts.

    Args:
        path: a `.jsonl` file; or a folder with `NAME.pml` and `NAME.prompt.*.pml`.
        metric: in place of what the file says or its data set implies.
        limit: the most tasks; labelled texts are spread over their labels.

    Raises:
        PathError: there is no such file or folder.
        PromptCacheError: nothing can be read from it; the message names the line or file.
    """
    tasks: list[Task] = []
    for task in _folder(path) if is_folder(path) else _lines(path, metric):
        if limit is not None and len(tasks) == limit:
            break
        tasks.append(task)
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
        prompts = sorted(path.glob(f"{schema_path.stem}.prompt.*.pml"))
        for prompt_path in prompts:
            prompt = parse_prompt(read_text_file(prompt_path))
            for name, parsed in ((schema_path.name, schema), (prompt_path.name, prompt)):
                if not parsed.ok:
                    fault = next(d for d in parsed.diagnostics if d.severity == "error")
                    raise PromptCacheError(f"{name}, line {fault.line}: {fault.code}: {fault.message}")
            assert schema.tree is not None
            assert prompt.tree is not None
            yield Task(prompt_path.name, schema.tree, prompt.tree)


def _lines(path: Path, metric: str) -> Iterator[Task]:
    labels = Labels()
    for number, line in enumerate(read_text_file(path, limit=MAX_QUESTIONS).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if Labels.are_in(record):
                labels.take(record, number)
            else:
                yield _question(record, metric, f"{path.stem}:{number}")
        except (ValueError, KeyError, TypeError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise PromptCacheError(f"{path.name}, line {number}: {what}") from error
    yield from _labelled(labels, metric or "accuracy", path)


def _labelled(labels: Labels, metric: str, path: Path) -> Iterator[Task]:
    schema = labels.schema() if labels.names else None
    try:
        for one in labels.asked():
            assert schema is not None
            yield Task(
                f"{path.stem}:{one.number}",
                schema,
                labels.prompt(one.text),
                metric,
                (one.label,),
                labels.names,
                LABELS,
                len(labels.names),
            )
    except ValueError as error:
        raise PromptCacheError(f"{path.name}: {error}") from error


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
    if "schema" in record:
        return _pml(record, chosen, name)
    answers = _answers(record)
    question = " ".join(part for part in (str(record.get("input") or ""), ASK.get(chosen, "")) if part)
    system = str(record.get("system") or SYSTEM)
    documents, source = [str(d) for d in record.get("documents") or ()], None
    if not documents:
        source = Question(str(record["context"]), question, system)
        documents = cut(source.context)
    schema, prompt = _as_pml(documents, question, system)
    return Task(
        str(record.get("_id") or name),
        schema,
        prompt,
        chosen,
        answers,
        tuple(record.get("all_classes") or ()),
        dataset,
        len(documents),
        question=source,
    )


def _pml(record: dict[str, Any], metric: str, name: str) -> Task:
    schema, prompt = parse_schema(str(record["schema"])), parse_prompt(str(record["prompt"]))
    for what, parsed in (("schema", schema), ("prompt", prompt)):
        if not parsed.ok:
            fault = next(d for d in parsed.diagnostics if d.severity == "error")
            raise ValueError(f"its {what}, line {fault.line}: {fault.code}: {fault.message}")
    assert schema.tree is not None
    assert prompt.tree is not None
    position, chosen_on = record.get("position"), record.get("chosen_on")
    return Task(
        str(record.get("_id") or name),
        schema.tree,
        prompt.tree,
        metric,
        _answers(record),
        tuple(record.get("all_classes") or ()),
        documents=int(record.get("documents") or 0),
        kind=str(record.get("kind") or ""),
        position=None if position is None else float(position),
        chosen_on=None if chosen_on is None else bool(chosen_on),
    )


def _answers(record: dict[str, Any]) -> tuple[str, ...]:
    answers = record["answers"]
    answers = (answers,) if isinstance(answers, str) else tuple(str(answer) for answer in answers)
    if not answers:
        raise ValueError("the field 'answers' is empty")
    return answers


def cut(context: str) -> list[str]:
    """Cuts a context where its passages begin, else between paragraphs into pieces of 2,000 characters."""
    starts = [found.start() for found in re.finditer(r"(?m)^(?:Passage|Paragraph|Document) \d+", context)]
    if len(starts) > 1:
        borders = [0 if starts[0] == 0 else starts[0], *starts[1:], len(context)]
        pieces = [context[a:b] for a, b in itertools.pairwise(borders)]
        return [piece for piece in (context[: borders[0]], *pieces) if piece.strip()]
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
    assert schema.tree is not None, schema.diagnostics
    assert prompt.tree is not None, prompt.diagnostics
    return schema.tree, prompt.tree
