"""What each route answers. A function takes a call, and returns a value for JSON, or JSON as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.common.extras import extra
from mini_bert.data.labelled.readers import Labelled, Question, Scored, Tagged
from mini_bert.evaluation.metrics import entities
from mini_bert.finetuning.predict import WORD
from mini_bert.finetuning.tasks.tag import spell_entities
from mini_bert.inference.fill_mask import Guess, best_guesses, filled_in, read_gaps
from mini_bert.layers.softmax import softmax
from mini_bert.serving.calls import Call, Limits
from mini_bert.serving.failures import Failure
from mini_bert.serving.metrics import NEEDED
from mini_bert.serving.served import Served, too_many_tokens

Entry = dict[str, Any]

# ---------------------------------------------------------------------- vectors


class Json(str):
    """JSON as text"""


def numbers(x: np.ndarray) -> str:
    """An array as JSON, with as many digits as identify a float32: a tenth of the time of Python's formatting."""
    orjson = extra("orjson", NEEDED)
    return orjson.dumps(np.ascontiguousarray(x), option=orjson.OPT_SERIALIZE_NUMPY).decode()


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
    vectors = shaped(await call.compute(call.served.vectors, rows), call["normalize"], call["dimensions"])
    return Json(numbers(vectors))


async def embed_all(call: Call) -> Json:
    rows = await call.rows(call["inputs"])
    texts = await call.compute(call.served.token_vectors, rows)

    def written() -> Json:
        return Json(f"[{','.join(map(numbers, texts))}]")

    return await call.apart(sum(text.size for text in texts), written)


async def embed_sparse(call: Call) -> Json:
    if call.served.filler is None:
        raise cannot(call, "sparse vectors: it has no head for masked words")
    rows = await call.rows(call["inputs"])
    texts = await call.compute(call.served.sparse, rows)

    def written() -> Json:
        parts = (zip(np.flatnonzero(text).tolist(), text[text != 0].tolist(), strict=True) for text in texts)
        lists = (",".join(f'{{"index":{i},"value":{value:.9g}}}' for i, value in part) for part in parts)
        return Json(f"[{','.join(f'[{one}]' for one in lists)}]")

    return await call.apart(sum(text.size for text in texts), written)


async def similarity(call: Call) -> list[float]:
    inputs = call["inputs"]
    call.check_count(inputs["sentences"], "sentences")
    texts = [inputs["source_sentence"], *inputs["sentences"]]
    rows = await call.read(call.served.rows, texts, call.truncate, call["truncation_direction"], call["prompt_name"])
    first, *others = shaped(await call.compute(call.served.vectors, rows), True, None)
    return [float(first @ other) for other in others]


async def openai_embed(call: Call) -> Json:
    rows = await call.rows(call["input"], "input")
    vectors = shaped(await call.compute(call.served.vectors, rows), True, call["dimensions"])
    written = base64_of if call["encoding_format"] == "base64" else numbers
    data = ",".join(
        f'{{"object":"embedding","index":{index},"embedding":{written(vector)}}}'
        for index, vector in enumerate(vectors)
    )
    usage = f'{{"prompt_tokens":{call.tokens},"total_tokens":{call.tokens}}}'
    return Json(f'{{"object":"list","data":[{data}],"model":{json.dumps(call.served.name)},"usage":{usage}}}')


def base64_of(vector: np.ndarray) -> str:
    return f'"{base64.b64encode(vector.astype("<f4").tobytes()).decode()}"'


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
    return call.served.task.join(examples, items, results)


async def predict(call: Call) -> Any:
    task = task_named(call, "predictions", "classify", "similarity")
    inputs = call["inputs"]
    batch = bool(inputs) and isinstance(inputs[0], list)
    pairs = inputs if batch else [[inputs] if isinstance(inputs, str) else inputs]
    call.check_count(pairs)
    if not all(all(text.strip() for text in pair) for pair in pairs):
        raise Failure("Empty", "`inputs` cannot be empty")
    results = await scores(call, pairs, call.truncate)
    ranked = [ranked_labels(task, result, "none" if call["raw_scores"] else "softmax") for result in results]
    return ranked if batch else ranked[0]


async def text_classification(call: Call) -> list[list[Entry]]:
    """The same as `predict`, in the form that huggingface_hub expects"""
    task = task_named(call, "predictions", "classify", "similarity")
    (result,) = await scores(call, [[call["inputs"]]], call.limits.auto_truncate)
    return [ranked_labels(task, result, call["function_to_apply"])[: call["top_k"]]]


