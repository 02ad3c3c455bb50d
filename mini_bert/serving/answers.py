"""What each route answers. A function takes a call, and returns a value for JSON, or JSON as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged
from mini_bert.evaluation.metrics import entities
from mini_bert.finetuning.predict import WORD
from mini_bert.finetuning.tasks.tag import spell_entities
from mini_bert.inference.fill_mask import Guess, best_guesses, filled_in, read_gaps
from mini_bert.layers.softmax import softmax
from mini_bert.serving.calls import Call, Limits
from mini_bert.serving.failures import Failure
from mini_bert.serving.json_text import OBJECT, Json, base64_of, numbers, written
from mini_bert.serving.served import Served, too_many_tokens

JsonObject = dict[str, Any]
MOST_CHARACTERS = 20_000_000  # characters of an answer, about

# ---------------------------------------------------------------------- vectors


def shaped(vectors: Sequence[np.ndarray], normalize: bool, dimensions: int | None) -> np.ndarray:
    """Vectors (N,H), cut to their first numbers, and of length 1."""
    x = np.stack(vectors)
    if dimensions is not None:
        if dimensions > x.shape[1]:
            raise Failure("Validation", f"`dimensions` is {dimensions}, but the vectors have {x.shape[1]} numbers")
        x = x[:, :dimensions]
    if not normalize:
        return x
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(lengths > 0, lengths, 1)


async def embed(call: Call) -> Json:
    rows = await call.rows(call["inputs"])
    vectors = await call.compute(call.served.vectors, rows)

    def answer() -> Json:
        return Json(numbers(shaped(vectors, call["normalize"], call["dimensions"])))

    return await call.in_thread_if_large(len(vectors) * vectors[0].size, answer)


async def embed_all(call: Call) -> Json:
    rows = await call.rows(call["inputs"])
    texts = await call.compute(call.served.token_vectors, rows)

    def answer() -> Json:
        return Json(f"[{','.join(map(numbers, texts))}]")

    return await call.in_thread_if_large(sum(text.size for text in texts), answer)


async def embed_sparse(call: Call) -> Json:
    if call.served.filler is None:
        raise cannot(call, "sparse vectors: it has no head for masked words")
    rows = await call.rows(call["inputs"])
    texts = await call.compute(call.served.sparse, rows)

    def answer() -> Json:
        parts = (zip(np.flatnonzero(text).tolist(), text[text != 0].tolist(), strict=True) for text in texts)
        lists = (",".join(f'{{"index":{i},"value":{value:.9g}}}' for i, value in part) for part in parts)
        return Json(f"[{','.join(f'[{one}]' for one in lists)}]")

    return await call.in_thread_if_large(sum(text.size for text in texts), answer)


async def similarity(call: Call) -> list[float]:
    inputs = call["inputs"]
    call.check_count(inputs["sentences"], "sentences")
    texts = [inputs["source_sentence"], *inputs["sentences"]]
    rows = await call.read(call.served.rows, texts, call.truncate, call["truncation_direction"], call["prompt_name"])
    first, *others = shaped(await call.compute(call.served.vectors, rows), True, None)
    return [float(first @ other) for other in others]


async def openai_embed(call: Call) -> Json:
    rows = await call.rows(call["input"], "input")
    vectors = await call.compute(call.served.vectors, rows)
    spell = base64_of if call["encoding_format"] == "base64" else numbers
    usage = f'{{"prompt_tokens":{call.tokens},"total_tokens":{call.tokens}}}'

    def answer() -> Json:
        data = ",".join(
            f'{{"object":"embedding","index":{index},"embedding":{spell(vector)}}}'
            for index, vector in enumerate(shaped(vectors, True, call["dimensions"]))
        )
        return Json(f'{{"object":"list","data":[{data}],"model":{json.dumps(call.served.name)},"usage":{usage}}}')

    return await call.in_thread_if_large(len(vectors) * vectors[0].size, answer)


# ---------------------------------------------------------------------- tasks


def cannot(call: Call, what: str) -> Failure:
    return Failure("Backend", f"the model {call.served.name} cannot give {what}")


def task_named(call: Call, what: str, *names: str) -> Any:
    """The task of the model, if it is one of these."""
    task = call.served.task
    if task is None or task.name not in names:
        made = "was not fine-tuned" if task is None else f"was fine-tuned for {task.name}"
        raise cannot(call, f"{what}: it {made}")
    return task


async def task_results(call: Call, examples: list[Any]) -> list[Any]:
    """The prediction for each example; windows of long texts are joined."""
    items = await call.read(call.served.items, examples)
    results = await call.compute(call.served.task_results, items, [item.length for item in items])
    return await call.in_thread_if_large(call.size, call.served.task.join, examples, items, results)


async def predict(call: Call) -> Any:
    task = task_named(call, "predictions", "classify", "similarity")
    inputs = call["inputs"]
    batch = isinstance(inputs, list) and not (inputs and isinstance(inputs[0], str))
    pairs = inputs if batch else [[inputs] if isinstance(inputs, str) else inputs]
    call.check_count(pairs)
    results = await scores(call, pairs)

    def answer() -> Any:
        ranked = [ranked_labels(task, result, "none" if call["raw_scores"] else "softmax") for result in results]
        return ranked if batch else ranked[0]

    return await written(call, OBJECT * len(pairs) * len(task.labels), answer)


async def text_classification(call: Call) -> list[list[JsonObject]]:
    """The same as `predict`, in the form that huggingface_hub expects"""
    task = task_named(call, "predictions", "classify", "similarity")
    (result,) = await scores(call, [[call["inputs"]]])
    return [ranked_labels(task, result, call["function_to_apply"])[: call["top_k"]]]


async def scores(call: Call, pairs: Sequence[Sequence[str]]) -> list[Any]:
    if not all(text.strip() for pair in pairs for text in pair):
        raise Failure("Empty", "`inputs` cannot be empty: a text has no words; leave it out")
    if not call.truncate:
        await call.read(check_lengths, call.served, pairs)
    if call.served.task.name == "similarity":
        if call.served.task.pairs and not all(len(pair) == 2 for pair in pairs):
            raise Failure("Validation", "this model compares two texts; give pairs: [text, text]")
        return await task_results(call, [Scored(pair[0], "".join(pair[1:]), 0.0, 1) for pair in pairs])
    return await task_results(call, [Labelled(pair[0], pair[1] if len(pair) == 2 else None, "", 1) for pair in pairs])


def check_lengths(served: Served, pairs: Sequence[Sequence[str]]) -> None:
    for pair in pairs:
        given = sum(map(len, served.tokenizer.ids(pair, special=False))) + served.tokenizer.added_count(len(pair))
        if given > served.length:
            raise too_many_tokens(served.length, given)


def ranked_labels(task: Any, result: Any, function: str) -> list[JsonObject]:
    """Labels with their scores, best first. A model with one label gives one score, for which σ is the softmax."""
    raw: np.ndarray = np.atleast_1d(np.asarray(result, np.float32))
    if function == "none":
        values = raw
    elif function == "sigmoid" or raw.size == 1:
        values = (1 / (1 + np.exp(-raw))).astype(raw.dtype)
    else:
        values = softmax(raw[None])[0][0]
    labels = task.labels or ["score"]
    return [{"score": rounded(values[i]), "label": labels[i]} for i in np.argsort(-values, kind="stable").tolist()]


def rounded(value: Any) -> float:
    return float(f"{float(value):.9g}")


async def rerank(call: Call) -> list[JsonObject]:
    task = call.served.task
    if task is None or task.name != "similarity":
        raise cannot(call, "ranks: it is not a re-ranker, which scores pairs of texts")
    texts = call["texts"]
    call.check_count(texts, "texts")
    results = await scores(call, [(call["query"], text) for text in texts])
    function = "none" if call["raw_scores"] else "sigmoid"
    ranks: list[JsonObject] = [
        {
            "index": index,
            **({"text": text} if call["return_text"] else {}),
            "score": ranked_labels(task, result, function)[0]["score"],
        }
        for index, (text, result) in enumerate(zip(texts, results, strict=True))
    ]
    return sorted(ranks, key=lambda rank: -rank["score"])


async def token_classification(call: Call) -> Json:
    task = task_named(call, "tags", "tag")
    single = isinstance(call["inputs"], str)
    texts = [call["inputs"]] if single else call["inputs"]
    call.check_count(texts)
    words = await call.read(lambda: [list(WORD.finditer(text)) for text in texts])
    if not all(words):
        raise Failure("Empty", "`inputs` has no words")
    results = await task_results(call, [Tagged([word[0] for word in some], [], 1) for some in words])

    def answer() -> Any:
        tagged = [tagged_words(call, task, *one) for one in zip(texts, words, results, strict=True)]
        return tagged[0] if single else tagged

    return await written(call, OBJECT * sum(map(len, words)), answer)


def tagged_words(
    call: Call, task: Any, text: str, words: Sequence[re.Match[str]], result: np.ndarray
) -> list[JsonObject]:
    """Each word with its tag, or each entity with its type."""
    spans = [word.span() for word in words]
    tags, best = task.tags(result), result.max(-1)
    key, parts = "entity", [(tag, place, place) for place, tag in enumerate(tags)]
    if call["aggregation_strategy"] != "none":
        key = "entity_group"
        if spell_entities(task.labels):
            parts = sorted(entities(tags), key=lambda part: part[1])
    return [
        {key: kind, "score": rounded(best[first : last + 1].mean()), "word": text[spans[first][0] : spans[last][1]],
         "start": spans[first][0], "end": spans[last][1]}
        for kind, first, last in parts if kind not in call["ignore_labels"]
    ]  # fmt: skip


async def question_answering(call: Call) -> Any:
    task_named(call, "answers", "qa")
    question, context = call["inputs"]["question"], call["inputs"]["context"]
    if not question.strip() or not context.strip():
        raise Failure("Empty", "the question or the context is empty")
    (spans,) = await task_results(call, [Question("1", question, context, [], [], 1)])
    answers: list[JsonObject] = [
        {"score": rounded(span.probability), "start": span.start, "end": span.stop, "answer": span.text}
        for span in spans
    ]
    nothing: JsonObject = {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    return answers[: call["top_k"]] if call["top_k"] > 1 else (answers or [nothing])[0]


async def fill_mask(call: Call) -> Json:
    served = call.served
    if served.filler is None:
        raise cannot(call, "masked words: it has no head for them")
    single = isinstance(call["inputs"], str)
    texts = [call["inputs"]] if single else call["inputs"]
    call.check_count(texts)

    def read() -> tuple[list[list[int]], list[int] | None]:
        wanted = None if call["targets"] is None else [target_id(call, word) for word in call["targets"]]
        return [read_gaps(served.filler, served.tokenizer, text) for text in texts], wanted

    rows, wanted = await call.read(read)
    size = check_guesses(call, texts, [row.count(served.tokenizer.mask_id) for row in rows])
    results = await call.compute(served.gaps, rows)

    def answer() -> Any:
        filled = [
            [guesses(call, text, gap, place, wanted) for place, gap in enumerate(gaps)]
            for text, gaps in zip(texts, results, strict=True)
        ]
        simple = [one[0] if len(one) == 1 else one for one in filled]
        return simple[0] if single else simple

    return await written(call, size, answer)


def check_guesses(call: Call, texts: Sequence[str], gaps: Sequence[int]) -> int:
    """The size of the answer, in characters, about: each guess repeats its text. To find the best words for a gap, the
    whole vocabulary is sorted, which takes as long as writing a character for each word."""
    words = call.served.tokenizer.vocab_size
    top = min(call["top_k"], words)
    size = sum(count * (words + top * (len(text) + OBJECT)) for text, count in zip(texts, gaps, strict=True))
    if size > MOST_CHARACTERS:
        raise Failure(
            "Validation",
            f"{sum(gaps):,} gaps with `top_k` {top:,} in texts of {sum(map(len, texts)):,} characters are too many for "
            "one request, whose answer repeats a text for each word; lower `top_k`, or send fewer gaps at once",
        )
    return size


def target_id(call: Call, word: str) -> int:
    (row,) = call.served.tokenizer.split_ids([word])
    if len(row) != 1 or row[0] in call.served.tokenizer.special_ids:
        raise Failure("Validation", f"the target {word!r:.60} is not a single token of this model")
    return row[0]


def guesses(call: Call, text: str, probs: np.ndarray, place: int, wanted: list[int] | None) -> list[JsonObject]:
    """The best words for one gap. The other gaps stay in the text."""
    tokenizer = call.served.tokenizer
    if wanted is None:
        best = best_guesses(tokenizer, probs, call["top_k"])
    else:
        best = sorted((Guess("", float(probs[i]), i) for i in dict.fromkeys(wanted)), key=lambda one: -one.probability)
    return [
        {"score": rounded(one.probability), "token": one.id, "token_str": tokenizer.piece_text(one.id),
         "sequence": filled_in(tokenizer, text, [*[None] * place, one.id])}
        for one in best[: call["top_k"]]
    ]  # fmt: skip


# ---------------------------------------------------------------------- the tokenizer alone


async def tokenize(call: Call) -> Json:
    texts = [call["inputs"]] if isinstance(call["inputs"], str) else call["inputs"]
    call.check_count(texts)
    tokens = await call.read(lambda: [tokens_of(call, text) for text in texts])
    return await written(call, OBJECT * sum(map(len, tokens)), lambda: tokens)


def tokens_of(call: Call, text: str) -> list[JsonObject]:
    tokenizer = call.served.tokenizer
    (encoding,) = tokenizer.encode_batch([text], call["add_special_tokens"], special=False)
    return [
        {"id": i, "text": token, "special": True, "start": None, "stop": None} if word is None else
        {"id": i, "text": text[start:stop], "special": False, "start": start, "stop": stop}
        for i, token, word, (start, stop) in zip(
            encoding.ids, encoding.tokens, encoding.word_ids, encoding.offsets, strict=True
        )
    ]  # fmt: skip


async def decode(call: Call) -> list[str]:
    rows = [call["ids"]] if call["ids"] and isinstance(call["ids"][0], int) else call["ids"]
    call.check_count(rows, "ids")
    return await call.read(lambda: [call.served.tokenizer.decode(row, call["skip_special_tokens"]) for row in rows])


def info(limits: Limits, served: Served, version: str) -> JsonObject:
    """GET /info"""
    labels = list(enumerate(served.task.labels)) if served.task is not None else []
    kind: JsonObject = {"embedding": {"pooling": ",".join(served.pooling)}}
    if labels:
        names = {"id2label": {str(i): label for i, label in labels}, "label2id": {label: i for i, label in labels}}
        kind = {"reranker" if served.task.name == "similarity" else "classifier": names}
    return {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": str(served.model.dtype),
        "model_type": kind,
        "max_concurrent_requests": limits.max_concurrent_requests,
        "max_input_length": served.model.max_length,
        "max_batch_tokens": limits.max_batch_tokens,
        "max_client_batch_size": limits.max_client_batch_size,
        "auto_truncate": limits.auto_truncate,
        "tokenization_workers": 1,
        "version": version,
    }
