"""The bundled Mini-BERT: it is small, matches its model card, and has learnt something."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from mini_bert import MiniBERT
from mini_bert.evaluation.corpus import measure_corpus, report
from mini_bert.evaluation.word_frequencies import read_frequencies
from mini_bert.files.model_folder import locate
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.loading import load

TEXT = (
    "the house stood at the end of a long street . in the morning the children went to school , and in the evening "
    "they came home and told their mother what they had learned . he was one of the first members of the society ."
)


@pytest.fixture(scope="module")
def bundled():
    return load("mini-bert")


def test_it_is_mini_bert_in_16_bits_and_at_most_10_megabytes():
    folder = locate("mini-bert")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 10e6
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert {entry["dtype"] for entry in tensors.values()} == {"F16"}
    assert sum(int(np.prod(entry["shape"])) for entry in tensors.values()) == 4_498_880


def test_the_default_names_it(bundled):
    model, tokenizer = bundled
    assert model.get_parameter_count() == 4_498_880 and tokenizer.vocab_size == 8192
    np.testing.assert_array_equal(MiniBERT.from_pretrained("mini-bert").flat.data, model.flat.data)
    np.testing.assert_array_equal(load()[0].flat.data, model.flat.data)


def test_it_uses_context(bundled):
    """With each word of a plain English text masked in turn, the loss is far below ln 8192 = 9.01 and below any unigram
    entropy."""
    model, tokenizer = bundled
    ids = np.array(tokenizer.encode(TEXT))
    places = np.arange(1, ids.size - 1)
    hidden = np.tile(ids, (places.size, 1))
    hidden[np.arange(places.size), places] = tokenizer.mask_id
    loss, _ = model.loss(hidden, np.arange(places.size) * ids.size + places, ids[places])
    assert loss < 4.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("she opened the [MASK] and went into the room .", "door"),
        ("he was one [MASK] the first members of the society .", "of"),
        ("they were sitting at the [MASK] , eating and drinking .", "table"),
        ("she shook her [MASK] and said nothing .", "head"),
    ],
)
def test_its_guesses_make_sense(bundled, text, expected):
    (guesses,) = fill_mask(*bundled, text, top=3).gaps
    assert expected in [guess.word for guess in guesses]


def test_the_card_has_data_recipe_numbers_and_limits():
    card = (locate("mini-bert") / "README.md").read_text(encoding="utf-8")
    for word in (
        "Wikipedia",
        "Gutenberg",
        "CC BY-SA",
        "learning rate",
        "perplexity",
        "top-5",
        "28,432",
        "English only",
    ):
        assert word in card
    assert float(re.search(r"\| mean \| [\d,]+ \| ([\d.]+)", card)[1]) <= 3.8


def test_it_uses_context_in_a_readme(bundled, tmp_path, monkeypatch):
    """A README has few words, so its own entropy is as low as the model's loss. Compared with the frequencies of the
    training text, the model clearly uses context."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path))
    readme = Path(__file__).parents[2] / "README.md"
    row = measure_corpus(*bundled, str(readme), log_frequencies=read_frequencies("mini-bert"))
    assert row.unigram_loss > row.unigram_entropy + 1
    assert "it uses context" in report("mini-bert", [row])