async def scores(call: Call, pairs: Sequence[Sequence[str]], truncate: bool) -> list[Any]:
    if not truncate:
        await call.read(check_lengths, call.served, pairs)
    if call.served.task.name == "similarity":
        if not all(len(pair) == 2 for pair in pairs):
            raise Failure("Validation", "this model compares two texts; give pairs: [text, text]")
        return await task_results(call, [Scored(first, second, 0.0, 1) for first, second in pairs])
    return await task_results(call, [Labelled(pair[0], pair[1] if len(pair) == 2 else None, "", 1) for pair in pairs])


def check_lengths(served: Served, pairs: Sequence[Sequence[str]]) -> None:
    for pair in pairs:
        given = sum(map(len, served.tokenizer.ids(pair, special=False))) + served.tokenizer.added_count(len(pair))
        if given > served.length:
            raise too_many_tokens(served.length, given)


def ranked_labels(task: Any, result: Any, function: str) -> list[Entry]:
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


async def rerank(call: Call) -> list[Entry]:
    task = call.served.task
    if task is None or task.name != "similarity":
        raise cannot(call, "ranks: it is not a re-ranker, which scores pairs of texts")
    texts = call["texts"]
    call.check_count(texts, "texts")
    results = await scores(call, [(call["query"], text) for text in texts], call.truncate)
    function = "none" if call["raw_scores"] else "sigmoid"
    ranks: list[Entry] = [
        {
            "index": index,
            **({"text": text} if call["return_text"] else {}),
            "score": ranked_labels(task, result, function)[0]["score"],
        }
        for index, (text, result) in enumerate(zip(texts, results, strict=True))
    ]
    return sorted(ranks, key=lambda rank: -rank["score"])


async def token_classification(call: Call) -> Any:
    task = task_named(call, "tags", "tag")
    single = isinstance(call["inputs"], str)
    texts = [call["inputs"]] if single else call["inputs"]
    call.check_count(texts)
    found = [list(WORD.finditer(text)) for text in texts]
    if not all(found):
        raise Failure("Empty", "`inputs` has no words")
    results = await task_results(call, [Tagged([word[0] for word in words], [], 1) for words in found])
    kept = [
        tagged_words(call, task, text, [word.span() for word in words], result)
        for text, words, result in zip(texts, found, results, strict=True)
    ]
    return kept[0] if single else kept


def tagged_words(call: Call, task: Any, text: str, spans: list[tuple[int, int]], result: np.ndarray) -> list[Entry]:
    """Each word with its tag, or each entity with its type."""
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
    answers: list[Entry] = [
        {"score": rounded(span.probability), "start": span.start, "end": span.stop, "answer": span.text}
        for span in spans
    ]
    nothing: Entry = {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    return answers[: call["top_k"]] if call["top_k"] > 1 else (answers or [nothing])[0]


async def fill_mask(call: Call) -> Any:
    served = call.served
    if served.filler is None:
        raise cannot(call, "masked words: it has no head for them")
    single = isinstance(call["inputs"], str)
    texts = [call["inputs"]] if single else call["inputs"]
    call.check_count(texts)
    rows = await call.read(lambda: [read_gaps(served.filler, served.tokenizer, text) for text in texts])
    wanted = None if call["targets"] is None else [target_id(call, word) for word in call["targets"]]
    results = await call.compute(served.gaps, rows)
    filled = [
        [guesses(call, text, gap, place, wanted) for place, gap in enumerate(gaps)]
        for text, gaps in zip(texts, results, strict=True)
    ]
    simple = [one[0] if len(one) == 1 else one for one in filled]
    return simple[0] if single else simple


def target_id(call: Call, word: str) -> int:
    (row,) = call.served.tokenizer.split_ids([word])
    if len(row) != 1 or row[0] in call.served.tokenizer.special_ids:
        raise Failure("Validation", f"the target {word!r:.60} is not a single token of this model")
    return row[0]


def guesses(call: Call, text: str, probs: np.ndarray, place: int, wanted: list[int] | None) -> list[Entry]:
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


async def tokenize(call: Call) -> list[list[Entry]]:
    texts = [call["inputs"]] if isinstance(call["inputs"], str) else call["inputs"]
    call.check_count(texts)
    return await call.read(lambda: [tokens_of(call, text) for text in texts])


def tokens_of(call: Call, text: str) -> list[Entry]:
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


def info(limits: Limits, served: Served, version: str) -> Entry:
    """GET /info"""
    labels = list(enumerate(served.task.labels)) if served.task is not None else []
    kind: Entry = {"embedding": {"pooling": served.pooling}}
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
