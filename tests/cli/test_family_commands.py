"""Every command works for every architecture, or says why not and what to use instead.

A table of commands × architectures, by the functions behind the commands (test_family_cli.py runs the commands
themselves). The models are untrained and tiny; numbers are compared with a second way to compute them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_family as tiny

from mini_bert.checks.gradcheck import MODELS as GRADIENT_CHECKS
from mini_bert.checks.info import architecture
from mini_bert.data.labelled.readers import Labelled, Parsed, Question, Scored, Tagged
from mini_bert.data.synthetic.dataset import parsed, tagged
from mini_bert.evaluation.corpus import content, measure_corpus, question_for
from mini_bert.evaluation.corpus import report as corpus_report
from mini_bert.evaluation.embedding_quality import neighbours
from mini_bert.evaluation.likelihood import log_likelihoods, way_of
from mini_bert.evaluation.minimal_pairs import MinimalPair, minimal_pairs
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.evaluation.pseudo_perplexity import report as text_report
from mini_bert.export.folder import export
from mini_bert.files.model_folder import CARD
from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.data import TaskData
from mini_bert.finetuning.finetune import make_task
from mini_bert.finetuning.predict import predictions
from mini_bert.inference.embed import POOLING, embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.generate import generate
from mini_bert.inference.loading import load_model, model_of, with_generator
from mini_bert.inference.sampling import Sampling
from mini_bert.inside.attention_analysis import analyse
from mini_bert.inside.attention_maps import attention_maps, head_statistics
from mini_bert.inside.attention_page import page_data
from mini_bert.inside.attention_relations import NONE, relation_scores
from mini_bert.inside.inputs import runs_on
from mini_bert.inside.layer_statistics import text_statistics
from mini_bert.inside.report import report as attention_report
from mini_bert.inside.saliency import class_saliency, word_saliency
from mini_bert.layers.base import Run
from mini_bert.models.base import HEADS, MASKED_WORDS, NEXT_WORD, REPLACED
from mini_bert.models.registry import model_class, preset
from mini_bert.probing.probe import probe
from mini_bert.training.optim import Adam
from mini_bert.training.plan import plan_report

FAMILY = tiny.FAMILY
CAUSAL = ("gpt2", "transformer-xl")
DISCRIMINATORS = ("electra", "deberta-v3")
FILLING = tuple(name for name in FAMILY if name not in (*CAUSAL, *DISCRIMINATORS))
TEXT = "the cat sat on the mat ."
EPSILON = 1e-6
TUNED = {
    "classify": [Labelled("the film was good", None, "pos", 1), Labelled("the film was very bad", None, "neg", 2)],
    "tag": [Tagged(["the", "cat", "sat"], ["D", "N", "V"], 1), Tagged(["it", "ran"], ["N", "V"], 2)],
    "qa": [Question("1", "was it good ?", "the cat sat on the mat .", ["mat"], [15], 1)],
    "similarity": [Scored("the cat sat", "a cat sat", 4.0, 1), Scored("the dog ran", "it was bad", 0.0, 2)],
}
OBJECTIVES = {"gpt2": "next_word", "transformer-xl": "next_word_with_memory", "xlnet": "permutation"}
CLASSIFIERS = {
    "bert": "BertForSequenceClassification", "gpt2": "GPT2ForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification", "roberta": "RobertaForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification", "albert": "AlbertForSequenceClassification",
    "electra": "ElectraForSequenceClassification", "deberta": "DebertaForSequenceClassification",
    "deberta-v2": "DebertaV2ForSequenceClassification", "deberta-v3": "DebertaV2ForSequenceClassification",
    "transformer-xl": "TransfoXLForSequenceClassification", "xlnet": "XLNetForSequenceClassification",
}  # fmt: skip

every = pytest.mark.parametrize("name", FAMILY)


@pytest.fixture(scope="module")
def models():
    """Models and tokenizers by name, made when they are needed"""
    made: dict[str, SimpleNamespace] = {}

    def get(name):
        if name not in made:
            made[name] = SimpleNamespace(model=tiny.tiny_model(name), tokenizer=tiny.tokenizer_for(name))
        return made[name].model, made[name].tokenizer

    return get


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize("name", FILLING)
def test_fill_mask(models, name):
    """The guess for a gap has the probability that eval gives to the word, whatever word the gap hides."""
    model, tokenizer = models(name)
    mask = tokenizer.mask_token
    found = fill_mask(model, tokenizer, f"the cat {mask} on the mat .", top=500)
    assert sum(guess.probability for guess in found.gaps[0]) == pytest.approx(1, abs=0.3)  # without special tokens
    by_piece = {guess.word: guess.probability for guess in found.gaps[0]}
    for word in ("sat", "ran"):
        surprise = pseudo_perplexity(model, tokenizer, f"the cat {word} on the mat .").tokens[2]
        assert surprise.token.removeprefix("▁") == word
        assert math.exp(-surprise.surprise) == pytest.approx(by_piece[surprise.token], rel=1e-4)


@pytest.mark.parametrize("name", (*CAUSAL, *DISCRIMINATORS))
def test_fill_mask_says_why_not(models, name):
    model, tokenizer = models(name)
    wanted = (
        "predicts the next word; try `mini-bert generate`" if name in CAUSAL else "generator.* predicts masked words"
    )
    with pytest.raises(ValueError, match=f"no head for masked words: .*{wanted}"):
        fill_mask(model, tokenizer, "the cat [MASK] .")


@every
@pytest.mark.parametrize("published", [False, True])
def test_a_fine_tuned_model_says_what_it_is_for(name, published, tmp_path):
    """Whatever head is missing, and whether only the encoder was loaded: the error names the task, and `predict`."""
    path = tiny.tuned(tmp_path, name) / "config.json"
    task = "with `mini-bert finetune classify`"
    if published:
        if name not in CLASSIFIERS:
            pytest.skip("it was never published fine-tuned")
        values = json.loads(path.read_text())
        del values["fine_tuning"]
        path.write_text(json.dumps(values))
        task = f"as {CLASSIFIERS[name]}"
    uses = [way_of, question_for, lambda it: fill_mask(it, tiny.tokenizer_for(name), "the cat [MASK] .")]
    if name in CAUSAL:
        uses.append(lambda it: generate(it, tiny.tokenizer_for(name), "the cat"))
    for model in [model_of(tmp_path)] if published else [model_of(tmp_path), finetuned.load(tmp_path).model]:
        for use in uses:
            with pytest.raises(ValueError, match=f"it was fine-tuned {task}; use `mini-bert predict`") as told:
                use(model)
            its_own = name not in CAUSAL or "next word" in str(told.value)
            assert ("or load the model it was fine-tuned from" in str(told.value)) == its_own


@pytest.mark.parametrize("name", [name for name in FAMILY if name != "mini"])
def test_an_encoder_without_heads_says_how_to_get_one(name):
    """It was not fine-tuned, is no discriminator, and users of the command line have no constructors."""
    config = tiny.tiny_config(name)
    encoder = model_class(config.to_dict())(config, (), seed=1)
    for use in (way_of, question_for):
        with pytest.raises(ValueError, match=r"no head for .*`mini-bert train --init`") as told:
            use(encoder)
        assert not re.search(r"fine-tuned|discriminator|\(config", str(told.value))


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_a_discriminator_without_its_generator_can_get_another(models, name):
    for use in (question_for, lambda it: fill_mask(it, models(name)[1], "the cat [MASK] .")):
        with pytest.raises(
            ValueError, match=r"discriminator.* usually kept in the folder `generator` .*train --init` makes a new one"
        ):
            use(models(name)[0].alone())


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_the_generator_of_a_discriminator_fills_gaps(name, tmp_path):
    tiny.saved(tmp_path, name)
    assert fill_mask(load_model(tmp_path / "generator"), tiny.tokenizer_for(name), "the cat [MASK] .").gaps


@every
def test_generate(models, name):
    """A causal model writes what reading everything again would choose. The others say what they do instead."""
    model, tokenizer = models(name)
    if name not in CAUSAL:
        does = (
            "each token whether it was replaced" if name in DISCRIMINATORS else "fills gaps.* use `mini-bert fill-mask`"
        )
        with pytest.raises(ValueError, match=f"cannot write: .*{does}.*`mini-bert train --model gpt2 --out runs/gpt2`"):
            generate(model, tokenizer, "the cat")
        return
    greedy = Sampling(temperature=0)
    pieces = list(generate(model, tokenizer, "the cat", 4, greedy))
    ids = tokenizer.ids(["the cat"])[0]
    banned = [i for i in tokenizer.special_ids if i != tokenizer.sep_id]
    for _ in range(4):
        scores = getattr(model.forward([ids])[0], NEXT_WORD)[0, -1]
        scores[banned] = -np.inf
        if int(scores.argmax()) == tokenizer.sep_id:
            break
        ids.append(int(scores.argmax()))
    assert "the cat" + "".join(pieces) == tokenizer.decode(ids)


@every
def test_likelihood(models, name):
    """eval --text, and minimal pairs: the surprises of a text add up to its log-likelihood."""
    model, tokenizer = models(name)
    texts = [TEXT, "the cat sat on a mat ."]
    sums = log_likelihoods(model, tokenizer, texts)
    judged = [pseudo_perplexity(model, tokenizer, text) for text in texts]
    np.testing.assert_allclose([one.log_likelihood for one in judged], sums, rtol=1e-4)
    assert [len(one.tokens) for one in judged] == [7, 7] and not judged[0].unknown
    meaning = {
        MASKED_WORDS: "given all the others",
        NEXT_WORD: "given those before it",
        REPLACED: "it was not replaced",
    }
    assert meaning[way_of(model)] in text_report(judged)
    found = minimal_pairs(model, tokenizer, [MinimalPair(*texts, "made", "up")])
    assert found.accuracy == float(sums[0] > sums[1]) and found.scored_by == way_of(model)


@pytest.mark.parametrize("name", (*CAUSAL, *DISCRIMINATORS))
def test_whole_words_need_masks(models, name):
    with pytest.raises(ValueError, match="masks nothing; leave out --whole-words"):
        pseudo_perplexity(*models(name), TEXT, whole_words=True)


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_a_discriminator_is_surprised_by_the_same_logits(models, name):
    """−log p(original) is the softplus of its logit."""
    model, tokenizer = models(name)
    logits = model.forward([tokenizer.encode(TEXT)])[0].replaced[0, 1:-1, 0]
    found = [one.surprise for one in pseudo_perplexity(model, tokenizer, TEXT).tokens]
    np.testing.assert_allclose(found, np.logaddexp(0, logits), rtol=1e-5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    document = "the cat sat on the mat . the dog ran to the cat . it was a good film , and very good ."
    path.write_text("\n\n".join([document] * 20), encoding="utf-8")
    return path


@every
def test_eval_corpus(models, corpus, name, tmp_path):
    """Each model is asked what it was trained to answer; an untrained one is about as good as a uniform guess."""
    model, tokenizer = models(name)
    if name in DISCRIMINATORS:
        with pytest.raises(ValueError, match=r"no head for masked words: .*the folder `generator`"):
            measure_corpus(tiny.tiny_model(name).alone(), tokenizer, str(corpus))
        model = with_generator(load_model(tiny.saved(tmp_path, name)), tmp_path)
    found = measure_corpus(model, tokenizer, str(corpus), batch_size=4, max_batches=3)
    wanted = "replaced_tokens" if name in DISCRIMINATORS else OBJECTIVES.get(name, "masked_words")
    assert found.objective == wanted and found.result.targets > 20
    assert abs(found.result.loss - math.log(model.vocab_size)) < 1.5
    assert list(found.more) == (["replaced"] if name in DISCRIMINATORS else [])
    if found.more:
        assert 0.2 < found.more["replaced"].loss < 3 and "discriminator: loss" in corpus_report("model", [found, found])
    assert json.dumps(content([found])[0]["more"])


# ---------------------------------------------------------------------- vectors


@every
@pytest.mark.parametrize("pooling", POOLING)
def test_embed(models, name, pooling):
    """A text's vector does not depend on the texts beside it, which cause padding."""
    model, tokenizer = models(name)
    together = embed(model, tokenizer, [TEXT, "a dog"], pooling)
    alone = np.concatenate([embed(model, tokenizer, [text], pooling) for text in (TEXT, "a dog")])
    assert together.shape == (2, tiny.WIDTH)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    last = embed(model, tokenizer, ["the cat sat", "the cat ran"], pooling)
    assert np.abs(last[0] - last[1]).max() > 1e-3  # the summary has seen the last word, also in a causal model


