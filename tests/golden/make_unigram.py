"""Writes tests/golden/unigram_cases.json: the output of three libraries for odd texts, with vocabularies made here.

    python tests/golden/make_unigram.py        needs sentencepiece and transformers (made with 0.2.2 and 4.57.6)

The tokenizers of ALBERT and XLNet that call SentencePiece themselves are only in `transformers` 4; use an environment
of its own. With these cases, the default tests compare without the libraries.
"""

import base64
import io
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from sentencepiece import sentencepiece_model_pb2

WORDS = [
    *("the", "a", "of", "and", "in", "to", "was", "zoe", "zebra", "banana", "bananas", "unaffable", "able", "table"),
    *("straße,", "2000,", "1,234.56", "12,", "(so)", '"quoted"', "don't", "--", "£5", "café", "finally", "1⁄2", "aaaa"),
    *("aaa", "ababab", "hello", "world.", "日本", "東京", "русский"),
]
RULES = {
    "ﬁ": "fi", "½": "1⁄2", "e\u0301": "é", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u00ad": "", "\x01": "",
    "①": "1", "\u00a8": " \u0308", "ｈ": "h", "か\u3099": "が", "\ufffd": " ", "…": "...",
}  # fmt: skip
MODELS = {
    "albert": {
        "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "user_defined_symbols": ["(", ")", '"', "-", "££"],
    },
    "xlnet": {
        "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": 5,
        "control_symbols": ["<cls>", "<sep>", "<mask>", "<eod>", "<eop>"],
    },
    "deberta": {
        "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
        "eos_piece": "[SEP]", "unk_piece": "[UNK]",
    },
    "bytes": {"byte_fallback": True, "vocab_size": 390, "remove_extra_whitespaces": False},
    "suffix": {"treat_whitespace_as_suffix": True, "add_dummy_prefix": True},
    "across words": {"split_by_whitespace": False, "add_dummy_prefix": False},
}  # fmt: skip
TEXTS = [
    *("", " ", "  ", "the zebra", "  two  spaces\tand\ttabs\r\n", "unaffable bananas, the table.", "\u00a0the\u3000a "),
    *(
        "Hello World",
        "Zoë ZOË zoe\u0301",
        "cafe\u0301 café CAFÉ",
        "ﬁnally ½ ① \u00a8",
        "soft\u00adhyphen \x01\x01",
        "…so…",
    ),
    *("2000, 1,234.56 12, 1,2,3,", "``quoted'' ''so''", '(so) -- "the" ££5 £££', "don't", "日本 東京x русский 한국"),
    *("aaa aaaa aaaaaaaaa ababababab", "a" * 70, "ab" * 40 + " " + "aab" * 30, "banana" * 12, "the " * 60 + "aaa aaaa"),
    *("▁the ▁ ▁▁a▁", "the▁", "\ufffd \ufeffx", "がか\u3099", "ΟΔΟΣ οδος", "İstanbul", "null\x00x", "👩🏽\u200d🚒🇩🇪"),
    *("[CLS] the [MASK] [SEP]", "<sep> the <mask>", "<unk> <pad> [UNK]", "\u0344\u0340 \u0340\u0341a", "e\u0301\u0301"),
]


def trained(options):
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=12)) for _ in range(300)]
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        code = lambda text: " ".join(f"{ord(character):X}" for character in text)  # noqa: E731
        rules.write_text("".join(f"{code(old)}\t{code(new)}\n" for old, new in RULES.items()))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=out,
            normalization_rule_tsv=str(rules),
            hard_vocab_limit=False,
            minloglevel=2,
            num_threads=1,
            **{"vocab_size": 110, "character_coverage": 0.99} | options,
        )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    model.normalizer_spec.normalization_rule_tsv = ""  # the path of a temporary file
    return model


def by_sentencepiece(model):
    """For each text the normalised text, the ids, and the spans of the pieces, in bytes"""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    results = []
    for text in TEXTS:
        pieces = processor.encode(text, return_type="proto").pieces
        spans = [place for piece in pieces for place in (piece.begin, piece.end)]
        results.append([processor.normalize(text), [piece.id for piece in pieces], spans])
    return results


def by_transformers(kind, model, **options):
    """For each text the ids, with special tokens around it"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spiece.model"
        path.write_bytes(model.SerializeToString())
        tokenizer = kind(str(path), **options)
        ids = lambda text: tokenizer.convert_tokens_to_ids(tokenizer._tokenize(text))  # noqa: E731
        singles = [tokenizer.build_inputs_with_special_tokens(ids(text)) for text in TEXTS]
        a, b = ids(TEXTS[3]), ids(TEXTS[5])
        pair = [tokenizer.build_inputs_with_special_tokens(a, b), tokenizer.create_token_type_ids_from_sequences(a, b)]
    return {"singles": singles, "pair": pair}


def by_tokenizers(model):
    """A tokenizer.json with ALBERT's rules, and for each text the ids, spans and word ids"""
    vocab = [(piece.piece, piece.score) for piece in model.pieces]
    ids = {piece: i for i, (piece, _) in enumerate(vocab)}
    normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, ids["<unk>"], False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase(),
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    encodings = [tokenizer.encode(text) for text in TEXTS]
    return {
        "content": json.loads(tokenizer.to_str()),
        "results": [[e.ids, [place for pair in e.offsets for place in pair], e.word_ids] for e in encodings],
        "decoded": [tokenizer.decode(e.ids, skip_special_tokens=False) for e in encodings],
    }


def main():
    models = {name: trained(options) for name, options in MODELS.items()}
    content = {
        "versions": [sentencepiece.__version__, transformers.__version__, tokenizers.__version__],
        "rules": RULES,
        "texts": TEXTS,
        "models": {name: base64.b64encode(model.SerializeToString()).decode() for name, model in models.items()},
        "sentencepiece": {name: by_sentencepiece(model) for name, model in models.items()},
        "AlbertTokenizer": by_transformers(transformers.AlbertTokenizer, models["albert"]),
        "AlbertTokenizer, accents": by_transformers(
            transformers.AlbertTokenizer, models["albert"], keep_accents=True, do_lower_case=False
        ),
        "XLNetTokenizer": by_transformers(transformers.XLNetTokenizer, models["xlnet"]),
        "DebertaV2Tokenizer": by_transformers(transformers.DebertaV2Tokenizer, models["deberta"]),
        "tokenizers": by_tokenizers(models["albert"]),
    }
    path = Path(__file__).with_name("unigram_cases.json")
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
