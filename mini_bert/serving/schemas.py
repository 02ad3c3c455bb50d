"""Requests as JSON Schema. One table describes the fields of every route, checks requests, and is shown at /docs.

    request = checked({"inputs": "a text", "normalize": None}, EMBED)       fields with their defaults, or a Failure

Only what the table needs of JSON Schema is here: type, anyOf, enum, minimum, maximum, items, minItems, maxItems,
properties, required, default. Fields that are not in the table are ignored, as the servers do that clients are written
for; null means the default. Clients of Hugging Face put options into an object `parameters`, others beside the inputs:
both are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mini_bert.serving.failures import Failure

Schema = dict[str, Any]
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "array": (list,),
    "object": (dict,),
}  # fmt: skip
MOST_WRITTEN = 4096  # tokens that a model may be asked to write
MOST_WORDS = 1000  # guesses for a gap, or words to choose from


def checked(request: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The fields of a request, with defaults for those that are missing."""
    parameters = request.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise Failure("Validation", f"`parameters` is {parameters!r:.60}, expected an object with options")
    given = {**request, **parameters}
    values = {}
    for name, field in schema["properties"].items():
        value = given.get(name)
        if value is None:
            if name in schema["required"]:
                raise Failure("Validation", f"the request has no `{name}`; add it: {field.get('description', '')}")
            values[name] = field.get("default")
            continue
        wrong = problem(value, field, f"`{name}`")
        if wrong:
            raise Failure("Validation", wrong)
        values[name] = value
    return values


def problem(value: Any, schema: Schema, name: str) -> str | None:
    """What is wrong with a value, in a sentence; None if nothing is."""
    if "anyOf" in schema:
        if any(problem(value, one, name) is None for one in schema["anyOf"]):
            return None
        return f"{name} is {value!r:.60}, expected {', or '.join(map(expected, schema['anyOf']))}"
    kinds = TYPES[schema["type"]]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return f"{name} is {value!r:.60}, expected {expected(schema)}"
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    if schema["type"] in ("integer", "number") and not low <= value <= high:
        return f"{name} is {value!r:.60}, expected {expected(schema)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} is {value!r:.60}, expected one of {', '.join(schema['enum'])}"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{name} has {len(value)} elements, expected {expected(schema)}"
        for place, one in enumerate(value):
            wrong = problem(one, schema["items"], f"{name}[{place}]")
            if wrong:
                return wrong
    given: dict[str, Any] = value if isinstance(value, dict) else {}
    for part, inner in schema.get("properties", {}).items():
        if part in given:
            wrong = problem(given[part], inner, f"{name}.{part}")
        else:
            wrong = f"{name} has no `{part}`" if part in schema["required"] else None
        if wrong:
            return wrong
    return None


def expected(schema: Schema) -> str:
    """What a schema asks for, in words."""
    if "title" in schema:
        return str(schema["title"])
    words = {"string": "a text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
             "array": "a list", "object": "an object"}[schema["type"]]  # fmt: skip
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        return f"{words} from {low:g} to {high:g}"
    return words if low is None else f"{words} of at least {low:g}"


# ---------------------------------------------------------------------- the fields


def fields(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def field(kind: str, about: str, default: Any = None, **more: Any) -> Schema:
    return {"type": kind, "description": about, **({} if default is None else {"default": default}), **more}


TEXT: Schema = {"type": "string", "title": "a text"}
TEXTS: Schema = {"type": "array", "items": TEXT, "title": "a list of texts"}
WORDS: Schema = TEXTS | {"maxItems": MOST_WORDS, "title": f"a list of at most {MOST_WORDS:,} words"}
IDS: Schema = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "title": "a list of token ids"}
INPUTS: Schema = {
    "description": "a text, its token ids, or a list of either",
    "anyOf": [
        TEXT,
        IDS,
        {"type": "array", "items": {"anyOf": [TEXT, IDS]}, "title": "a list of texts or of lists of token ids"},
    ],
}
PAIR: Schema = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2, "title": "a text or a pair in a list"}
TRUNCATE = field("boolean", "cut texts that are too long instead of refusing them; default: as the server was started")
DIRECTION = field("string", "the side that is cut", "right", enum=["left", "right"])
DIMENSIONS = field("integer", "keep only this many numbers of each vector", minimum=1)
RAW = field("boolean", "scores as the model computes them, not as probabilities", False)
MODEL = field("string", "the name of a model, if there are several; default: the first")
SEED = field("integer", "of the random numbers; default: another one each time", minimum=0, maximum=(1 << 63) - 1)
TOP = field("integer", "how many answers", 5, minimum=1, maximum=MOST_WORDS)
READ = {
    "truncate": TRUNCATE,
    "truncation_direction": DIRECTION,
    "prompt_name": field("string", "a prompt of the model's config_sentence_transformers.json to put before each text"),
    "model": MODEL,
}
NORMALIZE = field("boolean", "vectors of length 1", True)

