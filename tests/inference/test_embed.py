"""Sentence vectors: means of the right tokens, for any batch, from arguments, files and pipes."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

from mini_bert.cli import use
from mini_bert.inference.embed import cosines, embed, read_lines, similarity_table
from mini_bert.inference.loading import load
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s"]
SIZES = MiniBertConfig(vocab_size=13, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11)
MODELS = [MiniBERT(SIZES, seed=5), Bert(BertConfig(13, 10, 2, 2, 7, max_position_embeddings=11), seed=5)]
TEXTS = ["The cat sat on the mat.", "Dogs.", "zebra", "The dog sat.", "cat cat cat", "The dog sat on"]


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(WORDS)


@pytest.fixture
def folder(tmp_path, tokenizer):
    MODELS[0].save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("model", MODELS, ids=["mini", "published"])
@pytest.mark.parametrize(("pooling", "tokens"), [("mean", slice(1, -1)), ("all", slice(None)), ("cls", slice(0, 1))])
def test_the_mean_of_the_right_tokens(model, pooling, tokens, tokenizer):
    """A vector is the mean over the tokens of its text computed alone; padding, order and threads change nothing."""
    wanted = np.stack([model.encode([tokenizer.encode(text)])[0][0][tokens].mean(0) for text in TEXTS])
    for batch_size, threads in ((1, 1), (4, 1), (32, 1), (2, 3)):
        found = embed(model, tokenizer, TEXTS, pooling, batch_size, threads)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        assert found.dtype == np.float32


def test_long_texts_are_cut(tokenizer, caplog):
    """A text that is too long is cut, with a warning."""
    long = "the cat sat on the mat . the dog sat on the mat"
    found = embed(MODELS[0], tokenizer, [long, "The cat"])
    np.testing.assert_allclose(found[0], embed(MODELS[0], tokenizer, [" ".join(long.split()[:9])])[0], atol=1e-6)
    assert "cut 1 of 2 texts to the model's limit of 11 tokens" in caplog.text


def test_what_cannot_be_embedded(tokenizer):
    """A bare str, an empty text, and an unknown pooling are errors."""
    with pytest.raises(TypeError, match="takes a list of texts"):
        embed(MODELS[0], tokenizer, "text")
    with pytest.raises(ValueError, match="text 2 of 2, '', has no words"):
        embed(MODELS[0], tokenizer, ["cat", ""])
    with pytest.raises(ValueError, match="pooling is 'max', expected one of mean, cls, all"):
        embed(MODELS[0], tokenizer, ["cat"], "max")


def test_cosines():
    """1 for the same direction, 0 for orthogonal vectors, −1 for opposite ones; 0 with a zero vector."""
    found = cosines(np.array([[1.0, 0], [3, 0], [0, 2], [-5, 0], [0, 0]]))
    np.testing.assert_allclose(found[0], [1, 1, 0, -1, 0])


def test_a_few_texts_are_compared(folder, capsys):
    """Two to ten texts make a table; the closest pair is named."""
    use.embed(["The cat sat.", "The dog sat on the mat.", "The cat sat."], folder)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == " 1  The cat sat." and lines[-1] == "closest: 1 and 3, 1.00"
    assert lines[5].split()[:2] == ["1", "1.00"]
    assert " …" in similarity_table(["x" * 100, "y"], np.eye(2))


def test_files(folder, tmp_path, capsys, tokenizer, caplog):
    """.npy and .jsonl hold the vectors in the order of the lines; - prints lines; blank lines are skipped."""
    source = tmp_path / "texts.txt"
    source.write_text("The cat sat.\n\nThe dog sat.\r\nDogs.\n")
    wanted = embed(MODELS[0], tokenizer, ["The cat sat.", "The dog sat.", "Dogs."])
    use.embed(None, folder, file=str(source), out=str(tmp_path / "v.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    assert "skipped 1 blank line" in caplog.text and "3 vectors of width 10" in capsys.readouterr().err
    use.embed(None, folder, file=str(source), out=str(tmp_path / "v.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [record["text"] for record in records] == ["The cat sat.", "The dog sat.", "Dogs."]
    np.testing.assert_allclose([record["vector"] for record in records], wanted, atol=1e-6)
    capsys.readouterr()
    use.embed(None, folder, file=str(source), out="-")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == records
    use.embed(["The cat sat."], folder)
    assert json.loads(capsys.readouterr().out)["text"] == "The cat sat."


def test_one_text_on_a_terminal(monkeypatch, folder, capsys):
    """A terminal shows the first numbers and how to get all of them, or a comparison."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    use.embed(["The cat sat."], folder)
    said = capsys.readouterr().out
    model, tokenizer = load(folder)
    (vector,) = embed(model, tokenizer, ["The cat sat."])
    assert said.startswith("The cat sat.\n") and " ".join(f"{number:+.2f}" for number in vector[:8]) in said
    assert f"{vector.size} numbers" in said and "--out -" in said and "second text" in said


def test_standard_input(monkeypatch, folder, capsys):
    """Without texts and --file, lines are read from the pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("The cat\nThe dög\n".encode())))
    use.embed(None, folder)
    assert "closest: 1 and 2" in capsys.readouterr().out


def test_wrong_arguments(tmp_path, folder, monkeypatch):
    """Errors in the arguments are reported before the model is loaded."""
    with pytest.raises(ValueError, match=r"v\.csv: expected a name that ends in \.npy or \.jsonl"):
        use.embed(["cat"], "nowhere", out="v.csv")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        use.embed(["cat"], "nowhere", out=str(tmp_path / "a/v.npy"))
    with pytest.raises(ValueError, match="not both"):
        use.embed(["cat"], "nowhere", file="x.txt")
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"empty\.txt contains no text"):
        read_lines(str(tmp_path / "empty.txt"))
    with pytest.raises(FileNotFoundError):
        use.embed(None, folder, file=str(tmp_path / "nowhere.txt"))

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ValueError, match="no text given; give some"):
        use.embed(None, "nowhere")
