"""Labelled files are read exactly, and errors name the line."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
import random
from pathlib import Path

import pytest

from mini_bert.data.labelled.readers import (
    ColumnError,
    LabelError,
    Labelled,
    Parsed,
    Question,
    Scored,
    Tagged,
    check_labels,
    label_names,
    read_conllu,
    read_labelled,
    read_scored,
    read_squad,
    read_tagged,
)
from mini_bert.data.synthetic import dataset as synthetic

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path"""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(read, path, line, words, **options):
    """Reading this file is an error that names file and line and contains these words"""
    with pytest.raises(LabelError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: "), message
    assert words in message, message
    assert (caught.value.path, caught.value.line) == (str(path), line)


# --- texts and labels --------------------------------------------------------------------------------------

TSV = 'sentence\tlabel\na "fine" film .\t1\n\nnot so good , it\'s\t0\n'
RIGHT = [Labelled('a "fine" film .', None, "1", 2), Labelled("not so good , it's", None, "0", 4)]


def test_tsv(file):
    """A header and tabs; quotation marks are ordinary characters; empty lines are skipped but counted."""
    assert read_labelled(file("a.tsv", TSV)) == RIGHT
    assert read_labelled(str(file("b.txt", TSV))) == RIGHT  # MRPC and SNLI call theirs .txt


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, lambda data: data])
def test_packed(file, pack):
    """Compression is recognised by the first bytes."""
    ending = {gzip.compress: ".gz", lzma.compress: ".xz", bz2.compress: ".bz2"}.get(pack, "")
    assert read_labelled(file("a.tsv" + ending, pack(TSV.encode()))) == RIGHT


def test_zstandard(file):
    zstandard = pytest.importorskip("zstandard", reason="needs the extra zstd")
    assert read_labelled(file("a.tsv.zst", zstandard.compress(TSV.encode()))) == RIGHT


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.rstrip("\n").encode(),
    ],
    ids=["byte order mark", "CRLF", "CR", "UTF-16", "no line end at the end"],
)
def test_encodings(file, encode, caplog):
    """A byte order mark and the line endings of other systems make no difference."""
    assert read_labelled(file("a.tsv", encode(TSV))) == RIGHT
    assert not caplog.records


def test_bytes_that_are_not_text(file, caplog):
    """A byte that is not UTF-8 is replaced and reported; a picture is refused."""
    path = file("a.tsv", b"text\tlabel\ncaf\xe9 society\t1\n")
    assert read_labelled(path)[0].text == "caf\ufffd society"
    assert "not UTF-8" in caplog.text and "byte 14" in caplog.text
    with pytest.raises(ValueError, match="a PNG picture"):
        read_labelled(file("b.tsv", b"\x89PNG\r\n\x1a\n" + bytes(100)))


def test_csv(file):
    """Quoted fields may contain commas, line breaks and doubled quotation marks; the line is where a row starts."""
    path = file("a.csv", 'id,Text,Label\n7,"slow, but ""warm""",pos\n8,"two\nlines",neg\n\n9,plain,pos,\n')
    assert read_labelled(path) == [
        Labelled('slow, but "warm"', None, "pos", 2),
        Labelled("two\nlines", None, "neg", 3),
        Labelled("plain", None, "pos", 6),
    ]
    assert read_labelled(file("b.csv", "text;label\na, b;1\n")) == [Labelled("a, b", None, "1", 2)]


def test_jsonl(file):
    """One object per line; 1, 1.0 and "1" are the same label; true is a label, too."""
    lines = [
        {"text": "a", "label": 1},
        {"label": 1.0, "text": " b "},
        {"text": "ç", "label": "1"},
        {"text": "d", "label": True},
    ]
    path = file("a.jsonl", "\n\n".join(map(json.dumps, lines)))
    assert [tuple(one) for one in read_labelled(path)] == [
        ("a", None, "1", 1), ("b", None, "1", 3), ("ç", None, "1", 5), ("d", None, "true", 7),
    ]  # fmt: skip
    assert read_labelled(file("a.json", '{"text": "x", "label": 3}\n')) == [Labelled("x", None, "3", 1)]


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("sentence\tlabel", "sentence", None),
        ("gold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1", "sentence1", "sentence2"),
        ("index\tpremise\thypothesis\tlabel", "premise", "hypothesis"),
        ("id\tqid1\tquestion1\tquestion2\tis_duplicate", "question1", "question2"),
        ("index\tquestion\tsentence\tlabel", "question", "sentence"),
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "#1 String", "#2 String"),
        ("Review\tSentiment\tid", "Review", None),
        ("category\tTEXT", "TEXT", None),
    ],
)
def test_columns_are_found(file, header, first, second):
    """The usual column names of GLUE, SNLI and review files are found, in upper or lower case."""
    names = header.split("\t")
    path = file("a.tsv", header + "\n" + "\t".join(f"the {name}" for name in names) + "\n")
    found = read_labelled(path)[0]
    assert found.text == f"the {first}" and found.second == (second and f"the {second}")
    assert found.label.split()[1].lower() in ("label", "gold_label", "is_duplicate", "quality", "sentiment", "category")


