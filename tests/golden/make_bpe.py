"""Writes tests/golden/bpe_cases.json: byte-level BPE of the `tokenizers` library, trained here on a small text.

    python tests/golden/make_bpe.py        needs tokenizers (made with 0.23.3)

Stores the merges that the library learns, and ids, offsets, word ids and token types of odd texts under the rules of
several models, so the default tests can compare without the library.
"""

import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    *("the cat sat on the mat, and then the cat sat at the table", "at that the cat sat: that was the mat's end"),
    *("she'd said we'll go, but they've gone; I'm sure he's there", "running runners ran while walking walkers walked"),
    *("in 1984 and 2001 there were 1000 or 2000 of them (about 20 %)", "naïve café façade – “quoted” … and so on"),
    *("東京は東京で京都は京都", "привет мир, привет всем", "the the the then than that this those there their"),
    *("aaaa aaa aa a aaaaa aaaaaaa", "ababab abab ab bababa", "-- --- ---- ===== ...... !!!", "  two  spaces   three"),
    *("\tindented\n\tlines\n\nand blank ones", "unaffable unaffected affable affected effect effective effectively"),
]
VOCAB_SIZE = 460
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
GPT2 = ["<|endoftext|>"]
BERT = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
ADDED = ["  ", "    ", "|||IP|||", "[unused0]"]

TEXTS = [
    *(
        "",
        " ",
        "  ",
        "\n",
        "a",
        " a",
        "  a",
        "a  ",
        "the cat sat",
        " the cat sat ",
        "The  cat   sat\n\non \n the mat.\n",
    ),
    *(
        "we'll don't I'M she'd they've 'tis rock'n'roll ''s 's",
        "20,000 km²; 3½ ⅷ x2y 1st ١٢٣",
        "a\u00a0b\u3000c\x85d\x1ce\x0bf",
    ),
    *(
        "naïve café",
        "nai\u0308ve cafe\u0301",
        "a\u0323\u0301\u0308b",
        "\u1112\u1161\u11ab 한",
        "Å \u212b A\u030a",
        "東京は、京都。",
    ),
    *(
        "привет ПРИВЕТ",
        "👩🏽\u200d🚒 🇩🇪 ❤\ufe0f",
        "x\U0001d165y\u08d4\U00011938",
        "\ua7dc\U000105c0 \U00010d40",
        "\x00\x7f\ufffd\uffff",
    ),
    *(
        "unaffable effectively",
        "a" * 11,
        "ab" * 9,
        "-" * 13 + " " + "=" * 7,
        "\t\tindented\n\t\tlines",
        "http://a.b/c?d=e&f#g",
    ),
    *(
        "the <mask> sat",
        "the  <mask>\n<mask> sat<mask>",
        " <mask>",
        "<s>the</s> <pad><unk>x",
        "<mask",
        "<MASK> <mask >",
    ),
    *(
        "a<|endoftext|>b <|endoftext|>",
        "[CLS] the [MASK]  [SEP]x",
        "[mask] [MASK",
        "|||IP|||. a  b     c [unused0]x  [MASK]",
    ),
    *(
        "Ġthe Ċ Ã",
        "e\u0301<mask> \u0301",
        ">\u0338 <s>\u0338",
        "   <mask>   the",
        "\u00a0<mask>",
        "the\u0130\u1e9e\ufb01",
    ),
]


def reference(merges, first, last, added=(), lstrip=(), compose=False, prefix=False):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*first, *alphabet, *dict.fromkeys(a + b for a, b in merges), *last]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    if compose:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token in (*first, *last) if token not in added]
    tokenizer.add_special_tokens([AddedToken(token, lstrip=token in lstrip, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in added])
    return tokenizer, pieces


def ends(tokenizer, *tokens):
    return [(token, tokenizer.token_to_id(token)) for token in tokens]


def main() -> None:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=1,
        special_tokens=ROBERTA,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(LINES, trainer)
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]

    cases = []

    def add(rules, tokenizer, pieces):
        encodings = [tokenizer.encode(text) for text in TEXTS]
        results = [[e.ids, [place for pair in e.offsets for place in pair], e.word_ids, e.type_ids] for e in encodings]
        decoded = [tokenizer.decode(e.ids, skip_special_tokens=False) for e in encodings]
        cases.append({"rules": rules, "vocab": pieces, "results": results, "decoded": decoded})

    tokenizer, pieces = reference(merges, [], GPT2)
    add({"like": "GPT2"}, tokenizer, pieces)
    tokenizer, pieces = reference(merges, [], GPT2, prefix=True)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=True)
    add(
        {"like": "GPT2", "add_prefix_space": True, "trim_offsets": True, "trim_first": False},
        tokenizer,
        pieces,
    )
    for prefix in (False, True):
        tokenizer, pieces = reference(merges, ROBERTA[:4], ROBERTA[4:], lstrip=["<mask>"], prefix=prefix)
        sep, cls = ends(tokenizer, "</s>", "<s>")
        tokenizer.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=prefix)
        add({"like": "ROBERTA", "add_prefix_space": prefix, "trim_first": not prefix}, tokenizer, pieces)
    tokenizer, pieces = reference(merges, BERT, ADDED, ADDED, lstrip=["[MASK]"], compose=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=ends(tokenizer, "[CLS]", "[SEP]"),
    )
    add({"like": "DEBERTA", "added_tokens": ADDED, "compose": True}, tokenizer, pieces)

    content = {"tokenizers": tokenizers.__version__, "lines": LINES, "vocab_size": VOCAB_SIZE, "merges": merges}
    path = Path(__file__).with_name("bpe_cases.json")
    text = json.dumps(content | {"texts": TEXTS, "cases": cases}, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