@every
def test_neighbours(models, name):
    """The nearest tokens are those with the largest cosines, in the width of the embeddings."""
    model, tokenizer = models(name)
    table = model.embed_tokens(np.arange(len(tokenizer))).astype(float)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    own = tokenizer.split_ids(["cat"])[0][0]
    cosines = table @ table[own]
    cosines[[own, *tokenizer.special_ids]] = -2
    found = neighbours(model, tokenizer, "cat", 3)
    assert [one.token for one in found.nearest] == [tokenizer.readable(int(i)) for i in np.argsort(-cosines)[:3]]
    assert table.shape[1] == (10 if name in ("albert", "electra") else tiny.WIDTH)


@every
@pytest.mark.parametrize("task", ["pos", "dep", "ner"])
def test_probe(models, name, task):
    """Every layer can be probed, also in a model that is wider or narrower than its embeddings."""
    train = (tagged if task == "ner" else parsed)(5)
    for results in probe(*models(name), task, train, train, layers=[0, tiny.DEPTH]):
        assert set(results.trained) == {0, tiny.DEPTH} and 0 <= results.trained[tiny.DEPTH].accuracy[0] <= 1


@every
def test_activations(models, name):
    statistics, tokens = text_statistics(*models(name), [TEXT, "a dog"])
    assert [one.name for one in statistics][-3:] == [f"layer 1 {what}" for what in ("context", "inner", "output")]
    assert tokens == 9 + 2 * models(name)[1].added_count() and all(math.isfinite(one.std) for one in statistics)