def test_columns_are_given(file):
    """Columns are chosen by name, or by number if there is no header, as in CoLA; with only a text column, there is one
    text."""
    path = file("a.tsv", "gj04\t1\t\tthe sailors rode\ngj04\t0\t*\tthey it\n")
    assert read_labelled(path, text="4", label="2") == [
        Labelled("the sailors rode", None, "1", 1),
        Labelled("they it", None, "0", 2),
    ]
    path = file("b.tsv", "sentence1\tsentence2\tkind\tlabel\na\tb\tx\ty\n")
    assert read_labelled(path) == [Labelled("a", "b", "y", 2)]
    assert read_labelled(path, text="sentence2", label="kind") == [Labelled("b", None, "x", 2)]
    assert read_labelled(path, second="SENTENCE2") == [Labelled("a", "b", "y", 2)]
    assert read_labelled(path, text="kind", second="sentence1") == [Labelled("x", "a", "y", 2)]


def test_a_header_is_recognised_although_columns_are_given_by_number(file, caplog):
    """A usual column name that no other line has there makes the first line a header, and this is said. Another first
    line is an example; a label that only it has is reported."""
    rows = "the cat\t1\nthe film\t0\nthe dog\t1\n"
    path = file("a.tsv", "Zin\tLabel\n" + rows)
    assert read_labelled(path, text="1", label="2") == [
        Labelled("the cat", None, "1", 2),
        Labelled("the film", None, "0", 3),
        Labelled("the dog", None, "1", 4),
    ]
    assert caplog.messages == [f"{path}:1: this line was taken as the header: 'Zin', 'Label'"]
    assert len(read_labelled(path, text="1", label="label")) == 3
    assert len(read_labelled(file("c.tsv", rows), text="1", label="2")) == 3
    ones = read_labelled(file("g.tsv", "1\tthe cat\n0\tthe film\n"), text="2", label="1")
    assert [one.label for one in ones] == ["1", "0"]
    topics = file("d.tsv", "the cat\ttopic\nthe dog\ttopic\nthe film\tother\n")
    assert len(read_labelled(topics, text="1", label="2")) == 3
    assert len(read_scored(file("e.tsv", "a\tb\tscore\nx\ty\t3\n"), first="1", second="2", score="3")) == 1
    caplog.clear()
    assert len(read_labelled(file("f.tsv", "zin\tklasse\n" + rows), text="1", label="2")) == 4
    assert "f.tsv:1: only this line has the label 'klasse'; if it is a header" in caplog.text


def test_undecided_labels_are_left_out(file, caplog):
    """SNLI writes - where its annotators did not agree: such examples are left out and reported; in other files, - is a
    label."""
    path = file("a.tsv", "gold_label\tsentence1\tsentence2\n-\ta\tb\nneutral\tc\td\n")
    assert [one.label for one in read_labelled(path)] == ["neutral"]
    assert "skipped 1 example" in caplog.text
    assert [one.label for one in read_labelled(file("b.tsv", "text\tlabel\na\t-\n"))] == ["-"]


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("a.tsv", "text\tlabel\nfine\t1\nfine\n", 3, "1 field, expected 2: 'text', 'label'"),
        ("a.tsv", "text\tlabel\nfine\tor\tnot\n", 2, "3 fields, expected 2"),
        ("a.tsv", "\n\nwords\tlabel\nfine\t1\n", 3, "no column for the text, such as 'sentence'"),
        ("a.tsv", "text\tkind\nfine\t1\n", 1, "no column for the label, such as 'gold_label', 'label'"),
        ("a.tsv", "text\ttext\tlabel\na\tb\t1\n", 1, "two columns are called 'text'"),
        ("a.tsv", "text\tlabel\nfine\t1\n \t0\n", 3, "text is empty, expected a text"),
        ("a.tsv", "text\tlabel\nfine\t \n", 2, "label is empty, expected a label"),
        ("a.tsv", "text\tlabel\n", None, "the file has no examples"),
        ("a.tsv", "", None, "the file has no examples"),
        ("a.csv", 'text,label\nfine,1\n"never closed,1\nfine,1\n', 3, "Is a quotation mark not closed"),
        ("a.csv", 'text,label\n"two\nlines",1\nslow, but warm,1\n', 4, "3 fields, expected 2"),
        ("a.csv", 'text,label\n"so" he said,1\n', 2, "not a row of a CSV table"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"', 2, "not JSON"),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n["b", 1]\n', 3, "expected an object, such as"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "lable": 1}\n', 2, "there is no 'label' among"),
        ("a.jsonl", '{"text": "a", "label": 0.5}\n', 1, "label is 0.5, expected a label: a word or a whole number"),
        ("a.jsonl", '{"text": "a", "label": null}\n', 1, "label is None"),
        ("a.jsonl", '{"text": ["a"], "label": 1}\n', 1, "text is ['a'], expected text"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "\\ud83d", "label": 1}\n', 2, "is half of a surrogate pair"),
        ("a.json", '[\n{"text": "a"}]', None, "is it one JSON document? Write one object per line"),
        ("a.tsv", "text,label\nfine,1\n", 1, "but commas: 'text,label'. If commas separate the columns, rename"),
        ("a.tsv", "text;label\nfine;1\n", 1, "If semicolons separate the columns, rename the file to .csv"),
        ("a.txt", "just a line\n", None, "expected a .tsv, .csv or .jsonl file"),
        ("a.parquet", "PAR1", None, "save it as .jsonl, .csv or .tsv"),
    ],
)  # fmt: skip
def test_bad_labelled_files(file, name, content, line, words):
    refused(read_labelled, file(name, content), line, words)


