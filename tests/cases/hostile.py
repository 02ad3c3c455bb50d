"""Files and values that are damaged or made to do harm: one line per case."""

from making import Case, file, model

NAN, INF = float("nan"), float("inf")
ODD_EPS = '{"model_type": "mini_bert", "layer_norm_eps": 1e999}'
STRING_OF_TOKENS = '{"added_tokens": "x", "model": {"type": "WordPiece", "vocab": {}}}'
TOO_LARGE = '{"model_type": "mini_bert", "hidden_size": 8192, "intermediate_size": 32768, "num_heads": 8}'
TEXT = file("a.txt", "the cat sat on a mat .\n\n" * 200)

HOSTILE = [
    Case("weights with a NaN", "embed --model {it} cat", 1, "NaN", it=model(weights=NAN)),
    Case("weights with an infinity", "embed --model {it} cat", 1, "inf", it=model(weights=INF)),
    Case("integer weights", "embed --model {it} cat", 1, "int64", it=model(weights=lambda a: a.astype("int64"))),
    Case("10**12 layers", "embed --model {it} cat", 1, "num_layers", it=model(config={"num_layers": 10**12})),
    Case("10**9 words", "embed --model {it} cat", 1, "vocab_size", it=model(config={"vocab_size": 10**9})),
    Case("100,000 brackets", "embed --model {it} cat", 1, "config.json.*nested", it=model(config="[" * 100_000)),
    Case("eps of infinity", "embed --model {it} cat", 1, "layer_norm_eps", it=model(config=ODD_EPS)),
    Case(
        "added_tokens of a string", "embed --model {it} cat", 1, "added_tokens",
        it=model(tokenizer={"tokenizer.json": STRING_OF_TOKENS}),
    ),
    Case(
        "a model larger than the memory", "train --model {it} --corpus {text} --steps 1", 1,
        r"not enough memory: training this model with these settings needs about [\d,]{6} MB.*plan --model",
        it=file("config.json", TOO_LARGE), text=TEXT,
    ),
]  # fmt: skip
