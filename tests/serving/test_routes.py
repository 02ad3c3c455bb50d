"""Every route answers in the shape of the servers that clients were written for, with the numbers of the library."""

import base64
import json
import shutil
import threading

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.predict import gather, predictions
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.inference.embed import cosines, embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.generate import generate
from mini_bert.inference.loading import load
from mini_bert.inference.sampling import Sampling
from mini_bert.serving import writing
from mini_bert.serving.routes import ROUTES
from mini_bert.serving.served import Served
from tests.serving.conftest import TOKENIZER, encoder, spread

TEXTS = ["the cat sat on a mat .", "a dog ran", "ada lives in london and the cats ran far and far and far .", "rain"]


@pytest.fixture(scope="session")
def base(folders):
    return load(folders["base"])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_embed_gives_the_vectors_of_the_library(client, base):
    answer = client.post("/embed", {"inputs": TEXTS})
    assert answer.status == 200
    np.testing.assert_allclose(answer.json, unit(embed(*base, TEXTS)), atol=1e-6)
    assert int(answer.headers["x-compute-tokens"]) == sum(len(row) + 2 for row in base[1].ids(TEXTS))
    assert {"x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"} <= set(answer.headers)
    raw = client.post("/embed", {"inputs": TEXTS, "normalize": False})
    np.testing.assert_allclose(raw.json, embed(*base, TEXTS), rtol=1e-6, atol=1e-6)


def test_one_text_is_a_list_with_one_vector(client, base):
    np.testing.assert_allclose(
        client.post("/embed", {"inputs": TEXTS[0]}).json, unit(embed(*base, TEXTS[:1])), atol=1e-6
    )


def test_vectors_are_cut_to_dimensions_and_have_length_1_again(client, base):
    answer = client.post("/embed", {"inputs": TEXTS, "dimensions": 7})
    np.testing.assert_allclose(answer.json, unit(embed(*base, TEXTS)[:, :7]), atol=1e-6)
    assert client.post("/embed", {"inputs": "a", "dimensions": 21}).status == 422
    assert client.post("/embed", {"inputs": "a", "dimensions": 0}).status == 422


@pytest.mark.parametrize("special", [True, False])
def test_texts_may_be_token_ids(client, base, special):
    """With the special tokens that /tokenize adds, or without."""
    rows = [base[1].encode(text, add_special_tokens=special) for text in TEXTS]
    wanted = unit(embed(*base, TEXTS))
    np.testing.assert_allclose(client.post("/embed", {"inputs": rows}).json, wanted, atol=1e-6)
    np.testing.assert_allclose(client.post("/embed", {"inputs": [TEXTS[0], *rows[1:]]}).json, wanted, atol=1e-6)
    np.testing.assert_allclose(client.post("/embed", {"inputs": rows[0]}).json, wanted[:1], atol=1e-6)
    assert client.post("/embed", {"inputs": [99999]}).status == 422


def test_a_long_text_is_cut_or_refused(client, base):
    long = "the cat " * 40
    tokenizer = base[1]
    row = tokenizer.ids([long])[0]
    for side, kept in (("right", row[:29]), ("left", row[-29:])):
        answer = client.post("/embed", {"inputs": long, "truncation_direction": side})
        np.testing.assert_allclose(answer.json, client.post("/embed", {"inputs": kept}).json, atol=1e-7)
    refused = client.post("/embed", {"inputs": long, "truncate": False})
    assert refused.status == 422
    assert refused.json == {
        "error": "Input validation error: `inputs` must have less than 31 tokens. Given: 82",
        "error_type": "Validation",
    }  # fmt: skip


def test_embed_all_gives_a_vector_for_each_token(client, base):
    model, tokenizer = base
    answer = client.post("/embed_all", {"inputs": TEXTS}).json
    for text, vectors in zip(TEXTS, answer, strict=True):
        np.testing.assert_allclose(vectors, model.encode([tokenizer.encode(text)])[0][0], rtol=1e-5, atol=1e-5)


