"""The routes: what each is for, the fields of its requests, what it answers. /openapi.json and /docs show this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mini_bert.serving import answers, schemas, writing
from mini_bert.serving.calls import Call
from mini_bert.serving.schemas import Schema
from mini_bert.serving.served import Served


class Route(NamedTuple):
    path: str
    about: str
    request: Schema
    answer: Callable[[Call], Awaitable[Any]]
    example: Any  # of a request
    gives: Any  # an example of an answer
    openai: bool = False  # errors have OpenAI's form


VECTOR = [0.12, -0.05, 0.31]
RANKED = [{"score": 0.98, "label": "positive"}, {"score": 0.02, "label": "negative"}]
OPENAI_VECTORS = {
    "object": "list", "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}], "model": "mini-bert",
    "usage": {"prompt_tokens": 8, "total_tokens": 8},
}  # fmt: skip
COMPLETION = {
    "id": "cmpl-1", "object": "text_completion", "created": 0, "model": "gpt2",
    "choices": [{"index": 0, "text": " there was", "logprobs": None, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6},
}  # fmt: skip
HELLO = "What is deep learning?"

ROUTES = [
    Route("/embed", "A vector for each text.", schemas.EMBED, answers.embed, {"inputs": HELLO}, [VECTOR]),
    Route("/v1/embeddings", "A vector for each text, as OpenAI's clients ask for it; always of length 1.",
          schemas.OPENAI_EMBED, answers.openai_embed, {"input": HELLO}, OPENAI_VECTORS, True),
    Route("/embeddings", "The same as /v1/embeddings.", schemas.OPENAI_EMBED, answers.openai_embed, {"input": HELLO},
          OPENAI_VECTORS, True),
    Route("/embed_all", "A vector for each token of each text.", schemas.EMBED_TOKENS, answers.embed_all,
          {"inputs": HELLO}, [[VECTOR, VECTOR]]),
    Route("/embed_sparse", "The words that each text is about, with weights. For models that fill gaps.",
          schemas.EMBED_TOKENS, answers.embed_sparse, {"inputs": HELLO}, [[{"index": 1045, "value": 0.7}]]),
    Route("/predict", "Classes of texts or pairs, best first. For fine-tuned models.", schemas.PREDICT, answers.predict,
          {"inputs": "I like you."}, RANKED),
    Route("/text-classification", "The same as /predict, in the form that huggingface_hub expects.", schemas.CLASSIFY,
          answers.text_classification, {"inputs": "I like you."}, [RANKED]),
    Route("/rerank", "Texts by how well they match a query. For models that score pairs.", schemas.RERANK,
          answers.rerank, {"query": HELLO, "texts": ["Cheese is yellow.", "Learning with deep networks."]},
          [{"index": 1, "score": 0.99}, {"index": 0, "score": 0.01}]),
    Route("/similarity", "The cosines of a sentence with others.", schemas.SIMILARITY, answers.similarity,
          {"inputs": {"source_sentence": HELLO, "sentences": ["What is machine learning?", "Cheese is yellow."]}},
          [0.81, 0.04]),
    Route("/fill-mask", "Words for the gaps of a text. For models that fill gaps.", schemas.FILL, answers.fill_mask,
          {"inputs": "The cat sat on the [MASK]."},
          [{"score": 0.2, "token": 812, "token_str": "floor", "sequence": "The cat sat on the floor."}]),
    Route("/token-classification", "Entities, or the tag of each word. For taggers.", schemas.TAG,
          answers.token_classification, {"inputs": "Ada lives in London."},
          [{"entity_group": "PER", "score": 0.99, "word": "Ada", "start": 0, "end": 3}]),
    Route("/question-answering", "The answer to a question, from a text. For models fine-tuned on questions.",
          schemas.ANSWER, answers.question_answering,
          {"inputs": {"question": "Where does Ada live?", "context": "Ada lives in London."}},
          {"score": 0.9, "start": 13, "end": 19, "answer": "London"}),
    Route("/tokenize", "The tokens of texts.", schemas.TOKENIZE, answers.tokenize, {"inputs": HELLO},
          [[{"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}]]),
    Route("/decode", "The text of tokens.", schemas.DECODE, answers.decode, {"ids": [5, 6, 7]}, ["a text"]),
    Route("/generate", "Text that follows. For models that predict the next word.", schemas.GENERATE,
          writing.generate_text, {"inputs": "Once upon a time"}, {"generated_text": " there was"}),
    Route("/generate_stream", "The same, sent as it is written: server-sent events.", schemas.GENERATE,
          writing.generate_stream, {"inputs": "Once upon a time"}, "data: {\"token\": {\"text\": \" there\"}, …}"),
    Route("/v1/completions", "Text that follows, as OpenAI's clients ask for it; also as a stream.",
          schemas.OPENAI_COMPLETE, writing.complete, {"prompt": "Once upon a time"}, COMPLETION, True),
]  # fmt: skip
BY_PATH = {route.path: route for route in ROUTES}
TASKS = {"classify": "/predict", "similarity": "/rerank", "tag": "/token-classification", "qa": "/question-answering"}


def main_route(served: Served) -> Route:
    """What POST / does with a model: what it was made for"""
    if served.task is None:
        return BY_PATH["/generate" if served.writes else "/embed"]
    return BY_PATH["/embed" if getattr(served.task, "vectors", False) else TASKS[served.task.name]]


def is_openai(path: str) -> bool:
    return path.startswith("/v1/") or path.endswith(("/v1/embeddings", "/v1/completions", "/embeddings"))
