"""Bounds and faults: each has its status code and a sentence, and the server goes on."""

import contextlib
import json
import logging
import re
import socket
import threading
import time

import numpy as np
import pytest

from mini_bert.serving import answers, json_text
from mini_bert.serving import app as app_module
from mini_bert.serving.calls import Limits
from mini_bert.serving.failures import Failure
from mini_bert.serving.routes import ROUTES
from mini_bert.serving.schemas import checked
from tests.serving.conftest import JSON, TOKENIZER, encoder, running

EMBED = {"inputs": "the cat sat"}
MODULES = {"answers": answers, "json_text": json_text}


def still_works(client):
    return client.post("/embed", EMBED).status == 200


# ---------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"inputs": NaN}', b"\xff\xfe", b"[" * 60_000, b'{"a":' * 9000,
     b'{"inputs": [' + b"9" * 6000 + b"]}"],
)  # fmt: skip
def test_what_is_not_a_json_object_is_400(client, body):
    answer = client.post("/embed", body, JSON)
    assert answer.status == 400 and answer.json["error_type"] == "Validation" and answer.json["error"]


@pytest.mark.parametrize(
    "request_",
    [{}, {"inputs": 3}, {"inputs": None}, {"inputs": {}}, {"inputs": [None]}, {"inputs": [[]]}, {"inputs": [1.5]},
     {"inputs": "a", "normalize": "yes"}, {"inputs": "a", "truncation_direction": "up"}, {"inputs": [True]},
     {"inputs": "a", "prompt_name": "none"}, {"inputs": [["a"]]}, {"inputs": [-1]}, {"inputs": [10**30]}],
)  # fmt: skip
def test_wrong_types_are_422(client, request_):
    answer = client.post("/embed", request_)
    assert answer.status == 422 and answer.json["error_type"] == "Validation", answer.json


@pytest.mark.parametrize("inputs", ["", "   ", [], ["the cat", ""], "\u200b"])
def test_nothing_to_compute_is_400(client, inputs):
    answer = client.post("/embed", {"inputs": inputs})
    assert answer.status == 400 and answer.json["error_type"] == "Empty"


@pytest.mark.parametrize(
    "text", ["\ud800", "\x00", "a" * 5000, "日本語", "👩‍👩‍👧", "[SEP] [PAD] [CLS]", "\u0301" * 50, "ﷺ" * 20]
)
def test_any_text_gets_an_answer_or_a_sentence(client, text):
    for path, request in (("/embed", {"inputs": text}), ("/tokenize", {"inputs": text}),
                          ("/models/sentiment/predict", {"inputs": text}), ("/fill-mask", {"inputs": f"{text} [MASK]"}),
                          ("/models/tagger/token-classification", {"inputs": text}),
                          ("/models/reader/question-answering", {"inputs": {"question": text, "context": text}}),
                          ("/models/writer/generate", {"inputs": text})):  # fmt: skip
        answer = client.post(path, request)
        assert answer.status == 200 or (answer.status in (400, 422) and answer.json["error"]), (path, answer)


