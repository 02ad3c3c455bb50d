"""Predictions of a fine-tuned model, as `mini-bert predict` prints them.

tuned = load("sentiment")
for prediction in predictions(tuned, gather(tuned.task, ["An instant classic."])):
    print(shown(prediction))

examples = gather_labelled(tuned.task, "test.tsv")
tuned.task.scores(examples, answers_to(tuned, examples))        {"accuracy": …, "macro_f1": …}
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mini_bert.common.progress import Show, counted
from mini_bert.corpora.formats import format_of
from mini_bert.data.labelled.examples import ColumnError, listed
from mini_bert.data.labelled.labels import check_labels
from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged, read_squad, read_tagged, read_texts
from mini_bert.evaluation.metrics import entities
from mini_bert.finetuning.data import READERS
from mini_bert.finetuning.loop import predict
from mini_bert.finetuning.model import FineTuned
from mini_bert.finetuning.tasks.base import warn_about_cuts
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.tag import Tag, spell_entities
from mini_bert.inference.embed import read_lines

WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")  # words and punctuation, as in most labelled data
SHOWN = 3  # answers, or classes, to show
AT_ONCE = 500  # examples
TAGGED = (".conll", ".conllu", ".iob", ".bio")  # files with a word per line
logger = logging.getLogger(__name__)


def predictions(tuned: FineTuned, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """A prediction for each example, as plain values: label and probabilities; words and tags; answers; a score"""
    return described(tuned.task, examples, answers_to(tuned, examples))


def answers_to(
    tuned: FineTuned, examples: Sequence[Any], show: Show = lambda stage, note, done, total: None
) -> list[Any]:
    """The task's own answer to each example, as `Task.scores` takes them"""
    model, task, tokenizer, length = tuned
    done: list[Any] = []
    all_items: list[Any] = []
    with threadpool_limits(1, "blas"):
        for low in range(0, len(examples), AT_ONCE):
            part = examples[low : low + AT_ONCE]
            items = task.items(part, tokenizer, length, training=False)
            all_items += items
            done += task.join(part, items, predict(model, task, items, tokenizer.padding))
            show("predicting", counted(len(done), "example"), len(done), len(examples))
    warn_about_cuts(all_items, length)
    return done


def described(task: Any, examples: Sequence[Any], answers: Sequence[Any]) -> list[dict[str, Any]]:
    return [DESCRIBE[task.name](task, example, answer) for example, answer in zip(examples, answers, strict=True)]


def _class(task: Classify, example: Labelled, probabilities: Any) -> dict[str, Any]:
    by_label = dict(zip(task.labels, probabilities.tolist(), strict=True))
    label = max(by_label, key=lambda name: by_label[name])
    texts = {"text": example.text} | ({} if example.second is None else {"second": example.second})
    return {**texts, "label": label, "probability": by_label[label], "probabilities": by_label}


def _tags(task: Tag, example: Tagged, probabilities: Any) -> dict[str, Any]:
    tags = task.tags(probabilities)
    prediction: dict[str, Any] = {"words": example.words, "tags": tags, "probabilities": probabilities.max(-1).tolist()}
    if spell_entities(task.labels):
        prediction["entities"] = [
            {"type": kind, "text": " ".join(example.words[first : last + 1]), "first": first, "last": last}
            for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1])
        ]
    return prediction


def _answer(task: Any, example: Question, spans: list[Any]) -> dict[str, Any]:
    answers = [
        {"answer": span.text, "probability": span.probability, "start": span.start, "stop": span.stop} for span in spans
    ]
    best = answers[0] if answers else {"answer": "", "probability": 0.0}
    return {"id": example.id, "question": example.question, "answer": best["answer"],
            "probability": best["probability"], "answers": answers}  # fmt: skip


def _score(task: Any, example: Scored, score: float) -> dict[str, Any]:
    texts = {"first": example.first, "second": example.second} if example.second else {"text": example.first}
    return {**texts, "score": score}


DESCRIBE: dict[str, Callable[..., dict[str, Any]]] = {
    "classify": _class,
    "tag": _tags,
    "qa": _answer,
    "similarity": _score,
}


