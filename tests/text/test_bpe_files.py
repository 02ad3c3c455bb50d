"""The files of byte-level BPE tokenizers: what published ones vary in, and errors that name file, field and remedy."""

from __future__ import annotations

import json

import pytest

from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, ROBERTA
from mini_bert.text.loading import load_tokenizer
from tests.text.test_bpe import CASES, GOLDEN, MERGES, PIECES, gpt2, roberta

SAVED = {
    "gpt2": gpt2(),
    "gpt2 with types": gpt2(pair="A:0 B:1"),
    "roberta": roberta(),
    "roberta, prefix": roberta(add_prefix_space=True, trim_first=False),
    "roberta, plain mask": roberta(lstrip=()),
    "deberta": BpeTokenizer([*DEBERTA.roles.values(), *PIECES], MERGES, DEBERTA),
    "modern": CASES[4][0],
    "trimmed template": BpeTokenizer([*DEBERTA.roles.values(), *PIECES], MERGES, DEBERTA._replace(trim_offsets=True)),
    "unknown": roberta(unknown="<unk>", ignore_merges=True, rstrip=("<s>",)),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_and_loaded(tmp_path, name):
    """tokenizer.json says everything; vocab.json and merges.txt with tokenizer_config.json suffice for usual rules."""
    tok = SAVED[name]
    tok.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    files = ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert load_tokenizer(folder).fingerprint == tok.fingerprint
    (folder / "tokenizer.json").unlink()
    again = load_tokenizer(folder)
    assert again.tokens == tok.tokens and again.merges == tok.merges and again.roles == tok.roles
    if name not in ("gpt2 with types", "modern", "unknown", "trimmed template"):
        assert again.fingerprint == tok.fingerprint


def saved(tmp_path, tok=None, **changes):
    (tok or roberta()).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = content
        for name in parents:
            place = place[name]
        place[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path / "tokenizer.json"


def special(token, kind=0):
    return {"SpecialToken": {"id": token, "type_id": kind}}


def text(name, kind=0):
    return {"Sequence": {"id": name, "type_id": kind}}


def test_what_published_files_vary_in(tmp_path):
    """Merges as pairs, no model type, parts as sequences of one, processors of other types."""
    path = saved(tmp_path, model__merges=[list(pair) for pair in MERGES])
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["model"]["type"], content["model"]["ignore_merges"]
    content["normalizer"] = {"type": "Sequence", "normalizers": []}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [content["pre_tokenizer"]]}
    content["truncation"], content["padding"] = {"max_length": 128}, {"strategy": {"Fixed": 128}}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert load_tokenizer(path).fingerprint == roberta().fingerprint

    path = saved(tmp_path, post_processor=None)
    assert load_tokenizer(path).conventions.single == "A:0"
    path = saved(tmp_path, post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]})
    assert load_tokenizer(path).pair == "cls:0 A:0 sep:0 B:1 sep:1"
    both = [special("<s>"), text("A"), special("</s>"), text("B", 1), special("</s>", 1)]
    template = {"type": "TemplateProcessing", "single": both[:3], "pair": both, "special_tokens": {}}
    trim = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    path = saved(tmp_path, post_processor={"type": "Sequence", "processors": [trim, template]})
    rules = load_tokenizer(path).conventions
    assert rules.pair == "cls:0 A:0 sep:0 B:1 sep:1" and rules.trim_offsets and not rules.trim_first


def test_roles_without_a_config(tmp_path):
    """Special tokens are known by their usual names, or by their place in the template."""
    path = saved(tmp_path, CASES[4][0])
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(path).fingerprint == CASES[4][0].fingerprint
    tok = BpeTokenizer(["<b>", "<e>", *PIECES], MERGES, GPT2._replace(roles={"cls": "<b>", "sep": "<e>"}))
    template = {"type": "TemplateProcessing", "single": [special("<b>"), text("A"), special("<e>")]}
    path = saved(tmp_path, tok, post_processor={**template, "pair": [*template["single"], text("B"), special("<e>")]})
    (tmp_path / "tokenizer_config.json").unlink()
    loaded = load_tokenizer(path)
    assert loaded.roles == {"cls": "<b>", "sep": "<e>"} and loaded.pair == "cls:0 A:0 sep:0 B:0 sep:0"