CONLL = "EU B-ORG\nrejects O\n\nPeter B-PER\nsleeps O\n"
QUESTIONS = '{"data": [{"paragraphs": []}]}'


@pytest.mark.parametrize(
    ("reader", "name", "content", "task"),
    [
        (read_labelled, "ner.conll", CONLL, "tag"),
        (read_labelled, "ner.txt", CONLL, "tag"),
        (read_scored, "en.conllu", "1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n", "tag"),
        (read_labelled, "dev-v1.1.json", QUESTIONS, "qa"),
        (read_tagged, "dev-v1.1.json", QUESTIONS, "qa"),
        (read_squad, "ner.conll", CONLL, "tag"),
    ],
)
def test_a_file_of_another_task(file, reader, name, content, task):
    """The error names the task that reads it."""
    refused(reader, file(name, content), None, f"which `mini-bert finetune {task}` reads")


def test_a_table_is_not_for_questions(file):
    """The error names the files that it reads, and the task that reads tables."""
    expected = "expected SQuAD's questions, as .json or .jsonl"
    refused(
        read_squad, file("a.tsv", TSV), None, f"{expected}. For a table of texts and labels, use `mini-bert finetune"
    )
    refused(read_squad, file("a.csv", "text,label\nfine,1\n"), None, f"{expected}. For a table")
    refused(read_squad, file("a.txt", "Who sat?\n"), None, f"{expected}, found 'Who sat?'")


def test_text_and_label_are_different_columns(file):
    """For a table without a header, the number of the first column that is left is suggested, if there is one, and
    not taken twice."""
    path = file("a.tsv", "very good\tyes\nvery bad\tno\n")
    with pytest.raises(ColumnError, match="no column for the label") as caught:
        read_labelled(path, text="1")
    assert caught.value.number == 2 and "counted from 1, such as --label 2" in str(caught.value.with_option("--label"))
    with pytest.raises(ColumnError, match="no column for the text") as caught:
        read_labelled(path, label="1")
    assert caught.value.number == 2
    with pytest.raises(ColumnError) as caught:
        read_labelled(file("b.tsv", "text\tmood\nfine\tyes\n"))
    assert caught.value.number == 2  # the first is the text
    with pytest.raises(ColumnError) as caught:
        read_labelled(file("c.tsv", "sentence1\tsentence2\na film\tthe film\n"))
    said = str(caught.value.with_option("--label"))
    assert caught.value.number is None and said.endswith("give its number, which is counted from 1")
    refused(read_labelled, path, 1, "text and label are the same column, '1'; expected two different ones",
            text="1", label="1")  # fmt: skip
    refused(read_scored, file("c.tsv", "a\tb\t1\n"), 1, "first and second are the same column, '1'",
            first="1", second="1", score="3")  # fmt: skip


def test_text_and_label_are_not_swapped(file):
    """More different labels than texts are sentences. A few labels of the same text are not."""
    rows = "".join(f"a film number {n}\t{'yes' if n % 2 else 'no'}\n" for n in range(8))
    found = (
        "2 different texts in column '2', but 8 different labels in '1', such as 'a film number 0'. Are text and label"
    )
    refused(read_labelled, file("a.tsv", rows), None, found, text="2", label="1")
    assert len(read_labelled(file("b.tsv", "text\tlabel\n" + "so\ta\nso\tb\nso\tc\n"))) == 3


def test_columns_that_are_not_there(file):
    path = file("a.tsv", TSV)
    refused(read_labelled, path, 1, "no column 'review'; there are 'sentence', 'label'", text="review")
    refused(read_labelled, path, 1, "no column '7'; there are 'sentence', 'label'", text="1", label="7")
    refused(read_labelled, file("b.tsv", "a b\tc\n"), 1, "no column '7'; there are '1', '2'", text="1", label="7")
    refused(read_labelled, path, 1, "no column 'hypothesis'", second="hypothesis")


def test_missing_and_damaged_files(tmp_path, file):
    """A missing file and a truncated compressed one give the usual errors, with the name."""
    with pytest.raises(FileNotFoundError, match=r"nothing\.tsv"):
        read_labelled(tmp_path / "nothing.tsv")
    with pytest.raises(ValueError, match=r"a\.tsv\.gz is truncated"):
        read_labelled(file("a.tsv.gz", gzip.compress(TSV.encode())[:-12]))


# --- scores ------------------------------------------------------------------------------------------------


