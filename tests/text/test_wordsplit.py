"""Splitting text into words: each rule by example, the table compared with five plain passes, and which Unicode version
applies."""

import copy
import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_bert.text.unicode_tables import (
    CHINESE,
    LOWER,
    MARKS,
    MOVING,
    PUNCTUATION,
    REMOVED,
    SPACES,
    UNDIVIDED,
    Characters,
)
from mini_bert.text.wordsplit import _MOVING, JOINING, WordSplitter

UNCASED, CASED = WordSplitter(), WordSplitter(lowercase=False)
SETTINGS = [
    (low, strip, chinese) for low in (True, False) for strip in (None, True, False) for chinese in (True, False)
]

# Text that tries every rule: letters, and often something from each table.
POOLS = [
    "abcXYZ059",
    " \t\n,.!-_$^",
    JOINING,
    "ßŐİΣςſKΩﬁ한글ėạ̈Ǖ\u0344\u0958",
    "\u200d\ufe0f\u202e\u00ad\ufeff\ufffd\x00\x7f",
    "東京\U00020000\U0002b820\uf900",
    "אבגدبا\u05bcहिन्दी\u0e31",
    *("".join(table) for table in (MARKS, MOVING, PUNCTUATION, SPACES, UNDIVIDED)),
    "".join(LOWER),
]
TEXT = st.lists(st.one_of(st.characters(exclude_categories=["Cs"]), *map(st.sampled_from, POOLS)), max_size=20).map(
    "".join
)


@pytest.mark.parametrize(
    ("text", "uncased", "cased"),
    [
        ("Don't, Zoë!  東京", "don ' t , zoe ! 東 京", "Don ' t , Zoë ! 東 京"),
        ("", "", ""),
        (" \t\r\n\u00a0\u3000\u2028", "", ""),
        ("so\u00adft zero\u200bwidth \ufeffBOM nul\x00l \ufffd", "soft zerowidth bom null", "soft zerowidth BOM null"),
        ("a\x0bb\x0cc\x1cd\x1fe\x85f", "abcdef", "abcdef"),
        ("price: $5^2 = `x|y~z`_", "price : $ 5 ^ 2 = ` x | y ~ z ` _", "price : $ 5 ^ 2 = ` x | y ~ z ` _"),
        ("«¿Qué?» … „so“", "« ¿ que ? » … „ so “", "« ¿ Qué ? » … „ so “"),
        ("ÀÉÎÕÜ naïve e\u0301", "aeiou naive e", "ÀÉÎÕÜ naïve e\u0301"),
        ("İstanbul Straße ΟΔΟΣ ﬁn", "istanbul straße οδοσ ﬁn", "İstanbul Straße ΟΔΟΣ ﬁn"),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
        ("日本語のテスト", "日 本 語 のテスト", "日 本 語 のテスト"),
        ("プロ", "フロ", "プロ"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f", "👨👩👧 ❤", "👨👩👧 ❤\ufe0f"),
        ("שָׁלוֹם עולם", "שלום עולם", "שָׁלוֹם עולם"),
        ("हिन्दी", "हिनदी", "हिन्दी"),
        ("1,234.5%", "1 , 234 . 5 %", "1 , 234 . 5 %"),
        ("\u037e", ";", "\u037e"),
    ],
)
def test_examples(text, uncased, cased):
    """Each rule by example: white space, control characters, punctuation, accents, case, Chinese."""
    assert UNCASED.words(text) == uncased.split()
    assert CASED.words(text) == cased.split()


def test_case_and_accents_are_separate():
    """Accents are removed together with case unless set otherwise; each can be set alone."""
    assert WordSplitter(True, False).words("ÉTÉ İ") == ["été", "i\u0307"]
    assert WordSplitter(False, True).words("ÉTÉ İ") == ["ETE", "I"]
    assert WordSplitter(True).strip_accents and not WordSplitter(False).strip_accents
    assert WordSplitter(chinese_spacing=False).words("東京, x") == ["東京", ",", "x"]


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("ab, c", [("ab", [0, 1]), (",", [2]), ("c", [4])]),
        ("a\u00adb", [("ab", [0, 2])]),
        ("É\u0301x", [("ex", [0, 2])]),
        ("한", [("\u1112\u1161\u11ab", [0, 0, 0])]),
        ("x東y", [("x", [0]), ("東", [1]), ("y", [2])]),
        ("\u200b", []),
        ("a\U0001d165\u0334b", [("a\U0001d165b", [0, 2, 3])]),  # the mark moves before the stem, then goes
    ],
)
def test_sources(text, sources):
    """Each character of a word is mapped to the position it came from, also if characters were removed or expanded."""
    assert [(word, list(places)) for word, places in UNCASED.words_with_sources(text)] == sources


