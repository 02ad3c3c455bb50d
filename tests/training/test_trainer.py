"""The trainer for Python programs trains any model; tests/test_larger.py has the rest of its behaviour."""

import json
import random
from pathlib import Path

import pytest

from larger_bert.train import LargerBERTTrainer
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.inference.loading import load_model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.trainer import Trainer

TOKENIZER = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cats", "purr", "dogs", "bark", "."])


def test_a_published_bert_with_next_sentences(tmp_path, monkeypatch):
    """A model and an objective other than Larger-BERT's: the run folder has its loss, and the model loads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", "home")
    draw = random.Random(0)
    documents = ["\n".join(draw.choices(["cats purr .", "dogs bark .", "cats bark ."], k=7)) for _ in range(40)]
    Path("text.txt").write_text("\n\n".join(documents))
    batches = MLMDataGenerator("text.txt", TOKENIZER, 13, 4, mode="pairs", held_out=0.2, progress=False)
    trainer = Trainer(Bert(BertConfig(10, 12, 2, 3, 17)), "out", quiet=True, threads=1, learning_rate=1e-2)
    assert trainer.train(batches, num_steps=3).stopped == "done" and trainer.out == Path("out")
    last = json.loads(Path("out/metrics.jsonl").read_text().splitlines()[-2])
    assert last["kind"] == "checkpoint" and isinstance(load_model("out"), Bert)
    assert trainer.evaluate(batches).targets > 0
    with pytest.raises(ValueError, match=r'out already contains a run; .*another folder: Trainer\(model, out="'):
        trainer.train(batches, num_steps=3)
    assert isinstance(trainer, Trainer) and issubclass(LargerBERTTrainer, Trainer)