def test_scored(file):
    """Two texts and a number, with the column names of STS-B or SICK, or with given ones."""
    stsb = file("a.tsv", 'score\tsentence1\tsentence2\tgenre\n4.75\tA cat .\tA "cat" .\tx\n0\ta\tb\ty\n')
    assert read_scored(stsb) == [Scored("A cat .", 'A "cat" .', 4.75, 2), Scored("a", "b", 0.0, 3)]
    sick = file("b.csv", "pair_ID,sentence_A,sentence_B,relatedness_score\n1,a b,c d,3.5\n")
    assert read_scored(sick) == [Scored("a b", "c d", 3.5, 2)]
    lines = file("c.jsonl", '{"left": "a", "right": "b", "how": 2}\n')
    assert read_scored(lines, "left", "right", "how") == [Scored("a", "b", 2.0, 1)]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("sentence1\tsentence2\tscore\na\tb\tmuch\n", 2, "score is 'much', expected a number"),
        ("sentence1\tsentence2\tscore\na\tb\t3\na\tb\tnan\n", 3, "score is 'nan'"),
        ("sentence1\tsentence2\tscore\na\tb\t\n", 2, "score is '', expected a number"),
        ("sentence1\tsentence2\tscore\na\t\t3\n", 2, "sentence2 is empty"),
        (
            "sentence\tscore\na\t3\n",
            1,
            "no column for the second text, such as 'sentence2'; there are 'sentence'",
        ),
        ("sentence1\tsentence2\tpoints\na\tb\t3\n", 1, "no column for the score"),
        ("sentence1\tscore\na\t3\n", 1, "second text, such as 'sentence2'; there are 'sentence1', 'score'. Name the"),
        ("sentence1\tscore\na\t3\n", 1, 'Name the column with second="…", or, if there is no header'),
        ("hypothesis\tscore\na\t3\n", 1, "no column for the first text, such as 'premise'; there are 'hypothesis'"),
        ("hypothesis\tscore\na\t3\n", 1, 'Name the column with first="…"'),
    ],
)
def test_bad_scored_files(file, content, line, words):
    refused(read_scored, file("a.tsv", content), line, words)


# --- tags --------------------------------------------------------------------------------------------------


def test_tagged(file):
    """A word and its tag on each line; one or more empty lines between sentences; none needed at the end."""
    path = file("a.conll", "\n\nMy\tO\nWashington\tB-PER\n\n\n\nIn\tO\nBath\tB-LOC")
    assert read_tagged(path) == [
        Tagged(["My", "Washington"], ["O", "B-PER"], 3),
        Tagged(["In", "Bath"], ["O", "B-LOC"], 8),
    ]


def test_odd_words_of_tweets(file):
    """Hashtags, a bare #, non-breaking spaces, invisible characters and Unicode line separators are words."""
    words = ["#nowplaying", "#", "a\u00a0b", "\u200b", "x\u2028y", "x\x85y", '"', "-", "\ufe0f", "😀", "\u00a0"]
    path = file("a.conll", "".join(f"{word}\tO\n" for word in words) + "\t\n" + "#end\tB-product\n")
    assert read_tagged(path) == [Tagged(words, ["O"] * len(words), 1), Tagged(["#end"], ["B-product"], 13)]


def test_columns_of_conll_2003(file):
    """Spaces, four columns, -DOCSTART-: the tag is in the last column, or in the chosen one."""
    path = file("a.txt", "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n# # O O\nmore NN I-NP O\n")
    assert read_tagged(path) == [Tagged(["EU", "rejects"], ["I-ORG", "O"], 3), Tagged(["#", "more"], ["O", "O"], 6)]
    assert [one.tags for one in read_tagged(path, 1)] == [["NNP", "VBZ"], ["#", "NN"]]
    assert read_tagged(path, -3) == read_tagged(path, 1)


def test_comments(file):
    """A comment before a sentence has no tag; comments of MultiCoNER begin with # id."""
    assert read_tagged(file("a.tsv.conll", "# source: mine\n#2\nEU\tB\n")) == [Tagged(["EU"], ["B"], 3)]
    assert read_tagged(file("b.conll", "# id 7 domain=en\nEU _ _ B\n\n# id 8 domain=en\nit _ _ O\n")) == [
        Tagged(["EU"], ["B"], 2),
        Tagged(["it"], ["O"], 5),
    ]


def test_a_comment_of_as_many_words_as_there_are_columns(file):
    """`# mine` is a comment; `# O` is the word #, since other words have the tag O. A hashtag is always a word."""
    text = "# mine\nEU B\nit O\n\n# newdoc\n# O\n\n#rain B\n\n#sun X\n"
    assert read_tagged(file("a.conll", text)) == [
        Tagged(["EU", "it"], ["B", "O"], 2),
        Tagged(["#"], ["O"], 6),
        Tagged(["#rain"], ["B"], 8),
        Tagged(["#sun"], ["X"], 10),
    ]


@pytest.mark.parametrize("between", ["", " ", "   ", "\t", " \t "])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_line_of_blanks_ends_a_sentence(file, between, separator):
    path = file("a.conll", f"EU{separator}B\n{between}\nit{separator}O\n{between}\n")
    assert read_tagged(path) == [Tagged(["EU"], ["B"], 1), Tagged(["it"], ["O"], 3)]