# ---------------------------------------------------------------------- attention


def sees(name: str, layer: int, T: int) -> np.ndarray:
    """Which tokens each token can attend to, by the definition of the architecture"""
    away = np.arange(T) - np.arange(T)[:, None]
    if name in CAUSAL:
        return away <= 0
    if name == "modernbert" and layer == 1:
        return np.abs(away) <= 2
    return np.ones((T, T), bool)


@every
def test_attention_maps(models, name):
    """Rows sum to 1 with what is on a memory, and exactly the tokens that a model can see get weight."""
    model, tokenizer = models(name)
    maps = attention_maps(model, tokenizer, TEXT)
    T = len(maps.tokens)
    added = 1 if runs_on(model, tokenizer) else tokenizer.added_count()  # after a separator, as in running text
    assert len(maps.ids) == 7 + added and maps.weights.shape == (2, 3, T, T)
    for layer, own in enumerate(maps.seen()):
        np.testing.assert_array_equal(own, sees(name, layer, T))
    memory = 0 if maps.memory is None else maps.memory
    np.testing.assert_allclose(maps.weights.sum(-1) + memory, 1, atol=1e-5)
    assert (maps.memory is not None) == (name == "transformer-xl")
    assert [token.strip("▁") for token, role in zip(maps.tokens, maps.roles, strict=True) if not role] == TEXT.split()