def test_a_config_names_the_roles(tmp_path):
    """tokenizer_config.json and special_tokens_map.json, as text or as objects; eos ends documents."""
    tok = BpeTokenizer([*PIECES, "<end>", "<gap>"], MERGES, GPT2._replace(roles={"sep": "<end>", "mask": "<gap>"}))
    tok.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>", "pad_token": null}')
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": {"content": "<gap>", "lstrip": true}}')
    loaded = load_tokenizer(tmp_path)
    assert loaded.roles == {"mask": "<gap>", "sep": "<end>", "pad": "<end>", "unk": "<end>"}
    config = {"eos_token": "<end>", "additional_special_tokens": ["Ġ", {"content": "the"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).conventions.special_tokens == ("Ġ", "the")
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "<hole>"}')
    with pytest.raises(ValueError, match=r"special_tokens_map.json: mask_token is '<hole>', which is not in the vocab"):
        load_tokenizer(tmp_path)


def test_tokens_beside_a_vocab_json(tmp_path):
    """added_tokens.json, or added_tokens_decoder in tokenizer_config.json, has tokens beyond the vocabulary."""
    tok = gpt2()
    tok.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<x>": len(tok)}))
    assert load_tokenizer(tmp_path).tokenize("a<x>a") == ["a", "<x>", "a"]
    decoder = {str(len(tok)): {"content": "<y>", "lstrip": True, "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    loaded = load_tokenizer(tmp_path)
    assert loaded.tokenize("a <y>a") == ["a", "<y>", "a"] and loaded.vocab["<y>"] in loaded.special_ids
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"first": {"content": "<y>"}}}')
    with pytest.raises(ValueError, match="added_tokens_decoder has 'first', expected ids"):
        load_tokenizer(tmp_path)


BROKEN = {
    "model__type": ("Unigram2", "cannot read; known: WordPiece"),
    "model__dropout": (0.1, "its model's dropout is 0.1, expected none"),
    "model__end_of_word_suffix": ("</w>", "model's end_of_word_suffix is </w>, expected none"),
    "model__byte_fallback": (True, "model's byte_fallback is True"),
    "model__vocab": ({"a": "x"}, r"model.vocab\['a'\] is 'x', expected a whole number"),
    "model__merges": (["a b c"], r'model.merges\[0\] is .a b c., expected two pieces .* as "t h"'),
    "model__unk_token": ("<none>", "model.unk_token is '<none>', which is not in the vocabulary"),
    "pre_tokenizer": ({"type": "Whitespace"}, "its pre_tokenizer is Whitespace, expected ByteLevel"),
    "pre_tokenizer__use_regex": (False, "pre_tokenizer's use_regex is False, expected true"),
    "pre_tokenizer__add_prefix_space": ("no", "pre_tokenizer.add_prefix_space is 'no', expected true or false"),
    "normalizer": ({"type": "Lowercase"}, "its normalizer is Lowercase, expected NFC"),
    "decoder": (None, "its decoder is None, expected ByteLevel"),
    "post_processor": ({"type": "Other"}, "its post_processor is Other, expected ByteLevel or Roberta"),
    "post_processor__cls": ("<s>", "post_processor.cls is '<s>', expected a token and its id"),
    "added_tokens": ([{"content": "x"}], r"added_tokens\[0\].id is None, expected a whole number"),
}


@pytest.mark.parametrize("field", BROKEN)
def test_what_is_refused(tmp_path, field):
    """The message names the file, the field, what was found and what was expected."""
    value, message = BROKEN[field]
    path = saved(tmp_path, **{field: value})
    with pytest.raises(ValueError, match=message) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)


def test_other_templates_and_tokens_are_refused(tmp_path):
    """A third special token, texts in another order, words only, an empty token, ids with a gap."""
    pieces = {"type": "TemplateProcessing", "single": [text("A")], "pair": [text("B"), text("A")]}
    with pytest.raises(ValueError, match=r"post_processor.pair has the texts B A, expected A, and B in a pair"):
        load_tokenizer(saved(tmp_path, post_processor=pieces))
    pieces = {"type": "TemplateProcessing", "single": [special("<x>"), text("A")], "pair": [text("A"), text("B")]}
    with pytest.raises(ValueError, match=r"post_processor.single has the special token '<x>', expected cls"):
        load_tokenizer(saved(tmp_path, post_processor=pieces))
    pieces["single"] = [text("A"), {"Other": {}}]
    with pytest.raises(ValueError, match=r"post_processor.single has \{'Other'.*expected a Sequence or a SpecialToken"):
        load_tokenizer(saved(tmp_path, post_processor=pieces))
    added = [{"id": 0, "content": "<s>", "single_word": True}]
    with pytest.raises(ValueError, match=r"added_tokens\[0\].single_word is True, expected false: '<s>' would be"):
        load_tokenizer(saved(tmp_path, added_tokens=added))
    with pytest.raises(ValueError, match=r"added_tokens\[0\].content is empty"):
        load_tokenizer(saved(tmp_path, added_tokens=[{"id": 0, "content": ""}]))
    with pytest.raises(ValueError, match="no token has id"):
        load_tokenizer(saved(tmp_path, added_tokens=[{"id": 9999, "content": "<y>"}]))


def test_vocab_json_needs_its_merges(tmp_path):
    """Without merges.txt, or with a line that is no merge, the error names the file and the line."""
    roberta().save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    merges = (tmp_path / "merges.txt").read_bytes()
    (tmp_path / "merges.txt").write_bytes(b"\xef\xbb\xbf" + merges.replace(b"\n", b"\r\n"))
    assert load_tokenizer(tmp_path).fingerprint == roberta().fingerprint
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nthe\n")
    with pytest.raises(ValueError, match=r"merges.txt: line 3 is 'the', expected two pieces"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"merges.txt is not UTF-8"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("x qq\n")
    with pytest.raises(ValueError, match=r"merge 0, 'x' \+ 'qq', needs the piece"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab.json needs merges.txt in the same folder"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 1.5}')
    with pytest.raises(ValueError, match=r"vocab.json: the file\['a'\] is 1.5, expected a whole number"):
        load_tokenizer(tmp_path)


def test_missing_bytes_with_one_unknown_for_several(tmp_path):
    """fuse_unk only matters if bytes are missing."""
    assert load_tokenizer(saved(tmp_path, model__fuse_unk=True, model__unk_token="<unk>")).conventions.unknown
    few = BpeTokenizer([*ROBERTA.roles.values(), "a"], [], ROBERTA)
    with pytest.raises(ValueError, match="fuse_unk is True, expected false, as its vocabulary lacks some bytes"):
        load_tokenizer(saved(tmp_path, few, model__fuse_unk=True, model__unk_token="<unk>"))


def test_the_golden_vocabulary_has_what_it_should():
    """The stored merges make different pieces, and the texts cover each of the vocabulary's added tokens."""
    assert len(PIECES) == 256 + len(MERGES) and len(MERGES) > 150
    assert any("|||IP|||" in one for one in GOLDEN["texts"])