def test_tagged_json_lines(file):
    """Two lists, under the usual names."""
    path = file("a.jsonl", '{"tokens": ["EU", "it"], "ner_tags": [3, 0]}\n{"words": ["a"], "tags": ["DET"]}\n')
    assert read_tagged(path) == [Tagged(["EU", "it"], ["3", "0"], 1), Tagged(["a"], ["DET"], 2)]


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("a.conll", "EU\tB\nrejects\n", 2, "1 field, expected 2 as on the lines before: 'rejects'"),
        ("a.conll", "EU\tB\nrejects\tO\tO\n", 2, "3 fields, expected 2"),
        ("a.conll", "EU\tB\nrejects\t\n", 2, "has no tag"),
        ("a.conll", "EU\tB\n\tO\n", 2, "has no word"),
        ("a.conll", "EU B\nrejects\n", 2, "1 field, expected 2"),
        ("a.conll", "\n# text\nEU\nrejects\n", 3, "a line has 1 field: 'EU'; expected a word, and its tag"),
        ("a.conll", "EU\tB\n# a remark inside\nx\tO\n", 2, "1 field, expected 2"),
        ("a.conll", "\n\n", None, "the file has no examples"),
        ("a.tsv", "sentence\tlabel\na fine day\t1\n", 1, "'sentence' and 'label' are the header of a table; expected"),
        ("a.conll", "Token Tag\nEU B\n", 1, "'Token' and 'Tag' are the header of a table"),
        ("a.tsv", "well\t1\nit was a fine day\t1\nit rained all day\t0\n", 2, "'it was a fine day' is a text, not"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', 1, "2 words and 1 tag; expected a tag for each word"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": [], "tags": []}', 2, "a word or a tag is empty"),
        ("a.jsonl", '{"tokens": ["a", ""], "tags": ["O", "O"]}', 1, "is empty"),
        ("a.jsonl", '{"tokens": "a b", "tags": ["O", "O"]}', 1, "expected a list under words or tokens"),
        ("a.jsonl", '{"tokens": ["a"], "entities": ["O"]}', 1, "expected a list under tags or ner_tags"),
    ],
)  # fmt: skip
def test_bad_tagged_files(file, name, content, line, words):
    refused(read_tagged, file(name, content), line, words)


def test_words_with_blanks(file):
    """Words may contain spaces, as in Vietnamese, and as names do in some files."""
    assert read_tagged(file("a.conll", "New York\tB\n\nhọc sinh\tN\nđi\tV\n"))[1].words == ["học sinh", "đi"]


@pytest.mark.parametrize("column", [0, 2, -2, 5, -5])
def test_a_column_without_tags(file, column):
    refused(read_tagged, file("a.conll", "EU\tB\n"), 1, f"its tag in column {column}", column=column)


# --- trees -------------------------------------------------------------------------------------------------

CONLLU = """\
# sent_id = 1
# text = We don't buy, she does.
1\tWe\twe\tPRON\tPRP\tCase=Nom\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\tLemma=x|# no comment
4\tbuy\tbuy\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
5\t,\t,\tPUNCT\t,\t_\t7\tpunct\t_\t_
6\tshe\tshe\tPRON\tPRP\t_\t7\tnsubj\t_\t_
7\tdoes\tdo\tVERB\tVBZ\t_\t4\tparataxis\t_\t_
7.1\tbuy\tbuy\tVERB\tVB\t_\t_\t_\t4:conj\tCopyOf=4
8\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# newpar

# text = #1
1\t#1\t#1\tNOUN\tNN\t_\t0\troot\t_\t_
"""
WE = Parsed(
    ["We", "do", "n't", "buy", ",", "she", "does", "."],
    ["PRON", "AUX", "PART", "VERB", "PUNCT", "PRON", "VERB", "PUNCT"],
    [4, 4, 4, 0, 7, 7, 4, 4],
    ["nsubj", "aux", "advmod", "root", "punct", "nsubj", "parataxis", "punct"],
    3,
)


def test_conllu(file):
    """Comments, multiword tokens, empty nodes and notes in MISC are handled: the tree is over the words 1, 2, 3, …"""
    path = file("a.conllu", CONLLU.replace("# newpar\n\n", ""))
    assert read_conllu(path) == [WE, Parsed(["#1"], ["NOUN"], [0], ["root"], 15)]
    assert (
        read_conllu(file("b.conllu", "\ufeff" + path.read_text(encoding="utf-8").replace("\n", "\r\n") + "\r\n\r\n"))[0]
        == WE
    )


def test_conllu_as_tags(file):
    """Parts of speech for a tagger: UPOS unless another column is chosen; CoNLL-U is recognised by name or content."""
    text = CONLLU.replace("# newpar\n\n", "")
    for name in ("a.conllu", "a.txt", "a.conllu.gz"):
        path = file(name, gzip.compress(text.encode()) if name.endswith("gz") else text)
        assert read_tagged(path)[0] == Tagged(WE.words, WE.tags, 3)
        assert read_tagged(path, 4)[0].tags[:3] == ["PRP", "VBP", "RB"]
        assert read_tagged(path, 7)[0].tags == WE.relations
    refused(read_tagged, path, None, "column is 12, expected one with tags, from 2 to 9: 0 ID, 1 FORM", column=12)
    refused(read_tagged, path, 3, "'We' has no tag in column 9 (MISC)", column=9)