@every
def test_head_statistics(models, name):
    """Means over what words can see, compared with loops."""
    model, tokenizer = models(name)
    maps = attention_maps(model, tokenizer, TEXT)
    words = [place for place, role in enumerate(maps.roles) if not role]
    for one in head_statistics(maps):
        weights, seen = maps.weights[one.layer, one.head].astype(float), maps.seen()[one.layer]
        if maps.memory is not None:
            weights /= weights.sum(-1, keepdims=True)
        entropies, evenness, previous, following = [], [], [], []
        for i in words:
            n = seen[i].sum()
            if n == 1:
                continue
            entropies.append(-sum(p * math.log(p) for p in weights[i] if p > 0))
            evenness.append(entropies[-1] / math.log(n))
            previous += [weights[i, i - 1]] if i and seen[i, i - 1] else []
            following += [weights[i, i + 1]] if i + 1 < len(weights) and seen[i, i + 1] else []
        assert one.entropy == pytest.approx(np.mean(entropies), rel=1e-6)
        assert one.evenness == pytest.approx(np.mean(evenness), rel=1e-6) and 0 < one.evenness <= 1
        assert one.previous == pytest.approx(np.mean(previous), rel=1e-6)
        assert (one.next is None) == (not following) == (name in CAUSAL)
        assert one.next is None or one.next == pytest.approx(np.mean(following), rel=1e-6)


