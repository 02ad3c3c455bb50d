"""Files and values that are damaged or made to do harm: one line per case."""

from making import Case, file, model, tarred, zipped

NAN, INF = float("nan"), float("inf")
ODD_EPS = '{"model_type": "mini_bert", "layer_norm_eps": 1e999}'
STRING_OF_TOKENS = '''{"added_tokens": "x", "model": {"type": "WordPiece", "vocab": {}},
"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
"post_processor": {"type": "BertProcessing"}}'''
TOO_LARGE = '{"model_type": "mini_bert", "hidden_size": 8192, "intermediate_size": 32768, "num_heads": 8}'
TEXT = file("a.txt", "the cat sat on a mat .\n\n" * 200)


def bomb(folder):  # made only when it is needed: 73 MB of content
    return zipped("a.zip", a__txt=b"bomb " * (14 << 20))(folder)


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
    Case(
        "a model larger than the memory", "train --model {it} --corpus {text} --steps 1", 1,
        r"not enough memory: training this model with these settings needs about [\d,]{6} MB.*plan --model",
        it=file("config.json", TOO_LARGE), text=TEXT,
    ),
    Case(
        "broken word frequencies", "eval {m} --corpus {it}", 1, "word_frequencies.safetensors is not a complete",
        it=file("a.txt", "the cat sat on a mat . " * 200), m=model(tokenizer={"word_frequencies.safetensors": b"junk"}),
    ),
    Case("a zip bomb", "data show {it}", 1, "decompression bomb", it=bomb),
    Case("a zip in a zip", "data show {it}", 1, "an archive in an archive", it=zipped("a.zip", b__zip=b"PK")),
    Case("a zip that leads out", "data show {it}", 1, "leads out", it=zipped("a.zip", **{"../x.txt": b"x"})),
    Case("a zip that is none", "data show {it}", 1, "a.zip is not a complete archive", it=file("a.zip", "no")),
    Case("a tar that is none", "data show {it}", 1, "a.tar is not a complete archive", it=file("a.tar", "no")),
    Case("a tar.gz that is none", "data show {it}", 1, "not a gzip file", it=file("a.tar.gz", "no")),
    Case("a tar of pictures", "data show {it}", 1, ".png is not a known type", it=tarred("a.tar", a__png=b"x")),
]  # fmt: skip
