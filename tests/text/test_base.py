"""The tokenizer protocol: a tokenizer that differs from BERT's in everything needs only a subclass and an entry in
KINDS."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path

import pytest

import mini_bert
from mini_bert.text import loading
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.loading import KINDS, Kind, load_tokenizer
from mini_bert.text.tokenizer_files import FIELDS
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from tests.text.letters import TOKENS, Letters


def test_the_template_decides_where_special_tokens_go():
    """Ids, token types, word ids, truncation and padding follow the class's template."""
    letters = Letters(TOKENS)
    assert letters.encode("ab") == [4, 5, 2, 3]
    batch = letters("ab", "b?", padding="max_length", max_length=10)
    assert batch["input_ids"] == [4, 5, 2, 2, 5, 1, 2, 3, 0, 0]
    assert batch["token_type_ids"] == [0, 0, 0, 0, 0, 0, 0, 2, 0, 0]
    assert batch.word_ids() == [0, 0, None, None, 0, 0, None, None, None, None]
    assert letters.encode("abab", truncation=True, max_length=4) == [4, 5, 2, 3]
    assert letters.added_count() == 2 and letters.added_count(2) == 4
    assert letters.assemble([4], [5, 5]) == ([4, 2, 2, 5, 5, 2, 3], [0, 0, 0, 0, 0, 0, 2], [0, 3], 6)
    assert letters("a", "b", add_special_tokens=False)["token_type_ids"] == [0, 0]
    assert letters.added_roles([4, 2, 3, 0]) == ["", "sep", "cls", "pad"] and letters.special_ids == (0, 1, 2, 3)


def test_special_tokens_in_a_text_have_the_class_s_spelling():
    """ "<c>" is one token and a separate word; "[CLS]" is letters."""
    letters = Letters(TOKENS)
    assert letters.ids(["a<c>b", "[CLS]"]) == [[4, 3, 5], [1] * 5]
    assert letters.spans("a<c>b") == ([(0, 1), (1, 4), (4, 5)], [0, 1, 2])
    assert letters.decode([4, 3, 5, 2], skip_special_tokens=True) == "ab"
    assert copy.deepcopy(letters).fingerprint == letters.fingerprint


def test_a_role_that_is_missing_is_named():
    """The error for a tokenizer without a mask says so."""
    letters = Letters(TOKENS)
    assert letters.mask_token is None
    with pytest.raises(ValueError, match=r"Letters\(6 tokens\) has no mask token, only pad, unk, cls, sep"):
        _ = letters.mask_id


def test_the_files_decide_the_class(tmp_path, monkeypatch):
    """The class is chosen by the model type in tokenizer.json or the file name; the error for an unknown type lists the
    known ones."""
    bert = WordPieceTokenizer([*SPECIAL_TOKENS, "the"])
    bert.save(tmp_path / "bert")
    for source in (tmp_path / "bert", tmp_path / "bert" / "tokenizer.json", tmp_path / "bert" / "vocab.txt"):
        loaded = load_tokenizer(source)
        assert isinstance(loaded, WordPieceTokenizer) and loaded.fingerprint == bert.fingerprint
    (tmp_path / "letters").mkdir()
    path = tmp_path / "letters" / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "Letters", "vocab": TOKENS}}))
    with pytest.raises(ValueError, match=r"'Letters', which Mini-BERT cannot read; known: WordPiece \(tokenizer.json"):
        load_tokenizer(path)
    kind = Kind("Letters", "letters.txt", __name__, "Letters")
    monkeypatch.setattr(loading, "KINDS", (*loading.KINDS, kind))
    assert isinstance(load_tokenizer(path.parent), Letters)
    path.unlink()
    (tmp_path / "letters" / "letters.txt").write_text(" ".join(TOKENS))
    assert isinstance(load_tokenizer(path.parent), Letters)


def test_the_folder_of_a_run_has_the_tokenizer_of_its_model(tmp_path):
    """The best model's, or else the newest checkpoint's, as for models; a bundled model is found by its name."""
    for name, size in (("checkpoints/step-1", 4), ("checkpoints/step-2", 5), ("model", 6)):
        WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdef"[:size]]).save(tmp_path / name)
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").touch()
        assert load_tokenizer(tmp_path).vocab_size == len(SPECIAL_TOKENS) + size
    assert load_tokenizer("mini-bert").fingerprint == load_tokenizer("8k").fingerprint


def test_a_class_that_reads_another_kind_names_the_function_for_all():
    for kind, name in ((WordPieceTokenizer, "bpe-8k"), (BpeTokenizer, "8k"), (UnigramTokenizer, "8k")):
        with pytest.raises(ValueError, match=r"expected (WordPiece|BPE|Unigram); load it with load_tokenizer"):
            kind.load(name)


@pytest.mark.parametrize(
    ("model", "message"),
    [({"type": "WordLevel", "vocab": {}}, r"of type 'WordLevel', which Mini-BERT cannot read, expected \w+$"),
     ({"vocab": {}}, r"of an unknown type, which Mini-BERT cannot read, expected \w+$"),
     ({"vocab": {"a": 0}, "merges": []}, r"of type 'BPE', expected \w+; load it with load_tokenizer"),
     ({"type": "Unigram"}, "it has no model with a vocabulary")],
)  # fmt: skip
def test_a_kind_that_nothing_reads_gets_no_such_remedy(tmp_path, model, message):
    """The type of old files, which do not say it, is that of a field in it."""
    assert set(FIELDS) == {kind.model for kind in KINDS}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    for kind in (WordPieceTokenizer, UnigramTokenizer):
        with pytest.raises(ValueError, match=message):
            kind.load(tmp_path)


def test_a_folder_of_another_kind(tmp_path):
    """If no file can be read, the error names the class in tokenizer_config.json."""
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    with pytest.raises(
        FileNotFoundError,
        match=r"neither tokenizer.json nor vocab.txt nor vocab.json .*; its .* names a GPT2Tokenizer",
    ):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a tokenizer"):
        load_tokenizer(tmp_path)


def test_no_other_room_knows_the_marks():
    """Outside text/, no string constant is BERT's mask or WordPiece's prefix (docstrings and longer help texts
    aside)."""
    package = Path(mini_bert.__file__).parent
    paths = [path for path in package.rglob("*.py") if path.parent.name != "text"]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value.strip() not in ("[MASK]", "##"), f"{path}, line {node.lineno}"


def test_no_other_room_knows_the_template():
    """Outside text/, no code places cls or sep, with one exception: documents are separated by sep, so a model of the
    next word begins a document after it."""
    package = Path(mini_bert.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("cls_id", "sep_id"):
                found.add((path.relative_to(package).as_posix(), node.attr))
    assert {pair for pair in found if not pair[0].startswith("text/")} == {
        ("data/shards.py", "sep_id"),
        ("evaluation/likelihood.py", "sep_id"),
        ("inference/generate.py", "sep_id"),
        ("inside/inputs.py", "sep_id"),
        ("lab/bench.py", "sep_id"),
    }