def test_the_first_token_of_a_causal_model_has_no_choice(models):
    """It attends to itself alone, which says nothing about a head; a text of one word has nothing else."""
    model, tokenizer = models("gpt2")
    alone = head_statistics(attention_maps(model, tokenizer, "cat"))[0]
    assert (alone.entropy, alone.itself, alone.evenness, alone.previous) == (0, 1, None, None)
    analysis = analyse(model, tokenizer, "cat", relations=False)
    assert not analysis.saliency and "–" not in attention_report(analysis)


NOTES = {
    "albert": "All 2 layers are the same block, used again",
    "gpt2": "A token sees only itself and those before it",
    "transformer-xl": "memory: the share of the weight on the tokens before this text",
    "modernbert": "Layer 1 is local: there, a token sees only 2 tokens on each side",
    "xlnet": "This is the content stream",
}


@every
def test_attention_report_and_page(models, name):
    """Both say what is special about the architecture, and leave out columns that it cannot have."""
    model, tokenizer = models(name)
    analysis = analyse(model, tokenizer, TEXT, every_word=True, relations=False)
    text, data = attention_report(analysis), page_data(analysis)
    plain = " ".join(text.split())
    assert all((note in plain) == (name == own) for own, note in NOTES.items() if own not in CAUSAL)
    assert name not in CAUSAL or NOTES[name] in plain
    assert data["notes"] == analysis.notes and (data["visible"] is None) == (name not in (*CAUSAL, "modernbert"))
    columns = dict(data["columns"])
    assert ("next" in columns) == (name not in CAUSAL) and ("memory" in columns) == (name == "transformer-xl")
    shown = None if runs_on(model, tokenizer) else tokenizer.roles.get("cls")  # running text has none
    assert columns.get("cls") == shown and f" {columns['previous']} " in text
    assert len(analysis.saliency) == 7 - (name == "gpt2")  # there is nothing before the first word of a GPT-2
    assert json.loads(json.dumps(data, allow_nan=False))


