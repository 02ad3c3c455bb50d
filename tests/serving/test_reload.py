"""A model folder that is replaced while serving is noticed, loaded beside the old one, and swapped."""

import threading
import time

import numpy as np
import pytest

from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load
from mini_bert.serving import shelf as shelf_module
from mini_bert.serving.shelf import named
from tests.serving.conftest import TOKENIZER, encoder, running

TEXT = "the cat sat on a mat ."


def write(folder, seed):
    model = encoder(seed)
    model.save_pretrained(folder)
    TOKENIZER.save(folder)


@pytest.fixture
def changing(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf_module, "EVERY", 0.05)
    write(tmp_path / "mine", 0)
    with running({"mine": str(tmp_path / "mine")}) as client:
        yield client, tmp_path / "mine"


def vector(client):
    answer = client.post("/embed", {"inputs": TEXT, "normalize": False})
    assert answer.status == 200
    return np.array(answer.json[0])


def of_folder(folder):
    return embed(*load(folder), [TEXT])[0]


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_new_model_takes_over_without_a_failed_request(changing):
    """While the folder is replaced three times, every answer is 200, and is that of one of the models."""
    client, folder = changing
    known, failed, end = [of_folder(folder)], [], threading.Event()

    def ask():
        while not end.is_set():
            answer = vector(client)
            if min(np.abs(answer - one).max() for one in list(known)) > 1e-5:
                failed.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for seed in (5, 6, 7):
        known.append(embed(encoder(seed), TOKENIZER, [TEXT])[0])
        if seed == 5:
            for thread in threads:
                thread.start()
        write(folder, seed)
        until(lambda: np.abs(vector(client) - known[-1]).max() < 1e-5)
    end.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert b'te_model_reloads{model="mine",result="replaced"}' in client.get("/metrics").body


def test_a_folder_that_is_renamed_takes_over(changing):
    """As docs/serving.md says: write beside the old one, then rename both."""
    client, folder = changing
    write(folder.with_name("new"), 8)
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)
    wanted = of_folder(folder)
    until(lambda: np.abs(vector(client) - wanted).max() < 1e-5)
    assert client.get("/health").json["models"]["mine"]["replacement"] is None


@pytest.mark.parametrize("damage", ["truncated", "nan", "missing", "config"])
def test_a_broken_folder_leaves_the_old_model_serving(changing, damage, caplog):
    client, folder = changing
    before = vector(client)
    weights = folder / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "nan":
        model = encoder()
        model.flat.data[...] = np.nan
        model.save_pretrained(folder)
    elif damage == "missing":
        weights.unlink()
    else:
        (folder / "config.json").write_text("{")
    until(lambda: client.get("/health").json["models"]["mine"]["replacement"])
    health = client.get("/health")
    assert health.status == 200 and "cannot be loaded" in health.json["models"]["mine"]["replacement"]
    assert str(folder) not in health.body.decode() and str(folder) in caplog.text, "/health is public"
    np.testing.assert_array_equal(vector(client), before)
    assert "goes on serving" in caplog.text
    assert b'te_model_reloads{model="mine",result="failed"} 1.0' in client.get("/metrics").body
    write(folder, 3)
    until(lambda: client.get("/health").json["models"]["mine"]["replacement"] is None)
    np.testing.assert_allclose(vector(client), of_folder(folder), atol=1e-5)


def test_names_of_models():
    assert named(["runs/first", "mine=runs/second"]) == {"first": "runs/first", "mine": "runs/second"}
    with pytest.raises(ValueError, match="two models are called first; give one another name: NAME=old/first"):
        named(["runs/first", "old/first"])