def test_embed_sparse_gives_the_words_with_positive_scores(client, base):
    """log(1 + the largest score of a word at any token); the formula, from the scores of the whole model"""
    model, tokenizer = base
    (answer,) = client.post("/embed_sparse", {"inputs": TEXTS[0]}).json
    scores = model.forward([tokenizer.encode(TEXTS[0])])[0].masked_words[0]
    wanted = {i: np.log1p(score) for i, score in enumerate(scores.max(0).tolist()) if score > 0}
    assert {one["index"]: one["value"] for one in answer} == pytest.approx(wanted, rel=1e-4)
    assert client.post("/models/sentiment/embed_sparse", {"inputs": "a"}).status == 424


def test_openai_embeddings_as_numbers_and_base64(client, base):
    request = {"input": TEXTS, "model": "base"}
    answer = client.post("/v1/embeddings", request).json
    assert answer["object"] == "list" and answer["model"] == "base"
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3]
    assert {one["object"] for one in answer["data"]} == {"embedding"}
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    vectors = [one["embedding"] for one in answer["data"]]
    np.testing.assert_allclose(vectors, unit(embed(*base, TEXTS)), atol=1e-6)
    packed = client.post("/embeddings", {**request, "encoding_format": "base64"}).json
    unpacked = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    np.testing.assert_allclose(unpacked, vectors, atol=1e-6)


def test_similarity_gives_cosines(client, base):
    request = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}
    answer = client.post("/similarity", request).json
    assert answer == pytest.approx(cosines(embed(*base, TEXTS))[0, 1:].tolist(), abs=1e-5)


def test_predict_gives_classes_best_first(client, folders):
    tuned = load_tuned(folders["sentiment"])
    wanted = predictions(tuned, gather(tuned.task, TEXTS))
    single = client.post("/models/sentiment/predict", {"inputs": TEXTS[0]}).json
    batch = client.post("/models/sentiment/predict", {"inputs": [[text] for text in TEXTS]}).json
    assert [entry["label"] for entry in batch[0]] == [entry["label"] for entry in single]
    for answer, one in zip(batch, wanted, strict=True):
        assert [entry["score"] for entry in answer] == sorted((entry["score"] for entry in answer), reverse=True)
        assert {entry["label"]: entry["score"] for entry in answer} == pytest.approx(one["probabilities"], abs=1e-5)
    raw = client.post("/models/sentiment/predict", {"inputs": TEXTS[0], "raw_scores": True}).json
    values = np.exp([entry["score"] for entry in raw])
    assert (values / values.sum()).tolist() == pytest.approx([entry["score"] for entry in single], abs=1e-5)


def test_predict_refuses_long_texts_if_told_to(client):
    request = {"inputs": "the cat " * 40}
    assert client.post("/models/sentiment/predict", request).status == 200
    refused = client.post("/models/sentiment/predict", {**request, "truncate": False})
    assert refused.status == 422 and "less than 31 tokens. Given: 82" in refused.json["error"]


def test_predict_takes_pairs(client, folders):
    tuned = load_tuned(folders["entailment"])
    (wanted,) = predictions(tuned, gather(tuned.task, TEXTS[:2]))
    single = client.post("/models/entailment/predict", {"inputs": TEXTS[:2]}).json
    batch = client.post("/models/entailment/predict", {"inputs": [TEXTS[:2], TEXTS[1:3]]}).json
    assert batch[0][0]["score"] == pytest.approx(single[0]["score"], abs=1e-5)
    assert single[0]["score"] == pytest.approx(wanted["probability"], abs=1e-5)
    alone = client.post("/models/entailment/predict", {"inputs": "the cat"})
    assert alone.status == 422 and "pairs" in alone.json["error"]


def test_text_classification_has_the_shape_of_pipelines(client):
    flat = client.post("/models/sentiment/predict", {"inputs": TEXTS[0]}).json
    request = {"inputs": TEXTS[0], "parameters": {"top_k": 2}}
    assert client.post("/models/sentiment/text-classification", request).json == [flat[:2]]


def test_a_published_regression_scores_one_text_or_two(client, folders):
    """Its files do not say which; our own models that compare two texts refuse one."""
    tuned = load_tuned(folders["judge"])
    for texts in (TEXTS[:1], TEXTS[:2]):
        request = {"inputs": [texts], "raw_scores": True}
        ((answer,),) = client.post("/models/judge/predict", request).json
        (wanted,) = predictions(tuned, gather(tuned.task, texts))
        assert answer["score"] == pytest.approx(wanted["score"], abs=1e-4)
    refused = client.post("/models/ranker/predict", {"inputs": [TEXTS[:1]]})
    assert refused.status == 422 and "compares two texts" in refused.json["error"]


