"""Every command gives the same verdict on the same loss."""

import doctest
import json

import pytest

from mini_bert.evaluation import unigram_baseline as yardstick
from mini_bert.evaluation.corpus import CorpusResult, report
from mini_bert.evaluation.evaluate import Evaluation
from mini_bert.evaluation.unigram_baseline import BELOW, knows_frequencies, uses_context, verdict, verdict_on_text
from mini_bert.training.doctor import diagnose

BASELINE = 6.5


@pytest.mark.parametrize("loss", [3.0, BASELINE - BELOW - 0.01, BASELINE - BELOW + 0.01, 6.4, 6.6, 6.9, 9.0])
def test_the_doctor_and_eval_agree(tmp_path, loss):
    """The limits are the same, on both sides of each. The wording differs: a run is not finished, a text may be odd."""
    records = [{"kind": "start", "step": 0, "unigram_loss": BASELINE}]
    records += [{"kind": "train", "step": 10 * i, "loss": loss, "lr": 1e-3} for i in range(1, 5)]
    records.append({"kind": "stop", "step": 40, "reason": "done"})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (finding,) = diagnose(tmp_path)
    said = report(
        "model", [CorpusResult("text.txt", Evaluation(loss, 1.0, 0.1, 0.2, 100), 1.0, 0.1, 0.5, (), BASELINE)]
    )
    assert verdict(loss, BASELINE) in finding.why and verdict_on_text(loss, BASELINE) in said
    for run_says, text_says in (
        ("it uses context", "it uses context"),
        ("has learnt word frequencies, but", "no better than the word frequencies"),
        ("not even learnt word frequencies", "worse than word frequencies"),
    ):
        assert (run_says in finding.why) == (text_says in said)


def test_the_limits():
    """0.8 nats below the unigram baseline shows context: smaller gains may come from copying the tenth of the tokens
    left unchanged."""
    assert uses_context(5.7, BASELINE) and not uses_context(5.71, BASELINE)
    assert knows_frequencies(6.79, BASELINE) and not knows_frequencies(6.8, BASELINE)


def test_examples_in_docstrings():
    assert doctest.testmod(yardstick).failed == 0