def by_passes(text, lowercase, strip_accents, chinese):
    """The rules as five passes over the whole text, each as in the definition; no table, no shortcut."""
    text = "".join(" " if c in SPACES else c for c in text if c not in REMOVED)
    if chinese:
        text = "".join(f" {c} " if c in CHINESE else c for c in text)
    if lowercase if strip_accents is None else strip_accents:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if c not in MARKS)
    if lowercase:
        text = "".join(LOWER.get(c, c.lower()) for c in text)
    words, word = [], ""
    for c in text + " ":
        if c == " " or c in PUNCTUATION:
            words += [word] if word else []
            words += [c] if c != " " else []
            word = ""
        else:
            word += c
    return words


@given(TEXT, st.sampled_from(SETTINGS))
def test_the_table_is_five_passes(text, settings):
    """One table and one split at spaces give the same as five passes, with every setting.

    Not tested here: characters whose decomposition or order is newer than the reference (see the lists below).
    """
    text = "".join(c for c in text if c in MARKS or c in MOVING or not unicodedata.combining(c))
    text = "".join(c for c in text if c not in UNDIVIDED)
    assert WordSplitter(*settings).words(text) == by_passes(text, *settings)


@given(TEXT, st.sampled_from(SETTINGS))
def test_chunks_and_sources_agree_with_words(text, settings):
    """The words of the chunks are the words of the text; sources belong to the same words and lie in the text."""
    splitter = WordSplitter(*settings)
    words = splitter.words(text)
    assert [word for chunk in splitter.chunks(text) for word in splitter.words(chunk)] == words
    found = splitter.words_with_sources(text)
    assert [word for word, _ in found] == words
    places = [place for word, sources in found for place in sources]
    assert places == sorted(places) and all(0 <= place < len(text) for place in places)
    assert all(len(word) == len(sources) for word, sources in found)


@given(TEXT, st.sampled_from(SETTINGS))
def test_quick_words_are_the_words(text, settings):
    """Replacing one character after another gives the same as the table at once, or nothing."""
    splitter = WordSplitter(*settings)
    assert splitter.quick_words(text) in (None, splitter.words(text))
    ascii_text = "".join(character for character in text if character.isascii())
    assert splitter.quick_words(ascii_text) == ascii_text.translate(splitter._table).split()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize("settings", [(True, None, True), (True, False, True), (False, True, False)])
def test_quick_words_of_every_character(settings, step):
    """Between two letters, and after what it becomes: a character's entry is not changed once it is put in.

    All characters up to U+1FFFF and the compatibility ideographs, but of Chinese and Hangul only some. In the default
    tests all up to U+24FF, where nearly all of what is special lies, and every seventh of the others.
    """
    splitter = WordSplitter(*settings)
    others = (*range(0x2500, 0x3500), *range(0xA000, 0xAD00), *range(0xF900, 0x20000), *range(0x2F800, 0x2FA20))
    for code in (*range(0x2500), *others[::step]):
        text = f"{splitter.becomes(chr(code))} a{chr(code)}E"
        assert splitter.quick_words(text) in (None, splitter.words(text)), f"U+{code:04X}"


def test_quick_words_serve_english():
    """The shortcut handles punctuation, dashes, quotes, accents and white space, but not many different characters."""
    text = "“Zoë’s café—naïve…”\t(£5.00/€6)\u00a0[1\x00]\n東京"
    assert UNCASED.quick_words(text) == UNCASED.words(text) and CASED.quick_words(text) == CASED.words(text)
    assert UNCASED.quick_words("Съешь ещё этих мягких французских булок, да выпей чаю") is None


def test_what_comes_apart_into_marks_that_move_moves():
    """All characters that decompose into MOVING ones are reordered, too: musical notes, and no others."""
    moving = set(MOVING)
    apart = {c for c in everything() if not moving.isdisjoint(unicodedata.normalize("NFD", c))} - set(UNDIVIDED)
    assert {c for c in everything() if _MOVING.match(c)} == apart | moving
    assert UNCASED.words_with_sources("\U0001d15e\u0327") == [("\U0001d157\U0001d165", [0, 1])]


def test_half_a_character_is_refused():
    """A lone surrogate is not text; the error says where such characters come from."""
    for call in (UNCASED.words, UNCASED.quick_words, UNCASED.words_with_sources):
        with pytest.raises(ValueError, match=r'U\+D83D, half of a surrogate pair.*errors="replace"'):
            call("smile \ud83d")