def test_rerank_orders_texts_by_score(client, folders):
    tuned = load_tuned(folders["ranker"])
    answer = client.post("/models/ranker/rerank", {"query": TEXTS[0], "texts": TEXTS[1:], "raw_scores": True}).json
    wanted = [predictions(tuned, gather(tuned.task, [TEXTS[0], text]))[0]["score"] for text in TEXTS[1:]]
    assert [rank["score"] for rank in answer] == sorted((rank["score"] for rank in answer), reverse=True)
    assert {rank["index"]: rank["score"] for rank in answer} == pytest.approx(dict(enumerate(wanted)), abs=1e-4)
    more = {"query": TEXTS[0], "texts": TEXTS[1:], "return_text": True}
    ranks = client.post("/models/ranker/rerank", more).json
    assert all(rank["text"] == TEXTS[1 + rank["index"]] and 0 < rank["score"] < 1 for rank in ranks)
    assert client.post("/models/ranker/rerank", {"query": "a", "texts": []}).status == 400
    assert client.post("/rerank", {"query": "a", "texts": ["the"]}).status == 424


def test_fill_mask_gives_words_and_sentences(client, base):
    text = "the [MASK] sat on a mat ."
    (gap,) = fill_mask(*base, text, 3).gaps
    answer = client.post("/fill-mask", {"inputs": text, "parameters": {"top_k": 3}}).json
    assert [one["token"] for one in answer] == [guess.id for guess in gap]
    assert [one["score"] for one in answer] == pytest.approx([guess.probability for guess in gap], rel=1e-4)
    assert answer[0]["sequence"] == fill_mask(*base, text).text
    several = client.post("/fill-mask", {"inputs": ["a [MASK] and [MASK] ran", text], "top_k": 2}).json
    assert [len(one) for one in several[0]] == [2, 2] and several[1][0]["token"] == answer[0]["token"]
    assert several[0][1][0]["sequence"].startswith("a [MASK] and ")
    targets = client.post("/fill-mask", {"inputs": text, "targets": ["dog", "cat"]}).json
    assert sorted(one["token_str"] for one in targets) == ["cat", "dog"]
    assert client.post("/fill-mask", {"inputs": text, "targets": ["elephant"]}).status == 422
    assert "there is no [MASK]" in client.post("/fill-mask", {"inputs": "the cat"}).json["error"]
    assert client.post("/models/writer/fill-mask", {"inputs": text}).status == 424


def test_token_classification_gives_words_or_entities(client, folders):
    tuned = load_tuned(folders["tagger"])
    text = "the cat, ada; lives in london."
    (wanted,) = predictions(tuned, gather(tuned.task, [text]))
    every = {"inputs": text, "parameters": {"aggregation_strategy": "none", "ignore_labels": []}}
    words = client.post("/models/tagger/token-classification", every).json
    assert [one["word"] for one in words] == wanted["words"] and [one["entity"] for one in words] == wanted["tags"]
    assert all(text[one["start"] : one["end"]] == one["word"] for one in words)
    assert [one["score"] for one in words] == pytest.approx(wanted["probabilities"], abs=1e-5)
    groups = client.post("/models/tagger/token-classification", {"inputs": text}).json
    assert [one["entity_group"] for one in groups] == [one["type"] for one in wanted["entities"]]
    assert all(text[one["start"] : one["end"]] == one["word"] for one in groups)


def test_question_answering_gives_a_part_of_the_text(client, folders):
    question, context = "where does ada live ?", "the cat sat . ada lives in london . " * 3
    tuned = load_tuned(folders["reader"])
    (wanted,) = predictions(tuned, gather(tuned.task, [], question=question, context=context))
    request = {"inputs": {"question": question, "context": context}}
    answer = client.post("/models/reader/question-answering", request).json
    assert answer["answer"] == wanted["answer"] == context[answer["start"] : answer["end"]]
    assert answer["score"] == pytest.approx(wanted["probability"], abs=1e-5)
    several = client.post("/models/reader/question-answering", {**request, "parameters": {"top_k": 3}}).json
    assert several[0] == answer and len(several) == 3


