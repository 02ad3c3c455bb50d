"""The models of the lab: which can be chosen, what the family room says about each, and every room with every one."""

import dataclasses
import json
import threading
from functools import cache
from importlib import import_module

import numpy as np
import pytest

from mini_bert.files import model_folder
from mini_bert.inside.attention_maps import attention_maps
from mini_bert.lab import rooms
from mini_bert.lab.bench import Bench
from mini_bert.lab.family import about, attention, guesses
from mini_bert.lab.fields import NotFound, Unable
from mini_bert.lab.first_view import _unpacked
from mini_bert.lab.mask import guess
from mini_bert.lab.server import Loading, answer
from mini_bert.lab.shelf import CONFIG, LOADED, UNTRAINED, WEIGHTS, Shelf, found_runs
from mini_bert.layers.softmax import softmax
from mini_bert.models.registry import PRESETS, model_class
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.templates import LAYOUTS

TEXT = "She opened the door and looked into the room."
TOKENIZERS = {
    "bpe-8k": ("gpt2", "roberta", "deberta", "modernbert"),
    "unigram-8k": ("albert", "xlnet", "deberta-v2", "deberta-v3"),
}


tokenizer_of = cache(load_tokenizer)
SIZES = {"hidden_size": 24, "n_embd": 24, "d_model": 24, "d_embed": 24, "embedding_size": 20, "dim": 24, "d_head": 6,
         "intermediate_size": 30, "d_inner": 30, "hidden_dim": 30}  # fmt: skip


def preset_bench(name, **changed):
    """A small random model of an architecture, with a tokenizer of the usual kind."""
    module, config = PRESETS[name]
    config = getattr(import_module(module), config)
    sizes = {key: value for key, value in SIZES.items() if getattr(config, key, None)}
    config = dataclasses.replace(config, **sizes)
    kind = next((kind for kind, names in TOKENIZERS.items() if name in names), "8k")
    model = model_class(config.to_dict())(config, **changed)
    return Bench(name, model, tokenizer_of(kind))


# ---------------------------------------------------------------------- the shelf


def test_the_shelf_knows_the_files_of_a_model_folder():
    """It does not import their names, so that the page need not wait for NumPy."""
    assert CONFIG == model_folder.CONFIG
    assert set(WEIGHTS) == {model_folder.WEIGHTS, model_folder.TORCH_WEIGHTS, model_folder.INT8_WEIGHTS}


class Fake(Loading):
    """Loads nothing."""

    def __init__(self, name, load=None):
        super().__init__(name, load or (lambda name: f"bench of {name}"))


def make_run(folder, inner="model"):
    (folder / inner).mkdir(parents=True)
    (folder / inner / "config.json").write_text("{}")
    (folder / inner / "model.safetensors").write_bytes(b"")