CAN = {
    "/predict": "sentiment", "/text-classification": "sentiment", "/rerank": "ranker", "/question-answering": "reader",
    "/token-classification": "tagger", "/generate": "writer", "/generate_stream": "writer", "/v1/completions": "writer",
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_survives_wrong_values(client, route):
    """Each field of each route gets values of every type, from a model that can do what is asked."""
    path = f"/models/{CAN.get(route.path, 'base')}{route.path}"
    assert client.post(path, route.example).status == 200
    for name in route.request["properties"]:
        for value in (True, 1e300, "x", "", " ", [], [""], {"question": 1}, [["x"], [1]], [["x"]]):
            answer = client.post(path, {**route.example, name: value})
            assert answer.status in (200, 400, 422), (path, name, value, answer.body)


@pytest.mark.parametrize(
    ("path", "request_"),
    [("sentiment/predict", {"inputs": []}), ("sentiment/predict", {"inputs": ""}),
     ("sentiment/predict", {"inputs": [["the cat"], [" "]]}), ("sentiment/text-classification", {"inputs": " "}),
     ("ranker/rerank", {"query": "", "texts": ["the cat"]}), ("ranker/rerank", {"query": "a", "texts": ["the", " "]})],
)  # fmt: skip
def test_nothing_to_score_is_400(client, path, request_):
    answer = client.post(f"/models/{path}", request_)
    assert answer.status == 400 and answer.json["error_type"] == "Empty"


def test_a_small_request_for_a_large_answer_is_422(client):
    """An answer repeats its text for each word of each gap: this one would have 37 million characters."""
    answer = client.post("/fill-mask", {"inputs": ["x" * 10_000 + " [MASK]" * 20] * 8, "top_k": 1000})
    assert answer.status == 422 and "160 gaps" in answer.json["error"] and "lower `top_k`" in answer.json["error"]
    assert client.post("/fill-mask", {"inputs": "a [MASK]", "targets": ["cat"] * 1000}).status == 200
    answer = client.post("/fill-mask", {"inputs": "a [MASK]", "targets": ["cat"] * 1001})
    assert answer.status == 422 and "at most 1,000 words" in answer.json["error"]


@pytest.mark.parametrize(
    ("path", "text", "work"),
    [("base/fill-mask", "x" * 2000 + " [MASK]" * 5, "answers.guesses"),
     ("base/tokenize", "the " * 2000, "json_text.large_text"),
     ("tagger/token-classification", "the " * 2000, "answers.tagged_words")],
)  # fmt: skip
def test_large_answers_are_written_in_a_thread(client, monkeypatch, path, text, work):
    """The bodies are short. What counts is the answer: the event loop must not wait for it."""
    module, _, name = work.partition(".")
    threads, inner = set(), getattr(MODULES[module], name)

    def seen(*args):
        threads.add(threading.current_thread().name)
        return inner(*args)

    monkeypatch.setattr(MODULES[module], name, seen)
    answer = client.post(f"/models/{path}", {"inputs": text})
    assert answer.status == 200 and len(answer.json) and threads == {"reading_0"}
    threads.clear()
    assert client.post(f"/models/{path}", {"inputs": "a [MASK]"}).status == 200
    assert not {"reading_0"} & threads


@pytest.mark.parametrize(
    "value", [[], {"a": 1}, [{"a": i} for i in range(250)], [[{"a": "é"}] * 101, [], [{"b": [1, 2]}]], [[[1], [2.5]]]]
)
def test_a_large_text_is_the_json_of_its_value(value):
    assert json.loads(json_text.large_text(value)) == value


def test_many_values_are_checked_in_a_thread(client, monkeypatch):
    threads, inner = [], app_module.checked
    monkeypatch.setattr(
        app_module, "checked", lambda *args: (threads.append(threading.current_thread().name), inner(*args))[1]
    )
    assert client.post("/embed", {"inputs": [5] * 20_000}).status == 200
    assert threads == ["reading_0"]


def test_too_many_inputs_are_422(client):
    assert client.post("/embed", {"inputs": ["the"] * 32}).status == 200
    answer = client.post("/embed", {"inputs": ["the"] * 33})
    assert answer.status == 422
    assert answer.json == {"error": "batch size 33 > maximum allowed batch size 32", "error_type": "Validation"}
    openai = client.post("/v1/embeddings", {"input": ["the"] * 33})
    assert openai.json == {
        "message": "batch size 33 > maximum allowed batch size 32",
        "code": 422,
        "type": "Validation",
    }


def test_a_body_of_10_mb_is_413(client):
    answer = client.post("/embed", json.dumps({"inputs": "a" * 10_000_000}).encode(), JSON)
    assert answer.status == 413 and "2,000,000 bytes" in answer.json["error"]
    assert "--payload-limit" in answer.json["error"]
    assert still_works(client)


def test_a_body_at_the_limit_is_read(client):
    """2 MB of text: cut to 31 tokens, while other requests are answered."""
    answer = client.post("/embed", json.dumps({"inputs": "cat " * 499_000}).encode(), JSON)
    assert answer.status == 200


def test_only_json_is_taken(client):
    for kind in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        assert client.post("/embed", b'{"inputs": "a"}', kind).status == 415


def test_a_header_that_comes_twice_is_a_wrong_request(client):
    """It is not an empty one, though both are 400."""
    head = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:%d\r\norigin: a\r\norigin: b\r\n\r\n" % client.port
    with raw(client, head) as connection:
        answer = connection.recv(2000)
        assert answer.startswith(b"HTTP/1.1 400") and b'"error_type": "Validation"' in answer


def test_methods_and_routes_that_do_not_exist(client):
    assert client.get("/embed").status == 405
    assert client.get("/nowhere").status == 404 and client.post("/nowhere", {}).status == 404
    assert client.get("/models/base/../../etc/passwd").status == 404
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.call(method, "/embed", b"", JSON).status == 405


# ---------------------------------------------------------------------- other pages, and the key


def test_other_hosts_and_pages_are_refused(client):
    assert client.get("/health", host="evil.example").status == 421
    assert "--allowed-host" in client.get("/health", host="evil.example").json["error"]
    assert client.post("/embed", EMBED, {**JSON, "origin": "http://evil.example"}).status == 403
    assert "access-control-allow-origin" not in client.get("/health").headers
    assert client.post("/embed", EMBED, {**JSON, "origin": client.address}).status == 200


def test_a_page_that_was_allowed_may_ask(folders):
    with running({"base": folders["base"]}, origins=["https://page.example"]) as client:
        page = {"origin": "https://page.example"}
        preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        asked = client.call("OPTIONS", "/embed", headers={**page, **preflight})
        assert asked.status == 200
        answer = client.post("/embed", EMBED, {**JSON, **page})
        assert answer.status == 200 and answer.headers["access-control-allow-origin"] == "https://page.example"
        assert client.post("/embed", EMBED, {**JSON, "origin": "https://other.example"}).status == 403


def test_a_key_is_needed_if_there_is_one(folders, caplog):
    key = "s3cret-Key"
    with caplog.at_level(logging.DEBUG), running({"base": folders["base"]}, key=key) as client:
        for path in ("/health", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status == 200, "public"
        for path in ("/info", "/v1/models"):
            assert client.get(path).status == 401
            assert client.get(path, authorization=f"Bearer {key}").status == 200
        for wrong in (
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {key}x",
            f"Bearer {key[:-1]}",
            f"Basic {key}",
            key,
            "Bearer \xff",
        ):
            answer = client.post("/embed", EMBED, {**JSON, "authorization": wrong})
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer", wrong
            assert answer.json["error_type"] == "Unauthorized"
        assert client.post("/v1/embeddings", {"input": "a"}, JSON).json["code"] == 401
        assert client.post("/embed", EMBED, {**JSON, "authorization": f"Bearer {key}"}).status == 200
        assert key not in client.get("/metrics").body.decode()
    assert key not in caplog.text


# ---------------------------------------------------------------------- too much, too slow, gone


@pytest.fixture(scope="module")
def slow_server(folders):
    """A server whose model computes only when `go` is set, with room for three requests and little patience"""
    with running({"base": folders["base"]}, Limits(3, timeout=5.0, patience=0.3)) as client:
        served = client.server.shelf.entries["base"].served
        compute = served.vectors
        served.vectors = lambda rows: (client.go.wait(20), compute(rows))[1]
        yield client


@pytest.fixture
def slow(slow_server):
    slow_server.go = threading.Event()
    yield slow_server
    slow_server.go.set()
    until(lambda: slow_server.server.guard.active == 0)


def in_threads(count, work):
    answers = [None] * count

    def one(place):
        answers[place] = work()

    threads = [threading.Thread(target=one, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    return threads, answers


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_more_requests_than_allowed_are_429(slow):
    threads, answers = in_threads(3, lambda: slow.post("/embed", EMBED))
    until(lambda: slow.server.guard.active == 3)
    assert '{err="overloaded"}' not in slow.get("/metrics").body.decode()
    refused = slow.post("/embed", EMBED)
    assert '{err="overloaded"} 1.0' in slow.get("/metrics").body.decode()
    assert refused.status == 429 and refused.headers["retry-after"] == "1"
    assert refused.json == {"error": "Model is overloaded", "error_type": "Overloaded"}
    assert slow.get("/health").status == 200, "busy is not ill"
    slow.go.set()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 3 and slow.server.guard.active == 0


def test_requests_count_before_their_bodies_arrive(folders):
    """Unfinished bodies take memory, so there may not be more of them than requests."""
    with running({"base": folders["base"]}, Limits(2)) as client:
        with raw(client, HEAD % (client.port, 50)), raw(client, HEAD % (client.port, 50) + b'{"inputs"'):
            time.sleep(0.2)
            assert client.post("/embed", EMBED).status == 429
            assert client.post("/embed", {"inputs": "the " * 450_000}).status == 429, "the client can send its body"
            assert client.get("/health").status == 200
        until(lambda: client.server.guard.active == 0)
        assert still_works(client)


def test_a_request_that_takes_too_long_is_503(folders, monkeypatch):
    go = threading.Event()
    with running({"base": folders["base"]}, Limits(timeout=0.3)) as client:
        served = client.server.shelf.entries["base"].served
        monkeypatch.setattr(served, "vectors", lambda rows: (go.wait(20), rows)[1])
        answer = client.post("/embed", EMBED)
        assert answer.status == 503 and "longer than 0.3 seconds" in answer.json["error"]
        assert "--timeout" in answer.json["error"]
        client.server.shelf.entries["base"].batcher.failed = ValueError("the last batch")
        health = client.get("/health")
        assert health.status == 503
        assert health.json["models"]["base"]["problem"] == "it cannot compute a single token within 0.3 seconds"
        go.set()


def raw(client, data):
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=20)
    connection.sendall(data)
    return connection


HEAD = b"POST /embed HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def test_a_client_that_hangs_up_is_forgotten(slow):
    """Its input leaves the queue, and its place is free."""
    body = json.dumps(EMBED).encode()
    blocking = [raw(slow, HEAD % (slow.port, len(body)) + body) for _ in range(2)]
    until(lambda: slow.server.guard.active == 2)
    third = raw(slow, HEAD % (slow.port, len(body)) + body)
    until(lambda: slow.server.guard.active == 3)
    for connection in (third, *blocking):
        connection.close()
    until(lambda: slow.server.guard.active == 0)
    slow.go.set()
    assert still_works(slow)
    assert b'te_request_failure{err="gone"}' in slow.get("/metrics").body


def test_a_stream_ends_with_its_client(folders, monkeypatch):
    """After some events the client hangs up: nothing more is written, and its place is free."""
    from mini_bert.serving import writing

    steps = []

    def slowly(*args):
        def pieces():
            for number in range(1000):
                steps.append(number)
                time.sleep(0.01)
                yield "word "

        return pieces()

    monkeypatch.setattr(writing, "generate", slowly)
    with running({"writer": folders["writer"]}, Limits(timeout=0.4)) as client:
        answer = client.post("/generate_stream", {"inputs": "the cat"})
        last = json.loads(answer.body.decode().split("data: ")[-1])
        assert last["error_type"] == "Unhealthy" and "longer than 0.4 seconds" in last["error"], "it is bounded in time"
        assert 1 < len(steps) < 100
        steps.clear()
    with running({"writer": folders["writer"]}) as client:
        body = json.dumps({"inputs": "the cat", "parameters": {"max_new_tokens": 1000}}).encode()
        with raw(client, (HEAD % (client.port, len(body))).replace(b"/embed", b"/generate_stream") + body) as stream:
            read = b""
            while b"word" not in read:
                read += stream.recv(1000)
            assert read.startswith(b"HTTP/1.1 200") and client.server.guard.active == 1
        until(lambda: client.server.guard.active == 0)
        assert len(steps) < 500


def test_a_half_closed_connection_is_closed(slow):
    body = json.dumps(EMBED).encode()
    connection = raw(slow, HEAD % (slow.port, len(body)) + body)
    until(lambda: slow.server.guard.active == 1)
    connection.shutdown(socket.SHUT_WR)
    until(lambda: slow.server.guard.active == 0)
    assert connection.recv(1000) == b""
    connection.close()
    half = raw(slow, HEAD % (slow.port, 50) + b'{"inp')
    half.shutdown(socket.SHUT_WR)
    half.recv(1000)
    half.close()
    slow.go.set()
    assert still_works(slow)


@pytest.mark.parametrize("start", [b"", b"POST /em", b"GET /health HTTP/1.1\r\nhost: "])
def test_a_request_that_never_comes_is_cut_off(slow, start):
    connection = raw(slow, start)
    began = time.monotonic()
    with connection, contextlib.suppress(ConnectionResetError):
        assert connection.recv(1000) == b""
    assert 0.2 < time.monotonic() - began < 10


def test_a_drop_now_and_then_does_not_keep_a_connection(slow):
    """Headers that arrive byte by byte have as long as headers that arrive at once."""
    connection = raw(slow, b"GET /health HTTP/1.1\r\n")
    began = time.monotonic()
    with connection, pytest.raises(OSError):
        while time.monotonic() - began < 10:
            connection.sendall(b"x")
            time.sleep(0.05)
    assert time.monotonic() - began < 9


def test_a_body_that_never_comes_is_408(slow):
    with raw(slow, HEAD % (slow.port, 50) + b'{"inputs"') as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


@contextlib.contextmanager
def long_answer(slow):
    """A connection on which a long answer waits to be taken"""
    slow.go.set()
    slow.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    body = json.dumps({"inputs": ["the cat sat on a mat and ran far " * 4] * 32}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", slow.port))
        connection.sendall((HEAD % (slow.port, len(body))).replace(b"/embed", b"/embed_all") + body)
        yield connection


def test_an_answer_that_is_not_taken_is_given_up(slow):
    """A client reads nothing of a long answer: the server closes the connection, and frees its place."""
    with long_answer(slow) as connection:
        time.sleep(0.8)
        read = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                read += part
    (length,) = re.findall(rb"content-length: (\d+)", read)
    assert len(read) < int(length) / 2
    assert still_works(slow) and slow.server.guard.active == 0


def test_requests_that_follow_do_not_keep_a_connection_whose_answer_is_not_taken(slow):
    """The server closes it, although the client keeps on sending."""
    with long_answer(slow) as connection:
        end = time.monotonic() + 3
        with pytest.raises(OSError):
            while time.monotonic() < end:
                time.sleep(0.1)
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % slow.port)
    until(lambda: slow.server.guard.active == 0)


def test_garbage_instead_of_http(client):
    with raw(client, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert still_works(client)


# ---------------------------------------------------------------------- a model that fails


def test_numbers_that_are_not_finite_are_424_and_unhealthy(folders):
    """Weights that turn into NaN while serving: no vector is made up, and /health says so until they are mended."""
    with running({"base": folders["base"]}) as client:
        weights = client.server.shelf.entries["base"].served.model.flat.data
        good = weights.copy()
        weights[...] = np.nan
        answer = client.post("/embed", EMBED)
        assert answer.status == 424 and answer.json["error_type"] == "Backend" and "finite" in answer.json["error"]
        health = client.get("/health")
        assert health.status == 503 and health.json["error_type"] == "Unhealthy"
        assert "finite" in health.json["models"]["base"]["problem"]
        weights[...] = good
        assert client.get("/health").status == 200 and still_works(client)


def test_a_folder_with_nan_weights_is_not_served(tmp_path):
    model = encoder()
    model.flat.data[...] = np.nan
    model.save_pretrained(tmp_path / "bad")
    TOKENIZER.save(tmp_path / "bad")
    with pytest.raises(ValueError, match="NaN"):
        app_module.Server({"bad": str(tmp_path / "bad")})


def test_a_mistake_in_the_server_is_500_and_logged(client, monkeypatch, caplog):
    """A ValueError is the client's only if it was raised while its texts were read."""

    def wrong(*args):
        raise ValueError("a mistake of ours")

    logger = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    monkeypatch.setattr(answers, "shaped", wrong)
    answer = client.post("/embed", EMBED)
    assert answer.status == 500 and answer.json["error_type"] == "Internal" and "ours" not in answer.json["error"]
    answer = client.post("/v1/embeddings", {"input": "the cat"})
    assert answer.status == 500 and set(answer.json) == {"message", "code", "type"}
    until(lambda: caplog.text.count("ValueError: a mistake of ours") >= 2)
    monkeypatch.undo()
    monkeypatch.setattr(client.server.shelf.entries["base"].served, "rows", wrong)
    assert client.post("/embed", EMBED).status == 422
    monkeypatch.undo()
    assert still_works(client)


def test_null_means_the_default():
    schema = ROUTES[0].request
    assert checked({"inputs": "a", "normalize": None}, schema)["normalize"] is True
    with pytest.raises(Failure, match="`inputs`"):
        checked({"inputs": None}, schema)


def test_many_clients_get_their_own_answers(client, folders):
    """Eight threads, 25 requests each, of different lengths: every vector is the one of its own text."""
    words = [word for word in TOKENIZER.tokens[5:] if word.isalpha()]
    texts = [" ".join(words[(i * j) % len(words)] for j in range(1, 2 + i % 23)) for i in range(1, 26)]
    alone = {text: np.array(client.post("/embed", {"inputs": text}).json[0]) for text in texts}

    def ask():
        return max(
            np.abs(np.array(client.post("/embed", {"inputs": text}).json[0]) - alone[text]).max() for text in texts
        )

    threads, answers = in_threads(8, ask)
    for thread in threads:
        thread.join()
    assert max(answers) < 1e-5
