"""Every command gives the same verdict on the same loss."""

import doctest
import json

import pytest

from mini_bert.evaluation import unigram_baseline as yardstick
from mini_bert.evaluation.corpus import CorpusResult, report
from mini_bert.evaluation.evaluate import Evaluation
from mini_bert.evaluation.unigram_baseline import (
    CHANCE,
    knows_frequencies,
    margin,
    uses_context,
    verdict,
    verdict_on_text,
)
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.training.doctor import diagnose

BASELINE = 6.5


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("below", [3.0, 1.11, 1.09, 0.81, 0.79, CHANCE + 0.01, CHANCE - 0.01, 0.1, -0.4, -2.5])
def test_the_doctor_and_eval_agree(tmp_path, below, objective):
    """The limits are the same, on both sides of each. The wording differs: a run is not finished, a text may be odd."""
    loss, visible = BASELINE - below, OBJECTIVES[objective].visible
    records = [{"kind": "start", "step": 0, "unigram_loss": BASELINE, "objective": objective}]
    records += [{"kind": "train", "step": 10 * i, "loss": loss, "lr": 1e-3} for i in range(1, 5)]
    records.append({"kind": "stop", "step": 40, "reason": "done"})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (finding,) = diagnose(tmp_path)
    said = report(
        "model",
        [CorpusResult("text.txt", Evaluation(loss, 1.0, 0.1, 0.2, 100), 1.0, 0.1, 0.5, (), BASELINE, objective)],
    )
    who = "the generator" if objective == "replaced_tokens" else "it"
    assert verdict(loss, BASELINE, visible, who) in finding.why and verdict_on_text(loss, BASELINE, visible) in said
    for run_says, text_says in (
        (f"{who} uses context", "it uses context"),
        ("has learnt word frequencies, but", " better."),
        ("not even learnt word frequencies", "hardly trained"),
    ):
        assert (run_says in finding.why) == (text_says in said)


def test_the_limits():
    """0.8 nats below the unigram baseline shows context: smaller gains may come from copying the tenth of the tokens
    left unchanged. A generator sees 15 % of its targets. Where nothing can be copied, 0.2 are enough."""
    assert uses_context(5.7, BASELINE) and not uses_context(5.71, BASELINE)
    assert uses_context(6.3, BASELINE, visible=0) and not uses_context(6.31, BASELINE, visible=0)
    margins = {name: round(margin(kind.visible), 6) for name, kind in OBJECTIVES.items()}
    assert {name for name, value in margins.items() if value == CHANCE} == {
        "permutation", "next_word", "next_word_with_memory"
    }  # fmt: skip
    assert margins["masked_words"] == 0.8 and margins["replaced_tokens"] == 1.1
    assert knows_frequencies(6.79, BASELINE) and not knows_frequencies(6.8, BASELINE)


def test_examples_in_docstrings():
    assert doctest.testmod(yardstick).failed == 0
