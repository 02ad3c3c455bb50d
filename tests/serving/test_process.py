"""`mini-bert serve` as a process: it says where it is, and ends in time with code 0."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from mini_bert.cli.main import main

EMBED = json.dumps({"inputs": "the cat sat on a mat ."})
JSON = {"content-type": "application/json"}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals to a process")


@contextlib.contextmanager
def process(*words: str, **environment: str):
    """The process, and the port on which it serves."""
    command = [sys.executable, "-m", "mini_bert", "serve", *words, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as started:
        try:
            line = started.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            assert found, line + started.stderr.read()
            yield started, int(found[1])
        finally:
            started.kill()


def post(connection: http.client.HTTPConnection, path: str = "/embed", body: str = EMBED, **headers: str):
    connection.request("POST", path, body, {**JSON, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_sigterm_under_load(folders):
    """Requests that were accepted are answered, others are refused, and the process ends with 0 within seconds."""
    with process(folders["base"], "--threads", "2") as (started, port):
        answered, refused, wrong, ended = [], [], [], threading.Event()

        def ask():
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                try:
                    while not ended.is_set():
                        status, body = post(connection)
                        (answered if status == 200 and len(body) > 100 else wrong).append(1)
                except (http.client.RemoteDisconnected, ConnectionError):  # not a byte of an answer
                    refused.append(1)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        while len(answered) < 50:
            assert started.poll() is None
            time.sleep(0.01)
        began = time.monotonic()
        started.send_signal(signal.SIGTERM)
        out, errors = started.communicate(timeout=30)
        assert started.returncode == 0 and time.monotonic() - began < 10
        ended.set()
        for thread in threads:
            thread.join()
        assert out == "The server is closed.\n" and errors == ""
        assert not wrong and len(refused) == 8


def test_the_key_comes_from_the_environment_and_ctrl_c_ends(folders):
    with process(f"mine={folders['base']}", MINI_BERT_API_KEY="a-Key") as (started, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        assert post(connection)[0] == 401
        assert post(connection, authorization="Bearer a-Key")[0] == 200
        assert post(connection, "/models/mine/embed", authorization="Bearer a-Key")[0] == 200
        connection.close()
        started.send_signal(signal.SIGINT)
        out, errors = started.communicate(timeout=30)
        assert started.returncode == 0 and "a-Key" not in out + errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no model folder nowhere"),
        (["mini-bert", "mini-bert"], "two models are called mini-bert"),
        (["mini-bert", "--engine", "steam"], "engine is 'steam'"),
        (["mini-bert", "--api-key", " "], "the API key is empty"),
        (["mini-bert", "--pooling", "max"], "pooling is 'max'"),
    ],
)
def test_what_cannot_be_served_is_an_error_at_once(words, message):
    with pytest.raises(SystemExit, match=message):
        main(["serve", *words, "--port", "0"])


@pytest.mark.parametrize("package", ["uvicorn", "orjson"])
def test_a_missing_package_is_an_error_before_the_first_request(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=rf"the extra `serve`\); one is not installed.*pip install {package}"):
        main(["serve", "mini-bert", "--port", "0"])
