"""Files and values that are damaged or made to do harm: one line per case."""

from making import Case, model

NAN, INF = float("nan"), float("inf")
ODD_EPS = '{"model_type": "mini_bert", "layer_norm_eps": 1e999}'
STRING_OF_TOKENS = '''{"added_tokens": "x", "model": {"type": "WordPiece", "vocab": {}},
"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
"post_processor": {"type": "BertProcessing"}}'''

HOSTILE = [
    Case("weights with a NaN", "embed --model {it} cat", 1, "NaN", it=model(weights=NAN)),
    Case("weights with an infinity", "embed --model {it} cat", 1, "inf", it=model(weights=INF)),
    Case("integer weights", "embed --model {it} cat", 1, "int64", it=model(weights=lambda a: a.astype("int64"))),
    Case("10**12 layers", "embed --model {it} cat", 1, "num_layers", it=model(config={"num_layers": 10**12})),
    Case("10**9 words", "embed --model {it} cat", 1, "vocab_size", it=model(config={"vocab_size": 10**9})),
    Case("100,000 brackets", "embed --model {it} cat", 1, "config.json.*nested", it=model(config="[" * 100_000)),
    Case("eps of infinity", "embed --model {it} cat", 1, "layer_norm_eps", it=model(config=ODD_EPS)),
    Case(
        "added tokens of a string", "embed --model {it} cat", 1, "added_tokens is 'x'",
        it=model(tokenizer={"tokenizer.json": STRING_OF_TOKENS}),
    ),
]  # fmt: skip
