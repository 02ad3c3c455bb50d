"""What a fine-tuned model says: `mini-bert predict`.

    mini-bert predict MODEL "An instant classic."                        a label with its probability
    mini-bert predict MODEL "Ada Lovelace lived in London."              a tag for each word, and the names they spell
    mini-bert predict MODEL --question "Who sat?" --context "The cat sat on the mat."
    mini-bert predict MODEL "A cat sat down." "A cat was sitting."       how alike two texts are

MODEL is what `mini-bert finetune` wrote, or a folder of a published BertForSequenceClassification,
BertForTokenClassification or BertForQuestionAnswering. --file takes many at once, --json is for programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from mini_bert.common.progress import counted, showing
from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged, read_squad
from mini_bert.evaluation.metrics import entities
from mini_bert.finetuning.loop import predict
from mini_bert.finetuning.model import FineTuned, load
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.tag import Tag, spell_entities
from mini_bert.inference.embed import read_lines

WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")  # as most labelled data has words: punctuation apart
SHOWN = 3  # answers, or classes, that people see


def predictions(tuned: FineTuned, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """What the model says of each example, as plain values: label and probabilities; words and tags; answers; score"""
    model, task, tokenizer, length = tuned
    items = task.items(examples, tokenizer, length, training=False)
    found = task.join(examples, items, predict(model, task, items, tokenizer.pad_id))
    return [DESCRIBE[task.name](task, example, said) for example, said in zip(examples, found, strict=True)]


def _class(task: Classify, example: Labelled, probabilities: Any) -> dict[str, Any]:
    by_label = dict(zip(task.labels, probabilities.tolist(), strict=True))
    label = max(by_label, key=lambda name: by_label[name])
    texts = {"text": example.text} | ({} if example.second is None else {"second": example.second})
    return {**texts, "label": label, "probability": by_label[label], "probabilities": by_label}


def _tags(task: Tag, example: Tagged, probabilities: Any) -> dict[str, Any]:
    tags = task.tags(probabilities)
    found: dict[str, Any] = {"words": example.words, "tags": tags, "probabilities": probabilities.max(-1).tolist()}
    if spell_entities(task.labels):
        found["entities"] = [
            {"type": kind, "text": " ".join(example.words[first : last + 1]), "first": first, "last": last}
            for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1])
        ]
    return found


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


# ---------------------------------------------------------------------- the command


def predict_command(
    model: str,
    texts: Sequence[str] = (),
    file: str | None = None,
    question: str | None = None,
    context: str | None = None,
    pairs: bool = False,
    as_json: bool = False,
) -> None:
    """pairs: two texts are one example; a model that we fine-tuned knows that itself, a published one does not"""
    tuned = load(model)
    if pairs and tuned.task.name == "classify":
        tuned.task.pairs = True
    examples = gather(tuned.task, list(texts), file, question, context)
    with threadpool_limits(1, "blas"), showing(len(examples) > 500) as show:
        said: list[dict[str, Any]] = []
        for low in range(0, len(examples), 500):
            said += predictions(tuned, examples[low : low + 500])
            show("predicting", counted(len(said), "example"), len(said), len(examples))
    for found in said:
        print(json.dumps(found, ensure_ascii=False) if as_json else SAY[tuned.task.name](found))


def gather(task: Any, texts: list[str], file: str | None, question: str | None, context: str | None) -> list[Any]:
    """The examples that were typed, or of a file: a text a line; of pairs, two with a tab between; SQuAD's JSON"""
    if task.name == "qa":
        if file is not None and question is None and context is None and not texts:
            return read_squad(file, unanswered=True)
        if question is None or context is None or texts or file is not None:
            raise ValueError("this model answers questions: give --question and --context, or --file with SQuAD's JSON")
        if not question.strip() or not context.strip():
            raise ValueError("the question, or the text that should answer it, is empty")
        return [Question("1", question, context, [], [], 1)]
    if question is not None or context is not None:
        raise ValueError(f"this model is for {task.name}, not for questions; leave out --question and --context")
    if bool(texts) == (file is not None):
        raise ValueError("give texts, or --file with a text a line; one of them, and not both")
    pairs = task.name == "similarity" or (task.name == "classify" and task.pairs)
    if file is None and pairs:
        if len(texts) != 2:
            raise ValueError(f"this model compares two texts, and {counted(len(texts), 'text')} was given; give two")
        rows = [(1, texts)]
    elif file is None:
        rows = [(number, [text]) for number, text in enumerate(texts, 1)]
    else:
        rows = [(number, line.split("\t") if pairs else [line]) for number, line in enumerate(read_lines(file), 1)]
    for number, row in rows:
        if pairs and len(row) != 2:
            raise ValueError(f"{file}, text {number}: expected two texts with a tab between, found {row!r:.60}")
        if not all(text.strip() for text in row):
            raise ValueError(f"text {number} is empty; write one, or leave it out")
    if task.name == "similarity":
        return [Scored(row[0], row[1], 0.0, number) for number, row in rows]
    if task.name == "tag":
        return [Tagged(WORD.findall(row[0]), [], number) for number, row in rows]
    return [Labelled(row[0], row[1] if pairs else None, "", number) for number, row in rows]


def _say_class(found: dict[str, Any]) -> str:
    ranked = sorted(found["probabilities"].items(), key=lambda pair: -pair[1])[:SHOWN]
    text = found["text"] + (f"  |  {found['second']}" if "second" in found else "")
    return f"{', '.join(f'{label} {share:.1%}' for label, share in ranked)}    {text}"


def _say_tags(found: dict[str, Any]) -> str:
    width = max(map(len, found["words"]))
    lines = [
        f"{word:{width}}  {tag:12} {share:.1%}"
        for word, tag, share in zip(found["words"], found["tags"], found["probabilities"], strict=True)
    ]
    if "entities" in found:
        named = "; ".join(f"{entity['text']} ({entity['type']})" for entity in found["entities"])
        lines.append(f"-> {named or 'no name'}")
    return "\n".join([*lines, ""])


def _say_answer(found: dict[str, Any]) -> str:
    lines = [f"  {answer['probability']:6.1%}  {answer['answer']}" for answer in found["answers"][:SHOWN]]
    return "\n".join([found["question"], *lines])


def _say_score(found: dict[str, Any]) -> str:
    return f"{found['score']:.2f}    {found['first']}  |  {found['second']}"


SAY = {"classify": _say_class, "tag": _say_tags, "qa": _say_answer, "similarity": _say_score}