def _changed(old: str, new: str) -> str:
    text = CONLLU.replace("# newpar\n\n", "")
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (CONLLU, 14, "a sentence without words"),
        (_changed("6\tshe\t", "5\tshe\t"), 9, "word '5', expected 6"),
        (_changed("6\tshe\t", "8\tshe\t"), 9, "word '8', expected 6"),
        (_changed("6\tshe\tshe\t", "6\tshe\t"), 9, "9 fields, expected 10, separated by tabs"),
        (_changed("\t_\t7\tnsubj", "\t_\t70\tnsubj"), 9, "is '70', expected the number of another word, up to 8"),
        (_changed("\t_\t7\tnsubj", "\t_\t6\tnsubj"), 9, "the head of 'she' is '6'"),
        (_changed("\t_\t7\tnsubj", "\t_\t_\tnsubj"), 9, "the head of 'she' is '_'"),
        (_changed("\t_\t7\tnsubj", "\t_\t-1\tnsubj"), 9, "the head of 'she' is '-1'"),
        (_changed("\t_\t7\tnsubj", "\t_\t7\t_"), 9, "'she' has no relation"),
        (_changed("6\tshe\tshe\tPRON", "6\tshe\tshe\t_"), 9, "'she' has no part of speech"),
        (_changed("6\tshe", "6\t"), 9, "word 6 is empty"),
        (_changed("\t_\t7\tnsubj", "\t_\t0\tnsubj"), 3, "a sentence with 2 roots, expected one: 'buy', 'she'"),
        (_changed("\t_\t0\troot\t0", "\t_\t7\troot\t0"), 3, "a sentence with 0 roots"),
        (_changed("\t_\t4\tparataxis", "\t_\t6\tparataxis"), 8, "the heads of ',' form a cycle"),
        (_changed("2-3\tdon't", "3-4\tdon't"), 4, "found the token 3-4, expected word 2"),
        (_changed("2-3\tdon't", "2-9\tdon't"), 12, "token extends to 9"),
        ("# nothing\n", 1, "a sentence without words"),
        ("", None, "the file has no examples"),
        ("1 We we PRON\n", 1, "1 field, expected 10"),
    ],
)  # fmt: skip
def test_bad_conllu_files(file, content, line, words):
    refused(read_conllu, file("a.conllu", content), line, words)


# --- questions ---------------------------------------------------------------------------------------------


def squad(**changes) -> dict:
    record = {"id": "q2", "question": "Who sat?", "answers": [{"text": "cat", "answer_start": 4}], **changes}
    first = {"id": "q1", "question": " What? ", "answers": [{"text": "😀 mat", "answer_start": 15},
                                                           {"text": "mat", "answer_start": 17}]}  # fmt: skip
    paragraph = {"context": "The cat sat on 😀 mat.", "qas": [first, record]}
    return {"version": "1.1", "data": [{"title": "Cats", "paragraphs": [paragraph]}]}


def test_squad(file):
    """Every question has its text; answers start at character offsets; questions are numbered, because the file is one
    line."""
    context = "The cat sat on 😀 mat."
    right = [
        Question("q1", "What?", context, ["😀 mat", "mat"], [15, 17], 1),
        Question("q2", "Who sat?", context, ["cat"], [4], 2),
    ]
    assert read_squad(file("a.json", json.dumps(squad()))) == right
    assert read_squad(file("b.json", json.dumps(squad(), ensure_ascii=False, indent=1))) == right
    assert read_squad(file("c.json.gz", gzip.compress(json.dumps(squad()).encode()))) == right


def test_questions_in_json_lines(file):
    """The same names in one object per line, with answers as a list of pairs or as two lists."""
    lines = [
        {"id": 7, "question": "Who?", "context": "The cat.", "answers": {"text": ["cat"], "answer_start": [4]}},
        {"question": "Who?", "context": "A dog.", "answers": [{"text": "dog", "answer_start": 2}]},
    ]
    assert read_squad(file("a.jsonl", "\n".join(map(json.dumps, lines)))) == [
        Question("7", "Who?", "The cat.", ["cat"], [4], 1),
        Question("2", "Who?", "A dog.", ["dog"], [2], 2),
    ]