def test_the_query_stream_of_xlnet(models):
    """Row i is that of word i while it is hidden: no weight on itself, and the word may be any other."""
    model, tokenizer = models("xlnet")
    maps = attention_maps(model, tokenizer, TEXT, stream="query")
    assert not maps.weights[..., np.arange(9), np.arange(9)].any()
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    other = attention_maps(model, tokenizer, TEXT.replace("sat", "ran"), stream="query")
    np.testing.assert_array_equal(maps.weights[:, :, 2], other.weights[:, :, 2])
    assert np.abs(maps.weights[1, :, 3] - other.weights[1, :, 3]).max() > 1e-6
    assert all(one.itself is None for one in head_statistics(maps))
    assert "each word is hidden in turn" in " ".join(attention_report(analyse(
        model, tokenizer, TEXT, relations=False, stream="query")).split())  # fmt: skip
    with pytest.raises(ValueError, match="this Bert has only the stream 'content'; only an XLNet has a query stream"):
        attention_maps(*models("bert"), TEXT, stream="query")


SENTENCE = Parsed(
    ["the", "cat", "sat", "on", "it"], ["X"] * 5, [2, 3, 0, 5, 3], ["det", "nsubj", "root", "case", "obl"], 1
)


@every
def test_attention_relations(models, name, monkeypatch):
    """In a causal model, a word cannot attend to a syntactic head that follows, nor a later word be attended to."""
    model, tokenizer = models(name)
    seen = []
    real = sys.modules["mini_bert.inside.attention_relations"].count_correct

    def note(sentence, predicted, into):
        seen.append(predicted)
        real(sentence, predicted, into)

    monkeypatch.setattr("mini_bert.inside.attention_relations.count_correct", note)
    found = relation_scores(model, tokenizer, [SENTENCE])
    assert found.accuracy("det").shape == (2, tiny.DEPTH, tiny.HEADS)
    attended, attending = seen[0]  # (L,A,N) each
    places = np.arange(5)
    if name in CAUSAL:
        assert ((attended < places) | (attended == NONE)).all() and (attended[..., 0] == NONE).all()
        assert ((attending > places) | (attending == NONE)).all() and (attending[..., 4] == NONE).all()
        assert not found.accuracy("det")[0].any()
    else:
        assert ((attended >= 0) & (attended != places)).all() and ((attending >= 0) & (attending != places)).all()


# ---------------------------------------------------------------------- saliency


@every
def test_saliency_is_a_derivative(name):
    """Scaling the embedding of token t by 1 + ε changes the explained number by ε times the token's saliency."""
    model, tokenizer = tiny.tiny_model(name, dtype=np.float64), tiny.tokenizer_for(name)
    ids = tokenizer.encode(TEXT)
    place = 3
    found = word_saliency(model, tokenizer, ids, [place])[0]
    real, T = model.tokens.forward, len(ids)

    def value(token, factor):
        def forward(ids, run):
            x, cache = real(ids, run)
            x = x.copy()
            x[:, token] *= factor
            return x, cache

        scaled = tiny.tiny_model(name, dtype=np.float64)
        scaled.tokens.forward = forward
        scaled.replica = lambda: scaled
        return word_saliency(scaled, tokenizer, ids, [place])[0].value

    for token in range(T):
        slope = (value(token, 1 + EPSILON) - value(token, 1 - EPSILON)) / (2 * EPSILON)
        assert found.scores[token] == pytest.approx(slope, rel=1e-4, abs=1e-8), token
    if name in CAUSAL:
        assert not found.scores[place:].any() and "given those before it" in found.of
    if name == "xlnet":
        assert found.scores[place] == 0  # no vector of the hidden word takes part
    assert "was not replaced" in found.of or name not in DISCRIMINATORS


def test_the_first_word_of_a_causal_model_is_not_explained(models):
    model, tokenizer = models("gpt2")
    with pytest.raises(ValueError, match="nothing comes before token 0, so this model does not predict it"):
        word_saliency(model, tokenizer, tokenizer.encode(TEXT), [0])


# ---------------------------------------------------------------------- fine-tuning