def test_models_are_given_bundled_or_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/b")
    make_run(tmp_path / "runs/family/x", "checkpoints/step-00000010")
    make_run(tmp_path / "runs/plain", ".")
    make_run(tmp_path / "runs/.hidden")
    make_run(tmp_path / "runs/too/deep/here")
    (tmp_path / "runs/empty").mkdir()
    shelf = Shelf(Fake("mini-bert"), ["my/model", "mini-bert"], tmp_path / "runs")
    runs = ["runs/b", "runs/family/x", "runs/plain"]
    assert shelf.names() == ["mini-bert", "my/model", UNTRAINED, *runs]
    make_run(tmp_path / "runs/new")
    assert "runs/new" in shelf.names() and found_runs(None) == [] and found_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "name", ["", "nothing", "/etc", "../..", "runs/../..", "runs/b/", "./runs/b", "MINI-BERT", "\0"]
)
def test_no_other_model_can_be_chosen(name, tmp_path, monkeypatch):
    """Names are compared, never opened: a path that leads elsewhere, or to a model in another spelling, is refused."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/b")
    with pytest.raises(NotFound, match="there is no model"):
        Shelf(Fake("mini-bert"), [], tmp_path / "runs").loading(name)


def test_few_models_stay_in_memory():
    """The first and the most recently used stay; a model is the same object while it stays."""
    shelf = Shelf(Fake("first"), ["a", "b", "c"])
    a = shelf.loading("a")
    assert a.bench() == "bench of a" and shelf.loading("a") is a
    shelf.loading("b")
    shelf.loading("a")
    shelf.loading("c")  # b was used longest ago
    assert list(shelf._loaded) == ["first", "a", "c"] and len(shelf._loaded) == LOADED
    assert shelf.loading() is shelf.loading("first") is shelf.first and shelf.loading("a") is a


def test_a_model_that_failed_is_tried_again():
    broken = True

    def load(name):
        if broken:
            raise OSError("half written")
        return "bench"

    shelf = Shelf(Loading("first", load), ["a"])
    with pytest.raises(ValueError, match="half written"):
        shelf.loading("a").bench()
    broken = False
    assert shelf.loading("a").bench() == "bench"


def test_two_requests_load_a_model_once():
    loaded, ready = [], threading.Barrier(8)
    loading = Loading("x", lambda name: loaded.append(name) or "bench")

    def ask():
        ready.wait()
        assert loading.bench() == "bench"

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded == ["x"]


def test_the_untrained_model_has_other_weights(bench):
    other = Bench.load(UNTRAINED)
    assert other.model.config == bench.model.config
    assert np.abs(other.model.flat.data - bench.model.flat.data).max() > 0.1


def test_a_request_names_its_model(bench):
    pytest.importorskip("starlette", reason="the lab's server is an extra: pip install -e '.[lab]'")
    from mini_bert.lab.server import create_app
    from tests.lab.client import PORT, Client

    other = Bench("other", bench.model.untrained(1), bench.tokenizer)
    shelf = Shelf(Loading("mini-bert", lambda name: other if name == "other" else bench), ["other"])
    client = Client(create_app(shelf, PORT))
    assert client.get("/api/about").json["models"] == ["mini-bert", "other", UNTRAINED]
    for query, expected in (("", bench), ("?model=mini-bert", bench), ("?model=other", other)):
        assert client.post(f"/api/family/about{query}", {}).json["name"] == expected.name
    for name in ("nobody", "..%2f..", "%00", "%ff"):
        answer = client.post(f"/api/family/about?model={name}", {})
        assert answer.status == 404 and "there is no model" in answer.json["error"]


# ---------------------------------------------------------------------- the room


def test_guesses_are_those_of_the_mask_lab(bench):
    (gap,) = guesses(bench, {"text": TEXT, "at": 16})["gaps"]
    expected = guess(bench, {"text": TEXT, "hidden": [4], "top": 6})["gaps"][0]
    assert [one["word"] for one in gap["guesses"]] == [one["word"] for one in expected["guesses"]]
    assert [one["p"] for one in gap["guesses"]] == pytest.approx([one["p"] for one in expected["guesses"]])
    assert gap["own"] == "door" and [one["own"] for one in gap["guesses"]].count(True) == 1


def test_all_pieces_of_a_word_are_hidden(bench):
    answer = guesses(bench, {"text": "The zebras ran.", "at": 6})
    assert answer["places"] == [2, 3, 4] and [gap["own"] for gap in answer["gaps"]] == ["ze", "##br", "##as"]
    assert guesses(bench, {"text": "The zebras ran.", "at": 3})["places"] == [2, 3, 4]  # at the space before it
    assert guesses(bench, {"text": "a  ", "at": 2})["why"] == "There is no word at this place; press one."


def test_a_forward_model_guesses_from_the_words_before():
    """The same as from a text that ends before the word; what follows makes no difference."""
    bench = preset_bench("gpt2", seed=3)
    bench.tokenizer = bench.tokenizer.with_layout(LAYOUTS["gpt2"])  # as GPT-2's, without tokens around the text
    answer = guesses(bench, {"text": TEXT, "at": 16})
    (place,) = answer["places"]
    before = bench.tokenizer.encode("She opened the")
    assert answer["from"] == "the words before it" and place == len(before)
    output, _ = bench.model.forward(np.array([before]))
    row = softmax(output.next_word[0, -1])[0][: bench.tokenizer.vocab_size]
    row[list(bench.tokenizer.special_ids)] = -1
    best = np.argsort(-row, kind="stable")[:6]
    assert [one["word"] for one in answer["gaps"][0]["guesses"]][:6] == [bench.tokenizer.readable(i) for i in best]
    assert "nothing before the first word" in guesses(bench, {"text": TEXT, "at": 0})["why"]


def test_one_head_is_that_of_the_attention_maps(bench):
    maps = attention_maps(bench.model, bench.tokenizer, TEXT)
    answer = attention(bench, {"text": TEXT, "layer": 1, "head": 2})
    (numbers,) = _unpacked("numbers", answer["numbers"])
    np.testing.assert_allclose(np.reshape(numbers, (12, 12)), maps.weights[1, 2], atol=1e-6)
    beyond = attention(bench, {"text": TEXT, "layer": 77, "head": 9})
    assert (beyond["layer"], beyond["head"]) == (2, 3)


def test_facts_are_those_of_the_model(bench):
    facts = about(bench, {})
    assert (facts["layers"], facts["heads"], facts["width"], facts["vocabulary"]) == (3, 4, 192, 8192)
    assert facts["parameters"] == sum(param.data.size for param in bench.model.named_params().values())


# ---------------------------------------------------------------------- every model in every room

SHORT, MATRIX = "A cat sat.", "encoder.blocks.0.feed_forward.expand.w"
REQUESTS = {
    "mask/guess": {"text": SHORT, "hidden": [2]},
    "mask/surprise": {"text": SHORT},
    "stepper/steps": {"text": SHORT},
    "attention/maps": {"text": SHORT},
    "attention/query": {"text": SHORT, "layer": 0, "head": 0, "position": 2},
    "attention/saliency": {"text": SHORT, "position": 2},
    "attention/without": {"text": SHORT, "position": 2, "off": [0]},
    "attention/importance": {"text": SHORT, "position": 2},
    "backward/flow": {"text": SHORT, "hidden": [2]},
    "backward/values": {"text": SHORT, "hidden": [2], "step": "embeddings"},
    "backward/weights": {"text": SHORT, "hidden": [2], "tensor": MATRIX},
    "backward/check": {"text": SHORT, "hidden": [2], "tensor": MATRIX, "row": 3, "column": 5, "exponent": 3},
    "training/status": {},
    "break/faults": {},
    "break/status": {},
    "text/pieces": {"text": SHORT},
    "text/spelling": {"text": SHORT, "at": 3},
    "text/learn": {"text": SHORT, "kind": "bpe", "step": 1},
    "vectors/probe": {"text": SHORT},
    "vectors/neighbours": {"text": SHORT, "position": 2},
    "vectors/plane": {"text": "a cat\na dog\nthe sea", "layer": 1},
    "family/about": {},
    "family/guesses": {"text": SHORT, "at": 3},
    "family/attention": {"text": SHORT},
}


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"mini", "larger"}))
def test_every_room_works_with_every_architecture(name, tmp_path, monkeypatch):
    """Every action returns JSON. Only what follows from guesses is beyond an ELECTRA, and then a sentence says so."""
    monkeypatch.chdir(tmp_path)  # no runs
    bench, refused, answers = preset_bench(name), {}, {}
    for action, request in REQUESTS.items():
        try:
            answers[action] = rooms.action(*action.split("/"))(bench, request)
            json.dumps(answers[action], allow_nan=False)
        except Unable as error:
            refused[action] = str(error)
    assert set(answers) | set(refused) == set(REQUESTS)
    if name == "electra":
        assert (
            "has no output head that guesses words" in answers["mask/guess"]["why"]
            and not answers["mask/guess"]["gaps"]
        )
        assert {one.split("/")[0] for one in refused} == {"attention", "backward"}
        assert all("no output head that guesses words" in sentence for sentence in refused.values())
    else:
        assert not refused and answers["mask/guess"]["gaps"] and answers["attention/without"]["guesses"]
        assert answers["backward/check"]["error"] < 1e-3 or abs(answers["backward/check"]["numeric"]) < 1e-6
        assert answers["mask/guess"]["forward"] == (name in ("gpt2", "transformer-xl"))
    assert len(answers["mask/surprise"]["tokens"]) >= 4
    maps = answers["attention/maps"]
    (numbers,) = _unpacked("weights", maps["weights"], maps["weights"])[:1]
    assert len(numbers) == maps["layers"] * maps["heads"] * len(maps["tokens"]) ** 2
    query = answers["attention/query"]
    assert query["memory"] + sum(query["weights"]) == pytest.approx(1, abs=1e-4)


def test_a_query_is_shown_with_all_products_of_its_scores():
    """DeBERTa has three, Transformer-XL two and a memory, GPT-2 hides what comes later."""
    found = {name: rooms.action("attention", "query")(preset_bench(name), REQUESTS["attention/query"])
             for name in ("deberta", "transformer-xl", "gpt2")}  # fmt: skip
    assert list(found["deberta"]["products"]) == ["q · k", "q · kʳ", "k · qʳ"]
    assert list(found["transformer-xl"]["products"]) == ["(q + u) · k", "(q + w) · r"]
    assert found["transformer-xl"]["memory"] > 0 == found["gpt2"]["memory"]
    hidden = [score is None for score in found["gpt2"]["scores"]]
    assert hidden == [False] * 3 + [True] * (len(hidden) - 3)
    total = np.sum(list(found["deberta"]["products"].values()), axis=0)
    np.testing.assert_allclose(found["deberta"]["scores"], total / np.sqrt(3 * 6), rtol=1e-3, atol=1e-5)


def test_what_a_model_cannot_do_is_an_answer():
    """Status 200, so that the console of the browser stays empty."""
    bench = preset_bench("electra")
    loading = Loading("electra", lambda name: bench)
    said = json.loads(answer(loading, "backward", "flow", REQUESTS["backward/flow"]))
    assert list(said) == ["unable"] and "no loss" in said["unable"]