def test_questions_without_answers(file, caplog):
    """SQuAD 2's impossible questions are skipped with a warning; other questions need an answer, except for
    prediction."""
    path = file("a.json", json.dumps(squad(answers=[], is_impossible=True)))
    assert [one.id for one in read_squad(path)] == ["q1"]
    assert "skipped 1 question without an answer" in caplog.text
    assert [(one.id, one.answers) for one in read_squad(path, unanswered=True)][1] == ("q2", [])
    path = file("b.json", json.dumps(squad(answers=[])))
    refused(read_squad, path, 1, "question 2 (id 'q2') has no answer")
    assert len(read_squad(path, unanswered=True)) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"answers": [{"text": "dog", "answer_start": 4}]},
            "the answer 'dog' is not at 4, which is 'cat'; it does not occur in the text",
        ),
        ({"answers": [{"text": "cat", "answer_start": 5}]}, "is not at 5, which is 'at '; it starts at 4"),
        ({"answers": [{"text": "cat", "answer_start": -18}]}, "is not at -18"),
        ({"answers": [{"text": "cat", "answer_start": 999}]}, "is not at 999"),
        ({"answers": [{"text": "", "answer_start": 4}]}, "lacks a text or answer_start"),
        ({"answers": [{"text": "cat"}]}, "lacks a text or answer_start"),
        ({"answers": ["cat"]}, "the answer 'cat' lacks a text or answer_start"),
        ({"answers": {"text": ["cat"], "answer_start": []}}, "expected two lists of equal length"),
        ({"question": " "}, "is empty"),
        ({"question": None}, "is empty"),
        ({"id": "q1"}, "repeats the id 'q1'"),
        ({"question": "\ud83d?"}, "is half of a surrogate pair"),
    ],
)
def test_bad_questions(file, changes, words):
    """Errors name the number of the question, and its line if the file has several."""
    refused(read_squad, file("a.json", json.dumps(squad(**changes))), 1, words)
    if words.startswith("is half"):
        return
    text = json.dumps(squad(**changes), indent=1)
    line = next(
        number for number, row in enumerate(text.splitlines(), 1) if f'"id": "{changes.get("id", "q2")}"' in row
    )
    path = file("b.json", text)
    with pytest.raises(LabelError, match="question 2") as caught:
        read_squad(path)
    assert caught.value.line >= line


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ('{"version": "1.1",\n "data": [', 2, "not JSON"),
        ('{"version": "1.1"}', 1, "expected the format of SQuAD"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', None, "the file has no examples"),
        ('{"data": [{"paragraphs": [{"qas": [{}]}]}]}', 1, "expected the format of SQuAD"),
        ("[]", 1, "expected the format of SQuAD"),
        ('{"data": [{"paragraphs": [{"context": "", "qas": [{"id": "x", "question": "?"}]}]}]}', 1, "has no context"),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": ["?"]}]}]}', 1, "'?' is not a question"),
    ],
)
def test_bad_squad_files(file, content, line, words):
    refused(read_squad, file("a.json", content), line, words)


def test_bad_questions_in_json_lines(file):
    good = '{"question": "Who?", "context": "A dog.", "answers": [{"text": "dog", "answer_start": 2}]}'
    refused(read_squad, file("a.jsonl", good + "\n\n" + good.replace("2}", "3}")), 3, "is not at 3")
    refused(read_squad, file("b.jsonl", good + "\n" + good.replace("context", "text")), 2, "has no context")


# --- labels ------------------------------------------------------------------------------------------------


def test_label_names():
    """Each label once, sorted; numbers by value; also for the tags of sentences."""
    assert label_names([Labelled("a", None, name, 1) for name in ("b", "a", "b")]) == ["a", "b"]
    assert label_names([Labelled("a", None, name, 1) for name in ("10", "9", "0")]) == ["0", "9", "10"]
    assert label_names([Tagged(["a", "b"], ["O", "B-PER"], 1), WE])[:3] == ["AUX", "B-PER", "O"]
    assert label_names([]) == []


def test_unknown_labels_are_told_with_their_line():
    """The error for a dev label that is not in the training data has the line, the known labels, and the
    closest one."""
    dev = [Labelled("a", None, "positive", 2), Labelled("b", None, "postive", 7)]
    with pytest.raises(
        LabelError,
        match=r"^dev\.tsv:7: the label 'postive' is not in .* 'positive'; did you mean 'positive'\?$",
    ):
        check_labels(dev, ["negative", "positive"], "dev.tsv")
    check_labels(dev[:1], ["negative", "positive"], "dev.tsv")
    with pytest.raises(LabelError, match=r"^x:4: the label of word 2, 'Bath', 'B-LOC' is not in"):
        check_labels([Tagged(["In", "Bath"], ["O", "B-LOC"], 4)], ["O", "B-PER"], Path("x"))
    with pytest.raises(LabelError, match=r"^examples:3: the label of word 1, 'We', 'PRON'"):
        check_labels([WE], ["VERB"])


# --- round trips -------------------------------------------------------------------------------------------