@every
@pytest.mark.parametrize("kind", TUNED)
def test_finetune(models, name, kind, tmp_path):
    """A step of training lowers the loss; the folder names the published class, and gives the same predictions."""
    encoder, tokenizer = models(name)
    examples = TUNED[kind]
    labels = {"classify": ["neg", "pos"], "tag": ["D", "N", "V"]}.get(kind, [])
    task = make_task(kind, encoder, TaskData(examples, examples, "train", "dev", labels))
    model = finetuned.with_task(encoder, task, dropout=0.0)
    batch = task.batch(task.items(examples, tokenizer, tiny.LENGTH, training=True), tokenizer.padding)
    adam, losses = Adam(model.flat, lr=3e-3), []
    for _ in range(2):
        model.zero_grad()
        losses.append(task.loss(model, batch, Run(), len(batch.targets))[0])
        adam.step()
    assert losses[1] < losses[0]
    finetuned.save(tmp_path, model, task, tokenizer, tiny.LENGTH)
    tuned = finetuned.load(tmp_path)
    assert type(tuned.task) is type(task) and tuned.task.settings() == task.settings()
    if kind == "classify" and name in CLASSIFIERS:
        assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [CLASSIFIERS[name]]
    before = predictions(finetuned.FineTuned(model, task, tokenizer, tiny.LENGTH), examples)
    for one, other in zip(before, predictions(tuned._replace(tokenizer=tokenizer), examples), strict=True):
        assert str(one) == str(other)


@every
def test_class_saliency(models, name):
    """It explains the number that predict prints, at the token that the classifier reads."""
    encoder, tokenizer = models(name)
    examples = TUNED["classify"]
    task = make_task("classify", encoder, TaskData(examples, examples, "train", "dev", ["neg", "pos"]))
    tuned = finetuned.FineTuned(finetuned.with_task(encoder, task, seed=5), task, tokenizer, tiny.LENGTH)
    predicted = predictions(tuned, examples[:1])[0]
    found = class_saliency(tuned, examples[0].text)[0]
    assert math.exp(found.value) == pytest.approx(predicted["probability"], rel=1e-5)
    assert predicted["label"] in found.of and np.isfinite(found.scores).all()


# ---------------------------------------------------------------------- folders, sizes, gradients


@every
def test_export(models, name, tmp_path):
    """16-bit weights give nearly the same vectors, and the card says what opens the folder."""
    model, tokenizer = models(name)
    export(model, tokenizer, tmp_path / "out")
    again = load_model(tmp_path / "out")
    ids = [tokenizer.encode(TEXT)]
    assert again.output_heads == model.output_heads
    np.testing.assert_allclose(again.encode(ids)[0], model.encode(ids)[0], atol=0.02)
    card = (tmp_path / "out" / CARD).read_text(encoding="utf-8")
    theirs = model.file_config().get("architectures", [""])[0]
    if name == "mini":
        assert "exists only in Mini-BERT" in card
    elif name == "transformer-xl":
        assert "`transformers` up to version 4" in card and f"`{theirs}`" in card
    else:
        assert f"`transformers` opens it as `{theirs}`" in card
    code = re.search("```python\n(.*?)```", card, re.S)[1].replace('"FOLDER"', repr(str(tmp_path / "out")))
    exec(code, {})


@every
def test_plan_and_info(name):
    """The memory plan of the preset, and its table of shapes, which ends with an output head."""
    text, fits = plan_report(name, 32, "2GB", 2)
    assert fits and preset(name).name in text
    rows = architecture(tiny.tiny_model(name))
    assert rows[0][0] == "ids" and any("3 heads of 4" in layer for layer, _, _ in rows)


@every
def test_missing_heads_have_a_reason(models, name):
    """Every question that a model cannot answer gets a sentence that says why, or what it can answer."""
    model, _ = models(name)
    for head in HEADS:
        if head not in model.output_heads:
            with pytest.raises(ValueError, match=r"this \w+ has no [a-z -]+(: |, )") as error:
                model.output_head(head)
            assert len(str(error.value)) > 60


def test_gradcheck_covers_the_family():
    for name in FAMILY:
        assert any(preset(name).name in checked for checked in GRADIENT_CHECKS), name
