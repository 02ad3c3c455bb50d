"""Writes tests/golden/tokenizer_cases.json: the output of the `tokenizers` library for odd texts, with a vocabulary
made here.

    python tests/golden/make_tokenizer.py        needs tokenizers (made with 0.23.3)

Stores ids, offsets and word ids of every text with every setting, so the default tests can compare without the library.
"""

import json
from pathlib import Path

import tokenizers
from tokenizers import BertWordPieceTokenizer

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789", *"ABCDEÉéüİẞßſ"]
SIGNS = [*".,;:!?'\"-_()[]{}$%^`~|#@&*+=<>/\\«»¿…–“”", "\u00b7", "、", "。", "ー"]
OTHERS = [
    *("東", "京", "豈", "\u1112", "\u1161", "\u11ab", "한", "ο", "δ", "σ", "ς", "Σ", "フ", "プ", "か", "が"),
    *(
        "ש",
        "ل",
        "ا",
        "ह",
        "न",
        "द",
        "ि",
        "\u0301",
        "\u0307",
        "\u0308",
        "\u05c1",
        "\u094d",
        "ﬁ",
        "👨",
        "👩",
        "❤",
        "\ufe0f",
    ),
    *(
        "\U0001d165",
        "\U0001d158",
        "\U0001d16e",
        "\u302e",
        "\u08d4",
        "\u1dfb",
        "\U00011938",
        "\ua7dc",
        "\u019b",
        "i\u0307",
    ),
]
WORDS = ["the", "un", "hello", "world", "straße", "strasse", "Hello", "été", "ete", "istanbul", "[unused1]", "a" * 40]
INNER = [*LETTERS, *OTHERS, "aff", "able", "ing", "ed", "llo", "a" * 20, "σσ"]
VOCAB = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *LETTERS,
    *SIGNS,
    *OTHERS,
    *WORDS,
    *(f"##{piece}" for piece in INNER),
]

TEXTS = [
    *("", " ", "\u200b", "Hello, world!", "unaffable UNAFFABLE unaffableness", "  two  spaces\tand\ttabs\r\n"),
    *("Hello [MASK] world[SEP]x [sep]", "[MASK][MASK]ing a[MASK]", "[CLS", "[MA\u00adSK]", "[[PAD]]", "the[UNK]\u0301"),
    *("Été ÉTÉ e\u0301te\u0301 E\u0301", "naïve Zoë Ǖ \u0344x", "İstanbul İİ", "Straße STRAẞE ſ", "ΟΔΟΣ οδος ΣΣ Σ"),
    *("東京は東京", "豈\uf900", "x東y", "\U0002b820\U0002b920\u4e00", "한국 한", "ﬁ ﬁn ﬁﬁ", "プロ フ\u309a がか\u3099"),
    *("שָׁלוֹם", "لا إله", "हिन्दी", "👨\u200d👩\u200d👧", "❤\ufe0f❤", "\u202eabc\u202c d\u200de", "🇩🇪"),
    *(
        "a\x0bb\x0cc\x1cd\x1de\x1ef\x1fg\x85h",
        "nul\x00l \ufffd \ufeffx",
        "a\u00a0b\u3000c\u2028d\u1680e",
        "soft\u00adhyphen",
    ),
    *("a" * 100, "a" * 101, "b" * 100, "é" * 100 + "x", "a" * 64 + " " + "a" * 65, "-" * 70, "ab" * 50 + "."),
    *("$1,234.56%", "`x|y~z^_`", "don't can't", "«¿Qué?» … “so”", "http://a.b/c?d=e&f#g", "\u037e;\u0387\u1fef"),
    *(
        "\U0001d158\U0001d165\U0001d16e",
        "a\U0001d165\u0334b",
        "\u302e\u0301\U0001d165",
        "\u08d4\u0316\u1dfb",
        "\U0001d15e",
    ),
    *("\U00011938", "\ua7dc \u1c89", "e\U0001e000\u0323\U0001e008", "\U0001d16d\u17b4\U0001d165"),
]
SETTINGS = [
    {"lowercase": lowercase, "strip_accents": strip, "chinese_spacing": chinese}
    for lowercase in (True, False)
    for strip in (None, not lowercase)
    for chinese in (True, False)
]


def main() -> None:
    results = []
    for settings in SETTINGS:
        reference = BertWordPieceTokenizer(
            {token: i for i, token in enumerate(VOCAB)},
            lowercase=settings["lowercase"],
            strip_accents=settings["strip_accents"],
            handle_chinese_chars=settings["chinese_spacing"],
        )
        encodings = [reference.encode(text) for text in TEXTS]
        results.append([[e.ids, [place for pair in e.offsets for place in pair], e.word_ids] for e in encodings])
    content = {"tokenizers": tokenizers.__version__, "vocab": VOCAB, "texts": TEXTS, "settings": SETTINGS}
    path = Path(__file__).with_name("tokenizer_cases.json")
    path.write_text(json.dumps(content | {"results": results}, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