def test_what_is_written_is_read(file):
    """Synthetic examples of every kind, written in every format, are read back unchanged."""
    opinions = synthetic.labelled(40)
    rows = "text\tlabel\n" + "".join(f"{one.text}\t{one.label}\n" for one in opinions)
    assert [one[:3] for one in read_labelled(file("a.tsv", rows))] == [one[:3] for one in opinions]
    lines = "".join(json.dumps({"text": one.text, "label": one.label}) + "\n" for one in opinions)
    assert read_labelled(file("a.jsonl", lines)) == opinions
    pairs = synthetic.scored(40)
    rows = "score,first,second\n" + "".join(f'{one.score},"{one.first}","{one.second}"\n' for one in pairs)
    assert [one[:3] for one in read_scored(file("a.csv", rows))] == [one[:3] for one in pairs]
    tagged = synthetic.tagged(40)
    rows = "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*one[:2], strict=True)) for one in tagged)
    assert [one[:2] for one in read_tagged(file("a.conll", rows))] == [one[:2] for one in tagged]
    trees = synthetic.parsed(40)
    rows = "\n".join(
        "".join(
            f"{number}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"
            for number, (word, tag, head, relation) in enumerate(zip(*one[:4], strict=True), 1)
        )
        for one in trees
    )
    assert [one[:4] for one in read_conllu(file("a.conllu", rows))] == [one[:4] for one in trees]
    asked = synthetic.questions(40)
    paragraphs = [
        {"context": one.context, "qas": [{"id": one.id, "question": one.question, "answers": [
            {"text": text, "answer_start": start} for text, start in zip(one.answers, one.starts, strict=True)]}]}
        for one in asked
    ]  # fmt: skip
    assert read_squad(file("a.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))) == asked


GOOD_FILES = {
    "a.tsv": (read_labelled, TSV),
    "a.csv": (read_labelled, 'text,label\n"slow, but ""warm""",1\n"two\nlines",0\n'),
    "a.jsonl": (read_labelled, '{"text": "a \\u00e7 \\ud83d\\ude00", "label": 1}\n{"text": "b", "label": "x"}\n'),
    "b.tsv": (read_scored, "score\tsentence1\tsentence2\n4.5\ta b\tc d\n1e0\te\tf\n"),
    "a.conll": (read_tagged, "# x\nEU\tB-ORG\n#tag\tO\n\nIn\tO\n"),
    "b.conll": (read_tagged, "-DOCSTART- O\n\nEU B-ORG\n# O\n\nIn O\n"),
    "a.conllu": (read_conllu, CONLLU.replace("# newpar\n\n", "")),
    "b.conllu": (read_tagged, CONLLU.replace("# newpar\n\n", "")),
    "a.json": (read_squad, json.dumps(squad(), indent=1)),
}


@pytest.mark.parametrize("name", GOOD_FILES)
def test_damaged_files_are_read_or_refused(file, name):
    """Whatever is deleted, doubled or changed in a file, it is either read, or a ValueError names it."""
    read, text = GOOD_FILES[name]
    whole = text.encode()
    dice = random.Random(name)
    refusals = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 5))):
            at = dice.randrange(len(data))
            kind = dice.randrange(4)
            if kind == 0:
                del data[at : at + dice.choice((1, 3, 20))]
            elif kind == 1:
                data[at:at] = dice.choice(
                    (b"\t", b"\n", b'"', b"{", b"]", b",", b"\xff", b"\0", b"9", b"\r", b"\\ud800", b"#")
                )
            elif kind == 2:
                data[at] = dice.randrange(256)
            else:
                data[at:at] = data[at : at + 30]
        path = file(name, bytes(data))
        try:
            assert read(path)
        except ValueError as error:
            assert str(path) in str(error)
            refusals += 1
    assert 10 < refusals < 150


# --- real files --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_published_files(caplog):
    """The files of ../shared/data match the numbers in its MANIFEST.md, without any warning."""
    caplog.set_level(logging.INFO)
    for name, count in (("train", 67_349), ("dev", 872)):
        found = read_labelled(SHARED / f"sst2/{name}.tsv.gz")
        assert len(found) == count and label_names(found) == ["0", "1"] and found[-1].line == count + 1
    for name, count in (("train", 5_749), ("dev", 1_500)):
        pairs = read_scored(SHARED / f"stsb/{name}.tsv.gz")
        assert len(pairs) == count and 0 <= min(one.score for one in pairs) < max(one.score for one in pairs) <= 5
    six = {"person", "location", "group", "creative-work", "corporation", "product"}
    for name, count, kinds in (
        ("wnut17_train", 3_394, six),
        ("wnut17_dev", 1_009, six),
        ("wikiann_en_train", 20_000, {"PER", "ORG", "LOC"}),
        ("wikiann_en_dev", 10_000, {"PER", "ORG", "LOC"}),
    ):
        sentences = read_tagged(SHARED / f"ner/{name}.conll.gz")
        assert len(sentences) == count
        assert {tag[2:] for tag in label_names(sentences) if tag != "O"} == kinds
    for name, count, words in (("train", 12_544, 204_577), ("dev", 2_001, 25_147)):
        path = SHARED / f"ud_ewt/en_ewt-ud-{name}.conllu.gz"
        trees = read_conllu(path)
        assert len(trees) == count and sum(len(one.words) for one in trees) == words
        assert [one[:2] for one in read_tagged(path)] == [one[:2] for one in trees]
        assert len(label_names(trees)) == 17
    for name, count, texts in (
        ("squad_dev-v1.1", 10_570, 2_067),
        ("squad_train_subset", 8_149, 4_529),
        ("xquad.en", 1_190, 240),
    ):
        asked = read_squad(SHARED / f"qa/{name}.json.gz")
        assert len(asked) == count and len({one.context for one in asked}) == texts
    assert not caplog.records


def test_answers_that_are_no_list_and_scores_beyond_all_numbers_are_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "Who?", "context": "The cat.", "answers": 5}\n')
    with pytest.raises(LabelError, match=r"a\.jsonl:1: .*expected a list of answers, got 5"):
        read_squad(path)
    path.write_text('{"sentence1": "a", "sentence2": "b", "score": ' + "9" * 401 + "}\n")
    with pytest.raises(LabelError, match=r"a\.jsonl:1: "):
        read_scored(path)