EMBED = fields("inputs", inputs=INPUTS, normalize=NORMALIZE, dimensions=DIMENSIONS, **READ)
EMBED_TOKENS = fields("inputs", inputs=INPUTS, **READ)
PREDICT = fields(
    "inputs",
    inputs={
        "description": "a text, a pair of texts, or a list of [text] and [text, text]",
        "anyOf": [TEXT, PAIR, {"type": "array", "items": PAIR, "title": "a list of [text] and [text, text]"}],
    },
    raw_scores=RAW,
    truncate=TRUNCATE,
    model=MODEL,
)
CLASSIFY = fields(
    "inputs",
    inputs=TEXT | {"description": "a text"},
    top_k=field("integer", "how many classes, the likeliest first; default: all", minimum=1),
    function_to_apply=field("string", "none: raw scores", "softmax", enum=["softmax", "sigmoid", "none"]),
    model=MODEL,
)
RERANK = fields(
    "query",
    "texts",
    query=TEXT | {"description": "what is searched for"},
    texts=TEXTS | {"description": "what was found"},
    raw_scores=RAW,
    return_text=field("boolean", "repeat the texts in the answer", False),
    truncate=TRUNCATE,
    model=MODEL,
)
SIMILARITY = fields(
    "inputs",
    inputs=fields("source_sentence", "sentences", source_sentence=TEXT, sentences=TEXTS)
    | {"description": "a sentence, and those to compare it with"},
    **READ,
)
TOKENIZE = fields(
    "inputs",
    inputs={"description": "a text, or a list of texts", "anyOf": [TEXT, TEXTS]},
    add_special_tokens=field("boolean", "with the special tokens around a text", True),
    model=MODEL,
)
DECODE = fields(
    "ids",
    ids={
        "description": "token ids, or a list of such lists",
        "anyOf": [IDS, {"type": "array", "items": IDS, "title": "a list of lists of token ids"}],
    },
    skip_special_tokens=field("boolean", "leave special tokens out", True),
    model=MODEL,
)
FILL = fields(
    "inputs",
    inputs={"description": "a text with the mask token in it, or a list of such texts", "anyOf": [TEXT, TEXTS]},
    top_k=TOP,
    targets=WORDS | {"description": "only these words"},
    model=MODEL,
)
TAG = fields(
    "inputs",
    inputs={"description": "a text, or a list of texts", "anyOf": [TEXT, TEXTS]},
    aggregation_strategy=field(
        "string", "none: every word; else words that form an entity together", "simple",
        enum=["none", "simple", "first", "average", "max"],
    ),
    ignore_labels=WORDS | {"description": "tags to leave out", "default": ["O"]},
    model=MODEL,
)  # fmt: skip
ANSWER = fields(
    "inputs",
    inputs=fields("question", "context", question=TEXT, context=TEXT)
    | {"description": "a question, and the text that answers it"},
    top_k=field("integer", "how many answers; more than one: a list", 1, minimum=1, maximum=20),
    model=MODEL,
)
GENERATE = fields(
    "inputs",
    inputs=TEXT | {"description": "the beginning of a text"},
    max_new_tokens=field("integer", "tokens to write", 20, minimum=1, maximum=MOST_WRITTEN),
    do_sample=field("boolean", "draw; else, without a temperature, always the likeliest token", False),
    temperature=field("number", "below 1: safer words; 0: always the likeliest", minimum=0, maximum=100),
    top_k=field("integer", "draw from this many of the likeliest tokens only", minimum=1),
    top_p=field("number", "draw from the fewest tokens with this probability together", minimum=0, maximum=1),
    seed=SEED,
    stop=TEXTS | {"description": "end before any of these", "default": [], "maxItems": 8},
    return_full_text=field("boolean", "repeat the beginning", False),
    details=field("boolean", "why and after how many tokens it ended", False),
    stream=field("boolean", "send the text as it is written", False),
    model=MODEL,
)
OPENAI_EMBED = fields(
    "input",
    input=INPUTS,
    encoding_format=field("string", "base64: float32, little-endian", "float", enum=["float", "base64"]),
    dimensions=DIMENSIONS,
    model=MODEL,
    user=field("string", "not used"),
)
OPENAI_COMPLETE = fields(
    "prompt",
    prompt=TEXT | {"description": "the beginning of a text"},
    max_tokens=field("integer", "tokens to write", 16, minimum=1, maximum=MOST_WRITTEN),
    temperature=field("number", "below 1: safer words; 0: always the likeliest", 1.0, minimum=0, maximum=100),
    top_p=field("number", "draw from the fewest tokens with this probability together", 1.0, minimum=0, maximum=1),
    seed=SEED,
    stop={
        "description": "end before this text, or any of these",
        "default": [],
        "anyOf": [TEXT, TEXTS | {"maxItems": 8}],
    },
    n=field("integer", "texts to write", 1, minimum=1, maximum=1),
    echo=field("boolean", "repeat the beginning", False),
    stream=field("boolean", "send the text as it is written", False),
    model=MODEL,
)