def test_copies_split_alike():
    """Pickle and copy give an equal splitter, and its repr shows its settings."""
    splitter = WordSplitter(False, True, False)
    for twin in (pickle.loads(pickle.dumps(splitter)), copy.deepcopy(splitter)):
        assert (
            repr(twin) == repr(splitter) == "WordSplitter(lowercase=False, strip_accents=True, chinese_spacing=False)"
        )
        assert twin.words("ÉTÉ東x") == ["ETE東x"]


# ---- whose Unicode


def since(table):
    """The characters of versions up to this Python's, and whether this Python is newer than the lists"""
    here = tuple(map(int, unicodedata.unidata_version.split(".")))[:2]
    known = {tuple(map(int, version.split("."))): Characters(codes) for version, codes in table.items()}
    return {c for version, found in known.items() if version <= here for c in found}, here > (17, 0)


def everything():
    return (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)


def compare(name, differ, table):
    """The code points that Python and the reference treat differently are exactly those listed."""
    expected, newer = since(table)
    if newer:  # characters of later versions differ, too; nobody has listed them yet
        differ = differ & {c for version in table.values() for c in Characters(version)}
    assert differ == expected, (name, sorted(f"{ord(c):X}" for c in differ ^ expected))


# Characters that Python calls by the category and the reference does not, by the Unicode version that made them so.
PUNCTUATION_SINCE = {
    "9.0": "2E43-2E44 1144B-1144F 1145B 1145D 11660-1166C 11C41-11C45 11C70-11C71 1E95E-1E95F",
    "10.0": "9FD 2E45-2E49 11A3F-11A46 11A9A-11A9C 11A9E-11AA2",
    "11.0": "A76 C84 2E4A-2E4E 10F55-10F59 1183B 11EF7-11EF8 16E97-16E9A",
    "12.0": "C77 2E4F 119E2 11FFF 16FE2",
    "13.0": "2E52 10EAD 1145A 11944-11946",
    "14.0": "61D 1B7D-1B7E 2E53-2E5D 10F86-10F89 116B9 12FF1-12FF2",
    "15.0": "11B00-11B09 11F43-11F4F",
    "16.0": "1B4E-1B4F 1B7F 10D6E 113D4-113D5 113D7-113D8 11BE1 16D6D-16D6F 1E5FF",
    "17.0": "10ED0",
}
MARKS_SINCE = {
    "8.0": "1885-1886 A9BD 111C9",  # letters and a sign of 8.0 that were called marks later
    "9.0": "8D4-8E1 1DFB A8C5 1123E 11438-1143F 11442-11444 11446 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 "
    "11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E944-1E94A",
    "10.0": "AFA-AFF D00 D3B-D3C 1DF6-1DF9 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B "
    "11A8A-11A96 11A98-11A99 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47",
    "11.0": "7FD 8D3 9FE C04 A8FF 10D24-10D27 10F46-10F50 1133B 1145E 1182F-11837 11839-1183A 11D90-11D91 11D95 11D97 "
    "11EF3-11EF4",
    "12.0": "EBA 119D4-119D7 119DA-119DB 119E0 16F4F 1E130-1E136 1E2EC-1E2EF",
    "13.0": "B55 D81 1ABF-1AC0 A82C 10EAB-10EAC 111CF 1193B-1193C 1193E 11943 16FE4",
    "14.0": "898-89F 8CA-8D2 C3C 180F 1AC1-1ACE 1DFA 10F82-10F85 11070 11073-11074 110C2 1CF00-1CF2D 1CF30-1CF46 1E2AE",
    "15.0": "ECE 10EFD-10EFF 11241 11F00-11F01 11F36-11F3A 11F40 11F42 13440 13447-13455 1E08F 1E4EC-1E4EF",
    "16.0": "897 10D69-10D6D 10EFC 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F5A 1611E-16129 1612D-1612F 1E5EE-1E5EF",
    "17.0": "1ACF-1ADD 1AE0-1AEB 10EFA-10EFB 11B60 11B62-11B64 11B66 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5",
}
FORMATS_SINCE = {"9.0": "8E2", "11.0": "110CD", "12.0": "13430-13438", "14.0": "890-891", "15.0": "13439-1343F"}
ORDERED_SINCE = {
    "10.0": "D3B-D3C 1DF6-1DF9 11A34 11A47 11A99 11D42 11D44-11D45",
    "11.0": "7FD 8D3 9FE 10D24-10D27 10F46-10F50 1133B 1145E 11839-1183A 11D97",
    "12.0": "EBA 119E0 1E130-1E136 1E2EC-1E2EF",
    "13.0": "1ABF-1AC0 A82C 10EAB-10EAC 1193D-1193E 11943 16FF0-16FF1",
    "14.0": "898-89F 8CA-8D2 C3C 1715 1AC1-1ACE 1DFA 10F82-10F85 11070 1E2AE",
    "15.0": "10EFD-10EFF 11F41-11F42 1E08F 1E4EC-1E4EF",
    "16.0": "897 10D69-10D6D 113CE-113D0 1612F 1E5EE-1E5EF",
    "17.0": "1ACF-1ADD 1AE0-1AEB 10EFA-10EFB 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5",
}
DIVIDED_SINCE = {
    "13.0": "11938",
    "16.0": "105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 16121-16128 16D68-16D6A",
}
LOWER_SINCE = {
    "16.0": "1C89 A7CB A7CC A7DA A7DC 10D50-10D65",
    "17.0": "A7CE A7D2 A7D4 16EA0-16EB8",
}
# The other way round: what the reference calls by a category, and later Unicode (and Python) by another.
PUNCTUATION_ONCE, MARKS_ONCE = {"14.0": "166D 111C9"}, {"14.0": "1734", "16.0": "1171E"}