def gather(
    task: Any,
    texts: list[str],
    file: str | None = None,
    question: str | None = None,
    context: str | None = None,
    text: str | None = None,
    second: str | None = None,
    pairs: bool = False,
) -> list[Any]:
    """Examples from the command line or a file

    A .tsv, .csv or .jsonl file is read as a table, as for fine-tuning: `text` and `second` name its columns. A tagger
    also reads CoNLL, a model for questions SQuAD's JSON. Other files have one text per line, pairs separated by a tab.

    pairs: two texts are one example, for published classifiers, whose files do not say so
    """
    if task.name == "qa":
        if file is not None and question is None and context is None and not texts:
            return read_squad(file, unanswered=True)
        if question is None or context is None or texts or file is not None:
            raise ValueError("this model answers questions: give --question and --context, or --file with SQuAD's JSON")
        if not question.strip() or not context.strip():
            raise ValueError("the question or the context is empty")
        return [Question("1", question, context, [], [], 1)]
    if question is not None or context is not None:
        raise ValueError(f"this model is for {task.name}, not for questions; remove --question and --context")
    if bool(texts) == (file is not None):
        raise ValueError("give either texts, or --file with texts")
    alone = task.name == "similarity" and task.pairs is None and len(texts) == 1 and not pairs
    known = (task.name == "similarity" and not alone) or (task.name == "classify" and task.pairs)
    if (pairs or second is not None) and not known and getattr(task, "pairs", False) is not None:
        takes = "classifies single texts" if task.name == "classify" else f"is for {task.name}, one text at a time"
        raise ValueError(f"this model {takes}; remove {'--pairs' if pairs else '--second'}")
    pairs = bool(known or pairs or second is not None)
    if file is not None and format_of(file) in ("tsv", "csv", "jsonl"):
        if task.name == "tag" and text is None and format_of(file) != "csv":
            return read_tagged(file)
        return _as_examples(task, _from_table(file, text, second, pairs))
    if text is not None or second is not None:
        raise ValueError("--text and --second name the columns of a .tsv, .csv or .jsonl file; give one with --file")
    if file is not None and task.name == "tag" and file.removesuffix(".gz").endswith(TAGGED):
        return read_tagged(file)
    if file is None and pairs:
        if len(texts) != 2:
            raise ValueError(f"this model compares two texts, got {counted(len(texts), 'text')}; give two")
        rows = [(1, texts)]
    elif file is None:
        rows = [(number, [text]) for number, text in enumerate(texts, 1)]
    else:
        rows = [(number, line.split("\t") if pairs else [line]) for number, line in enumerate(read_lines(file), 1)]
    for number, row in rows:
        if pairs and len(row) != 2:
            raise ValueError(f"{file}, text {number}: expected two texts separated by a tab, found {row!r:.60}")
        if not all(text.strip() for text in row):
            raise ValueError(f"text {number} is empty")
    return _as_examples(task, [Labelled(row[0], row[1] if pairs else None, "", number) for number, row in rows])


def gather_labelled(
    task: Any, file: str, text: str | None = None, second: str | None = None, label: str | None = None
) -> list[Any]:
    """Examples with their labels, from a file as for fine-tuning. label: the column of labels, tags or scores"""
    given = dict(zip(COLUMNS[task.name], (label, text, second), strict=False))
    columns: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if len(columns) < sum(value is not None for value in (label, text, second)):
        raise ValueError(f"files for {task.name} have no columns to name; remove --text, --second and --label")
    if "column" in columns:
        if not re.fullmatch(r"-?\d{1,9}", columns["column"]):
            raise ValueError(
                f"--label is {label!r}, expected the number of the column of the tags, from 0; -1: the last"
            )
        columns["column"] = int(columns["column"])
    try:
        examples = READERS[task.name](file, **columns)
    except ColumnError as error:
        option = {"first": "--text", "score": "--label"}.get(error.argument, f"--{error.argument}")
        raise error.with_option(option) from None
    if task.labelled:
        check_labels(examples, task.labels, Path(file))
    return examples


COLUMNS = {  # how the readers call --label, --text and --second
    "classify": ("label", "text", "second"),
    "tag": ("column",),
    "qa": (),
    "similarity": ("score", "first", "second"),
}


def _from_table(file: str, text: str | None, second: str | None, pairs: bool) -> list[Labelled]:
    try:
        examples, columns = read_texts(file, text, second, pairs)
    except ColumnError as error:
        raise error.with_option(f"--{error.argument}") from None
    logger.warning("%s: predicting for %s of column %s", file, counted(len(examples), "line"), listed(columns))
    return examples


def _as_examples(task: Any, texts: list[Labelled]) -> list[Any]:
    if task.name == "similarity":
        return [Scored(one.text, one.second or "", 0.0, one.line) for one in texts]
    if task.name == "tag":
        return [Tagged(WORD.findall(one.text), [], one.line) for one in texts]
    return texts


def shown_scores(task: Any, scores: dict[str, float]) -> str:
    """accuracy 91.2%, macro F1 90.8%"""
    return ", ".join(f"{SCORE_NAMES.get(name, name)} {task.shown(value)}" for name, value in scores.items())


SCORE_NAMES = {"macro_f1": "macro F1", "f1": "F1", "exact": "exact match", "spearman": "Spearman", "pearson": "Pearson"}


def shown(prediction: dict[str, Any]) -> str:
    """A prediction for people to read"""
    if "score" in prediction:
        texts = [prediction[name] for name in ("text", "first", "second") if name in prediction]
        return f"{prediction['score']:.2f}    {'  |  '.join(texts)}"
    if "answers" in prediction:
        lines = [f"  {answer['probability']:6.1%}  {answer['answer']}" for answer in prediction["answers"][:SHOWN]]
        return "\n".join([prediction["question"], *lines])
    if "label" in prediction:
        ranked = sorted(prediction["probabilities"].items(), key=lambda pair: -pair[1])[:SHOWN]
        text = prediction["text"] + (f"  |  {prediction['second']}" if "second" in prediction else "")
        return f"{', '.join(f'{label} {share:.1%}' for label, share in ranked)}    {text}"
    width = max(map(len, prediction["words"]))
    lines = [
        f"{word:{width}}  {tag:12} {share:.1%}"
        for word, tag, share in zip(prediction["words"], prediction["tags"], prediction["probabilities"], strict=True)
    ]
    if "entities" in prediction:
        named = "; ".join(f"{entity['text']} ({entity['type']})" for entity in prediction["entities"])
        lines.append(f"-> {named or 'no entities'}")
    return "\n".join([*lines, ""])
