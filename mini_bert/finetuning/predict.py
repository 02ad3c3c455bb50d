"""Predictions of a fine-tuned model, as `mini-bert predict` prints them.

tuned = load("sentiment")
for prediction in predictions(tuned, gather(tuned.task, ["An instant classic."])):
    print(shown(prediction))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from mini_bert.common.progress import Show, counted
from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged, read_squad
from mini_bert.evaluation.metrics import entities
from mini_bert.finetuning.loop import predict
from mini_bert.finetuning.model import FineTuned
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.tag import Tag, spell_entities
from mini_bert.inference.embed import read_lines

WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")  # words and punctuation, as in most labelled data
SHOWN = 3  # answers, or classes, to show
AT_ONCE = 500  # examples


def predictions(
    tuned: FineTuned, examples: Sequence[Any], show: Show = lambda stage, note, done, total: None
) -> list[dict[str, Any]]:
    """A prediction for each example, as plain values: label and probabilities; words and tags; answers; a score"""
    model, task, tokenizer, length = tuned
    done: list[dict[str, Any]] = []
    with threadpool_limits(1, "blas"):
        for low in range(0, len(examples), AT_ONCE):
            part = examples[low : low + AT_ONCE]
            items = task.items(part, tokenizer, length, training=False)
            answers = task.join(part, items, predict(model, task, items, tokenizer.padding))
            done += [DESCRIBE[task.name](task, example, answer) for example, answer in zip(part, answers, strict=True)]
            show("predicting", counted(len(done), "example"), len(done), len(examples))
    return done


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
    return {"first": example.first, "second": example.second, "score": score}


DESCRIBE: dict[str, Callable[..., dict[str, Any]]] = {
    "classify": _class,
    "tag": _tags,
    "qa": _answer,
    "similarity": _score,
}


def gather(
    task: Any, texts: list[str], file: str | None = None, question: str | None = None, context: str | None = None
) -> list[Any]:
    """Examples from the command line or a file: one text per line, pairs separated by a tab; SQuAD's JSON"""
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
        raise ValueError("give either texts, or --file with one text per line")
    pairs = task.name == "similarity" or (task.name == "classify" and task.pairs)
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
    if task.name == "similarity":
        return [Scored(row[0], row[1], 0.0, number) for number, row in rows]
    if task.name == "tag":
        return [Tagged(WORD.findall(row[0]), [], number) for number, row in rows]
    return [Labelled(row[0], row[1] if pairs else None, "", number) for number, row in rows]


def shown(prediction: dict[str, Any]) -> str:
    """A prediction for people to read"""
    if "score" in prediction:
        return f"{prediction['score']:.2f}    {prediction['first']}  |  {prediction['second']}"
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
