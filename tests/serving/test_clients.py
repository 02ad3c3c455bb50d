"""Clients that people use, unchanged: openai, huggingface_hub, and the requests of TEI's documentation."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.predict import gather, predictions
from mini_bert.inference.embed import cosines, embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.generate import generate
from mini_bert.inference.loading import load
from mini_bert.inference.sampling import Sampling
from tests.serving.conftest import running
from tests.serving.test_process import process

pytestmark = pytest.mark.peers
TEXTS = ["the cat sat on a mat .", "a dog ran", "ada lives in london and the cats ran far .", "rain"]
KEY = "a-Key"


@pytest.fixture(scope="module")
def address(folders):
    """A server in its own process, with every kind of model, and a key"""
    words = [f"{name}={folder}" for name, folder in folders.items()]
    with process(*words, MINI_BERT_API_KEY=KEY) as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def wanted(folders):
    vectors = embed(*load(folders["base"]), TEXTS)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# ---------------------------------------------------------------------- openai


@pytest.fixture(scope="module")
def openai(address):
    library = pytest.importorskip("openai", reason="a client to test with: pip install openai")
    with library.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_openai_embeddings(openai, wanted, folders):
    """The client asks for base64 when nothing is said, and decodes it."""
    answer = openai.embeddings.create(model="base", input=TEXTS)
    np.testing.assert_allclose([one.embedding for one in answer.data], wanted, atol=1e-5)
    assert answer.usage.prompt_tokens > 0 and answer.model == "base"
    plain = openai.embeddings.create(model="base", input=TEXTS[0], encoding_format="float")
    np.testing.assert_allclose(plain.data[0].embedding, wanted[0], atol=1e-5)
    short = openai.embeddings.create(model="base", input=TEXTS, dimensions=5)
    cut = wanted[:, :5] / np.linalg.norm(wanted[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose([one.embedding for one in short.data], cut, atol=1e-5)
    rows = load(folders["base"])[1].ids(TEXTS)
    as_ids = openai.embeddings.create(model="base", input=rows)
    np.testing.assert_allclose([one.embedding for one in as_ids.data], wanted, atol=1e-5)


def test_openai_errors(openai, address):
    import openai as library

    with pytest.raises(library.UnprocessableEntityError, match="batch size 33 > maximum allowed batch size 32"):
        openai.embeddings.create(model="base", input=["the"] * 33)
    with pytest.raises(library.NotFoundError, match="there is no model 'gpt-9'"):
        openai.embeddings.create(model="gpt-9", input="the")
    with (
        library.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0) as other,
        pytest.raises(library.AuthenticationError, match="needs a key"),
    ):
        other.embeddings.create(model="base", input="the")


def test_openai_models(openai, folders):
    assert [model.id for model in openai.models.list()] == list(folders)
    assert openai.models.retrieve("writer").id == "writer"


def test_openai_completions(openai, folders):
    expected = "".join(generate(*load(folders["writer"]), "the cat", 9, Sampling(0.0)))
    options = {"model": "writer", "prompt": "the cat", "max_tokens": 9, "temperature": 0}
    answer = openai.completions.create(**options)
    assert answer.choices[0].text == expected and answer.choices[0].finish_reason in ("stop", "length")
    with openai.completions.create(**options, stream=True) as stream:
        assert "".join(part.choices[0].text for part in stream) == expected


# ---------------------------------------------------------------------- huggingface_hub


@pytest.fixture(scope="module")
def hub(address):
    """A client for one route of one model; it posts to exactly this address."""
    library = pytest.importorskip("huggingface_hub", reason="a client to test with: pip install huggingface_hub")
    return lambda path: library.InferenceClient(model=f"{address}{path}", token=KEY)


def test_hub_feature_extraction(hub, wanted, folders):
    np.testing.assert_allclose(hub("/embed").feature_extraction(TEXTS), wanted, atol=1e-5)
    assert hub("/models/base").feature_extraction(TEXTS[0]).shape == (1, 20)
    raw = hub("/embed").feature_extraction(TEXTS, normalize=False, truncate=True)
    np.testing.assert_allclose(raw, embed(*load(folders["base"]), TEXTS), rtol=1e-5, atol=1e-5)


def test_hub_fill_mask(hub, folders):
    text = "the [MASK] sat on a mat ."
    answer = hub("/fill-mask").fill_mask(text, top_k=3)
    (gap,) = fill_mask(*load(folders["base"]), text, 3).gaps
    assert [one.token for one in answer] == [guess.id for guess in gap]
    assert [one.score for one in answer] == pytest.approx([guess.probability for guess in gap], rel=1e-4)
    assert answer[0].sequence == fill_mask(*load(folders["base"]), text).text
    targets = hub("/fill-mask").fill_mask(text, targets=["cat", "dog"])
    assert {one.token_str for one in targets} == {"cat", "dog"}


def test_hub_token_classification(hub, folders):
    tuned, text = load_tuned(folders["tagger"]), "ada lives in london ."
    (expected,) = predictions(tuned, gather(tuned.task, [text]))
    answer = hub("/models/tagger/token-classification").token_classification(text)
    assert [one.entity_group for one in answer] == [one["type"] for one in expected["entities"]]
    words = hub("/models/tagger").token_classification(text, aggregation_strategy="none", ignore_labels=[])
    assert [(one.word, one.entity) for one in words] == list(zip(expected["words"], expected["tags"], strict=True))


def test_hub_question_answering(hub, folders):
    tuned, question, context = load_tuned(folders["reader"]), "where does ada live ?", "ada lives in london ."
    (expected,) = predictions(tuned, gather(tuned.task, [], question=question, context=context))
    answer = hub("/models/reader/question-answering").question_answering(question, context)
    assert answer.answer == expected["answer"] == context[answer.start : answer.end]
    several = hub("/models/reader").question_answering(question, context, top_k=2)
    assert [one.answer for one in several] == [one["answer"] for one in expected["answers"][:2]]


def test_hub_text_classification(hub, folders):
    tuned = load_tuned(folders["sentiment"])
    (expected,) = predictions(tuned, gather(tuned.task, TEXTS[:1]))
    answer = hub("/models/sentiment/text-classification").text_classification(TEXTS[0])
    assert {one.label: one.score for one in answer} == pytest.approx(expected["probabilities"], abs=1e-5)
    assert len(hub("/models/sentiment/text-classification").text_classification(TEXTS[0], top_k=1)) == 1


def test_hub_sentence_similarity(hub, folders):
    answer = hub("/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert answer == pytest.approx(cosines(embed(*load(folders["base"]), TEXTS))[0, 1:].tolist(), abs=1e-5)


def test_hub_text_generation(hub, folders):
    expected = "".join(generate(*load(folders["writer"]), "a dog", 7, Sampling(0.0)))
    client = hub("/models/writer/generate")
    assert client.text_generation("a dog", max_new_tokens=7) == expected
    assert "".join(client.text_generation("a dog", max_new_tokens=7, stream=True)) == expected
    assert client.text_generation("a dog", max_new_tokens=7, details=True).details.generated_tokens <= 7


def test_hub_errors(hub):
    from huggingface_hub.errors import HfHubHTTPError

    with pytest.raises(HfHubHTTPError) as caught:
        hub("/embed").feature_extraction(["the"] * 33)
    assert caught.value.response.status_code == 422


# ---------------------------------------------------------------------- the engine onnx


def test_the_engine_onnx_gives_the_same_answers(folders, client):
    """Every kind of model, each computed by ONNX Runtime; `client` computes in NumPy."""
    pytest.importorskip("onnxruntime")
    asked = [
        ("/embed", {"inputs": TEXTS}), ("/models/vectors/embed", {"inputs": TEXTS}), ("/embed_all", {"inputs": TEXTS}),
        ("/models/sentiment/predict", {"inputs": [TEXTS[:1], TEXTS[2:3]]}), ("/fill-mask", {"inputs": "a [MASK] ran"}),
        ("/models/tagger", {"inputs": TEXTS[2]}), ("/models/ranker", {"query": "rain", "texts": TEXTS}),
        ("/models/reader", {"inputs": {"question": "where does ada live ?", "context": TEXTS[2]}}),
        ("/models/writer/generate", {"inputs": "the cat"}),
    ]  # fmt: skip
    with running(folders, engine="onnx") as other:
        for path, body in asked:
            theirs, ours = other.post(path, body), client.post(path, body)
            assert theirs.status == ours.status == 200, path
            assert flat(theirs.json) == pytest.approx(flat(ours.json), abs=1e-4), path


def flat(value):
    """All values of a JSON value, by their places"""
    if isinstance(value, (list, dict)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {f"{name}.{place}": one for name, part in parts for place, one in flat(part).items()}
    return {"": value}


# ---------------------------------------------------------------------- the commands of TEI's documentation


def curl(address, path, body, status=200):
    done = subprocess.run(
        ["curl", "-s", "-w", "\n%{http_code}", f"{address}{path}", "-X", "POST", "-d", json.dumps(body),
         "-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {KEY}"],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    answer, _, code = done.stdout.rpartition("\n")
    assert int(code) == status, done.stdout
    return json.loads(answer)


def test_the_requests_of_its_documentation(address):
    assert len(curl(address, "/embed", {"inputs": "What is Deep Learning?"})[0]) == 20
    both = curl(address, "/embed", {"inputs": ["Today is a nice day", "I like you"]})
    assert len(both) == 2
    sparse = curl(address, "/embed_sparse", {"inputs": "I like you."})
    assert set(sparse[0][0]) == {"index", "value"}
    pairs = [["I like you."], ["I hate pineapples"]]
    labelled = curl(address, "/models/sentiment/predict", {"inputs": pairs})
    assert len(labelled) == 2 and set(labelled[0][0]) == {"score", "label"}
    ranks = curl(
        address,
        "/models/ranker/rerank",
        {"query": "What is Deep Learning?", "texts": ["Deep Learning is not...", "Deep learning is..."]},
    )
    assert {rank["index"] for rank in ranks} == {0, 1}
    openai = curl(address, "/v1/embeddings", {"input": "What is Deep Learning?", "model": "base", "user": "u"})
    assert openai["data"][0]["object"] == "embedding"
    assert curl(address, "/rerank", {"query": "a", "texts": ["b"]}, 424)["error_type"] == "Backend"