def test_tokens_and_back(client, base):
    tokenizer, text = base[1], "The cats [SEP] sat"
    (tokens,) = client.post("/tokenize", {"inputs": text}).json
    assert tokens[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    inner = [one for one in tokens if not one["special"]]
    assert [one["id"] for one in inner] == tokenizer.ids([text], special=False)[0]
    assert all(text[one["start"] : one["stop"]] == one["text"] for one in inner)
    plain = client.post("/tokenize", {"inputs": [text], "add_special_tokens": False}).json
    assert plain == [inner]
    ids = tokenizer.encode("the cats sat")
    assert client.post("/decode", {"ids": ids}).json == ["the cats sat"]
    assert client.post("/decode", {"ids": [ids, ids], "skip_special_tokens": False}).json == [tokenizer.decode(ids)] * 2
    assert client.post("/decode", {"ids": []}).status == 400
    assert client.post("/decode", {"ids": [99999]}).status == 422


# ---------------------------------------------------------------------- writing


def events(answer):
    return [line.removeprefix("data: ") for line in answer.body.decode().split("\n\n") if line]


def test_completions_write_what_the_library_writes(client, folders):
    model, tokenizer = load(folders["writer"])
    wanted = "".join(generate(model, tokenizer, "the cat", 9, Sampling(0.7, None, 0.9, 3)))
    request = {"model": "writer", "prompt": "the cat", "max_tokens": 9, "temperature": 0.7, "top_p": 0.9, "seed": 3}
    answer = client.post("/v1/completions", request).json
    assert answer["object"] == "text_completion" and answer["choices"][0]["text"] == wanted
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    assert answer["usage"]["prompt_tokens"] == 2 and answer["usage"]["completion_tokens"] <= 9
    streamed = client.post("/v1/completions", {**request, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *parts, end = events(streamed)
    assert end == "[DONE]"
    choices = [json.loads(part)["choices"][0] for part in parts]
    assert "".join(choice["text"] for choice in choices) == wanted
    assert choices[-1]["finish_reason"] == answer["choices"][0]["finish_reason"]
    refused = client.post("/v1/completions", {"model": "base", "prompt": "the cat"})
    assert refused.status == 424 and set(refused.json) == {"message", "code", "type"}


def test_generate_is_greedy_unless_told_otherwise(client, folders):
    model, tokenizer = load(folders["writer"])
    wanted = "".join(generate(model, tokenizer, "a dog", 6, Sampling(0.0)))
    request = {"inputs": "a dog", "parameters": {"max_new_tokens": 6, "details": True}}
    answer = client.post("/models/writer/generate", request).json
    assert answer["generated_text"] == wanted and answer["details"]["generated_tokens"] <= 6
    for path, more in (("generate_stream", {}), ("generate", {"stream": True})):
        parts = [json.loads(part) for part in events(client.post(f"/models/writer/{path}", {**request, **more}))]
        assert "".join(part["token"]["text"] for part in parts) == parts[-1]["generated_text"] == wanted
    full = {"inputs": "a dog", "parameters": {"max_new_tokens": 6, "return_full_text": True}}
    assert client.post("/models/writer/generate", full).json == {"generated_text": f"a dog{wanted}"}


@pytest.mark.parametrize(
    ("stops", "count", "reason"),
    [(False, 6, "length"), (False, 5, "eos_token"), (True, 5, "stop_sequence"), (True, 6, "stop_sequence")],
)
def test_why_a_text_ended(client, monkeypatch, stops, count, reason):
    def six_at_most(model, tokenizer, prompt, tokens, sampling, stop, after_each):
        after_each(count)
        yield "word"
        return stops

    monkeypatch.setattr(writing, "generate", six_at_most)
    request = {"inputs": "a dog", "parameters": {"max_new_tokens": 6, "details": True}}
    assert client.post("/models/writer/generate", request).json["details"]["finish_reason"] == reason
    answer = client.post("/models/writer/v1/completions", {"prompt": "a dog", "max_tokens": 6}).json
    assert answer["choices"][0]["finish_reason"] == ("length" if reason == "length" else "stop")


def test_a_prompt_is_read_once_and_a_long_one_in_a_thread(client, monkeypatch):
    tokenizer, threads = client.server.shelf.entries["writer"].served.tokenizer, []
    ids = tokenizer.ids

    def seen(*args, **options):
        threads.append(threading.current_thread().name)
        return ids(*args, **options)

    monkeypatch.setattr(tokenizer, "ids", seen)
    assert client.post("/models/writer/generate", {"inputs": "the cat " * 3000}).status == 200
    assert threads == ["reading_0"]


# ---------------------------------------------------------------------- several models


def test_a_model_is_named_in_the_path_or_in_the_body(client):
    one = client.post("/models/vectors/embed", {"inputs": "the cat"})
    assert one.status == 200 and one.body == client.post("/embed", {"inputs": "the cat", "model": "vectors"}).body
    assert one.body != client.post("/embed", {"inputs": "the cat"}).body
    for answer in (
        client.post("/models/none/embed", {"inputs": "a"}),
        client.post("/embed", {"inputs": "a", "model": "none"}),
    ):
        assert answer.status == 404 and "there is no model 'none'; there are base, writer" in answer.json["error"]


@pytest.mark.parametrize(
    ("name", "request_", "like"),
    [
        ("base", {"inputs": "the cat"}, "/embed"),
        ("sentiment", {"inputs": "the cat"}, "/predict"),
        ("ranker", {"query": "the cat", "texts": ["a dog"]}, "/rerank"),
        ("vectors", {"inputs": "the cat"}, "/embed"),
        ("tagger", {"inputs": "the cat"}, "/token-classification"),
        ("reader", {"inputs": {"question": "a dog", "context": "the cat"}}, "/question-answering"),
        ("writer", {"inputs": "the cat"}, "/generate"),
    ],
)  # fmt: skip
def test_without_a_route_a_model_does_what_it_was_made_for(client, name, request_, like):
    plain, named = client.post(f"/models/{name}", request_), client.post(f"/models/{name}{like}", request_)
    assert plain.status == 200 and plain.json == named.json


def test_models_and_their_information(client):
    listed = client.get("/v1/models").json
    assert listed["object"] == "list" and [one["id"] for one in listed["data"]][:2] == ["base", "writer"]
    assert client.get("/v1/models/ranker").json["id"] == "ranker"
    assert client.get("/v1/models/none").status == 404
    info = client.get("/info").json
    assert info["model_id"] == "base" and info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["max_client_batch_size"] == 32 and info["max_input_length"] == 31 and info["auto_truncate"]
    kind = client.get("/models/sentiment/info").json["model_type"]
    assert kind["classifier"]["id2label"] == {"0": "bad", "1": "good", "2": "so-so"}
    assert client.get("/models/vectors/info").json["model_type"] == {"embedding": {"pooling": "all"}}
    assert client.get("/models/none/info").status == 404


def test_pooling_and_prompts_are_those_of_the_folder(folders, base, tmp_path):
    """As sentence-transformers writes them: its mean includes special tokens."""
    shutil.copytree(folders["base"], tmp_path / "mine")
    (tmp_path / "mine" / "1_Pooling").mkdir()
    prompts = json.dumps({"prompts": {"query": "the dog "}})
    (tmp_path / "mine" / "config_sentence_transformers.json").write_text(prompts)
    for theirs, ours in (("mean_tokens", "all"), ("cls_token", "cls")):
        (tmp_path / "mine" / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{theirs}": True}))
        served = Served.load("mine", str(tmp_path / "mine"))
        assert served.pooling == (ours,)
        np.testing.assert_allclose(served.vectors(served.rows(TEXTS[:1])), embed(*base, TEXTS[:1], ours), atol=1e-5)
    assert served.rows(["ran"], prompt="query") == base[1].ids(["the dog ran"])
    assert Served.load("mine", str(tmp_path / "mine"), pooling="mean").pooling == ("mean",)


@pytest.mark.parametrize("pooling", [("mean",), ("cls",), ("all",), ("max",), ("mean", "max")], ids=",".join)
def test_vectors_are_those_that_the_model_was_fine_tuned_for(pooling, tmp_path):
    """Their cosine is the score of the task, also in a folder with the files of sentence-transformers, which cannot say
    every pooling."""
    task = Similarity(vectors=True, pooling=pooling)
    save(tmp_path / "mine", spread(with_task(encoder(), task)), task, TOKENIZER, 31)
    (tmp_path / "mine" / "1_Pooling").mkdir()
    (tmp_path / "mine" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    served, tuned = Served.load("mine", str(tmp_path / "mine")), load_tuned(tmp_path / "mine")
    vectors = served.vectors(served.rows(TEXTS[:2]))
    (wanted,) = predictions(tuned, gather(tuned.task, TEXTS[:2]))
    assert vectors.shape == (2, 20 * len(pooling)) and served.pooling == pooling
    assert cosines(vectors)[0, 1] == pytest.approx(wanted["score"], abs=1e-5)


def command(words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


@pytest.mark.parametrize("options", [["--encoder"], []])
def test_an_exported_folder_is_served_with_the_same_vectors(folders, options, tmp_path, capsys):
    """Before and after `export --onnx`, by the server and by `embed`."""
    pytest.importorskip("onnx", reason="needs the extra `onnx`: pip install -e '.[onnx]'")
    command(["export", folders["base"], "--onnx", *options, "--out", str(tmp_path / "out")])
    before, after = (Served.load("mine", folder) for folder in (folders["base"], str(tmp_path / "out")))
    rows = before.rows(TEXTS)
    np.testing.assert_allclose(after.vectors(rows), before.vectors(rows), atol=1e-5)
    capsys.readouterr()
    command(["embed", *TEXTS, "--model", str(tmp_path / "out"), "--out", "-"])
    printed = [json.loads(line)["vector"] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, after.vectors(rows), rtol=1e-5, atol=1e-5)


def test_the_command_and_the_server_read_the_pooling_of_a_folder(folders, tmp_path, capsys, caplog):
    """Also of one that sentence-transformers wrote; one that cannot be computed is not replaced silently."""
    shutil.copytree(folders["base"], tmp_path / "mine")
    (tmp_path / "mine" / "1_Pooling").mkdir()
    for mode in ("cls_token", "mean_tokens", "weightedmean_tokens"):
        (tmp_path / "mine" / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
        command(["embed", *TEXTS, "--model", str(tmp_path / "mine"), "--out", "-"])
        printed = [json.loads(line)["vector"] for line in capsys.readouterr().out.splitlines()]
        served = Served.load("mine", str(tmp_path / "mine"))
        np.testing.assert_allclose(printed, served.vectors(served.rows(TEXTS)), rtol=1e-5, atol=1e-5)
        assert ("asks for weightedmean_tokens" in caplog.text) == (mode == "weightedmean_tokens")


# ---------------------------------------------------------------------- about the server


def test_health_lists_every_model(client, folders):
    for path in ("/health", "/ping", "/"):
        answer = client.get(path)
        assert answer.status == 200 and answer.json["status"] == "ok"
        assert set(answer.json["models"]) == set(folders)


def test_metrics_have_the_names_of_text_embeddings_inference(client):
    def value(line):
        lines = client.get("/metrics").body.decode().splitlines()
        return next((float(one.split()[-1]) for one in lines if one.startswith(line)), 0.0)

    before = value('te_request_success{method="batch"}'), value("te_request_duration_count")
    client.post("/embed", {"inputs": TEXTS})
    assert (value('te_request_success{method="batch"}'), value("te_request_duration_count")) == (
        before[0] + 1,
        before[1] + 1,
    )
    failures = value('te_request_failure{err="validation"}')
    client.post("/embed", {"inputs": 3})
    assert value('te_request_failure{err="validation"}') == failures + 1
    for name in ("te_request_count", "te_request_inference_duration_bucket", "te_queue_size",
                 "te_batch_next_size_count", "te_batch_next_tokens_count"):  # fmt: skip
        assert f"\n{name}" in client.get("/metrics").body.decode(), name


def test_openapi_describes_every_route(client):
    document = client.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for route in ROUTES:
        operation = document["paths"][route.path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert set(schema["required"]) <= set(schema["properties"])
    names = [one["operationId"] for path in document["paths"].values() for one in path.values() if "operationId" in one]
    assert len(names) == len(set(names))


def test_the_page_shows_every_route_and_needs_nothing_from_elsewhere(client):
    page = client.get("/docs").body.decode()
    for route in ROUTES:
        assert f"POST {route.path}<" in page
    assert "<script" not in page and "http" not in page.replace(client.server.address, "")
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")