def test_punctuation_is_that_of_unicode_8():
    """Category P and the ASCII signs; Python has more, and classifies two signs differently."""
    ours = {c for c in PUNCTUATION if not c.isascii()}
    python = {c for c in everything() if unicodedata.category(c)[0] == "P" and not c.isascii()}
    compare("newer", python - ours, PUNCTUATION_SINCE)
    compare("older", ours - python, PUNCTUATION_ONCE)
    ascii_signs = {chr(i) for i in range(33, 127) if not chr(i).isalnum()}
    assert {c for c in PUNCTUATION if c.isascii()} == ascii_signs


def test_marks_are_those_of_unicode_8():
    """Category Mn; Python has more, and classifies two of them differently."""
    python = {c for c in everything() if unicodedata.category(c) == "Mn"}
    compare("newer", python - set(MARKS), MARKS_SINCE)
    compare("older", set(MARKS) - python, MARKS_ONCE)


def test_removed_are_those_of_unicode_8():
    """Categories Cc, Cf and Co except tab and line endings, and U+FFFD; Python has more format characters."""
    python = {c for c in everything() if unicodedata.category(c) in ("Cc", "Cf", "Co")} - set("\t\n\r")
    compare("newer", python - set(REMOVED), FORMATS_SINCE)
    assert set(REMOVED) - python == {"\ufffd"}


def test_order_and_decomposition_are_those_of_unicode_9():
    """Which marks are reordered and which characters decompose; Python has more of both."""
    python = {c for c in everything() if unicodedata.combining(c)}
    ours = {c for c in (*MARKS, *MOVING) if unicodedata.combining(c)}
    compare("order", python - ours, ORDERED_SINCE)
    assert set(MOVING) <= python and not set(MOVING) & set(MARKS)
    compare("parts", {c for c in UNDIVIDED if unicodedata.decomposition(c)}, DIVIDED_SINCE)


def test_lower_case_is_that_of_unicode_17():
    """The table adds what this Python lacks, and contradicts nothing."""
    missing = {c for c in LOWER if c.lower() == c}
    assert all(c.lower() == small for c, small in LOWER.items() if c not in missing)
    assert set(LOWER) - missing == since(LOWER_SINCE)[0]


def test_white_space_is_that_of_str_split():
    """str.split splits where BERT does, and at seven more characters that BERT removes: `chunks` relies on exactly
    this."""
    assert {c for c in everything() if c.isspace()} == {*SPACES, *JOINING}
    assert set(JOINING) <= set(REMOVED) and not set(SPACES) & set(REMOVED)
    assert all(f"a{c}b".split() == ["a", "b"] for c in (*SPACES, *JOINING))


def test_tables_are_ranges_in_order():
    """Membership is looked up by bisection, so the ranges must be ascending."""
    for table in (REMOVED, SPACES, CHINESE, PUNCTUATION, MARKS, MOVING, UNDIVIDED):
        edges = [edge for pair in table.ranges for edge in pair]
        assert edges == sorted(edges)
        assert all(c in table for c in table)
        assert all(chr(a - 1) not in table for a, _ in table.ranges if a)
