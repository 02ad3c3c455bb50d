"""The server: answers, and refuses what is foreign, too large, too much or malformed."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

pytest.importorskip("starlette", reason="the lab's server is an extra: pip install -e '.[lab]'")

from mini_bert.common.extras import MissingExtra
from mini_bert.common.web import open_port
from mini_bert.lab import mask, server
from mini_bert.lab.guard import BURST, MOST_BYTES, POLICY, RATE, Guard, Rate
from mini_bert.lab.running import run_lab
from mini_bert.lab.server import Loading, create_app
from tests.lab.client import HOST, JSON, PORT, Client

GUESS = "/api/mask/guess"
TEXT = "She opened the door."


@pytest.fixture
def client(bench):
    return Client(create_app(Loading("mini-bert", lambda name: bench), PORT))


def test_the_page_and_its_files_are_served(client):
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert client.get("/lab.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/rooms/mask.js").status == 200
    assert json.loads(client.get("/first_view.json").body)
    assert client.get("/api/about").json["model"] == "mini-bert"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/../server.py", "/static/../../server.py", "/..%2fserver.py", "//etc/passwd",
        "/rooms/../../guard.py", "/rooms", "/rooms/", "/index.html/", "/.", "/%00", "/api", "/api/mask",
    ],
)  # fmt: skip
def test_only_listed_files_are_served(client, path):
    """Names are looked up in a table, so no path leads out of the folder."""
    answer = client.get(path)
    assert answer.status == 404 and "error" in answer.json


def test_an_action_answers(client):
    answer = client.post(GUESS, {"text": TEXT, "hidden": [4]})
    assert answer.status == 200 and answer.json["gaps"][0]["own"]["word"] == "door"


def test_every_response_has_the_headers(client):
    for answer in (
        client.get("/"),
        client.get("/nothing"),
        client.post(GUESS, {}),
        client.get("/", ("host", "evil.example")),
    ):
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    for word in ("unsafe", "*", "http"):
        assert word not in POLICY


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "",
     f"127.0.0.1:{PORT}@evil.example", f"LOCALHOST.:{PORT}", f"0.0.0.0:{PORT}", f"[::1]:{PORT}"],
)  # fmt: skip
def test_a_foreign_host_is_refused(client, host):
    """Also for the page itself: else a foreign page could read it through DNS rebinding."""
    assert client.get("/", ("host", host)).status == 421
    assert client.post(GUESS, {"text": TEXT}, ("host", host), JSON).status == 421


def test_a_request_without_or_with_two_hosts_is_refused(client):
    assert client.get("/", JSON).status == 421
    assert client.get("/", HOST, HOST).status == 400


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{PORT}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{PORT}.evil.example",
    ],
)
def test_a_foreign_origin_is_refused(client, origin):
    assert client.post(GUESS, {"text": TEXT}, HOST, JSON, ("origin", origin)).status == 403
    assert client.get("/", HOST, ("origin", origin)).status == 403


def test_our_own_origin_is_let_in(client):
    for name in ("127.0.0.1", "localhost"):
        headers = (
            ("host", f"{name}:{PORT}"),
            JSON,
            ("origin", f"http://{name}:{PORT}"),
            ("sec-fetch-site", "same-origin"),
        )
        assert client.post(GUESS, {"text": TEXT}, *headers).status == 200


def test_a_link_from_elsewhere_opens_the_page_but_not_the_interface(client):
    """A link in the course may lead here; a request by its page may not."""
    foreign = ("sec-fetch-site", "cross-site")
    assert client.get("/", HOST, foreign).status == 200
    assert client.get("/api/about", HOST, foreign).status == 403
    assert client.post(GUESS, {"text": TEXT}, HOST, JSON, foreign).status == 403


@pytest.mark.parametrize(
    "kind", [(), (("content-type", "text/plain"),), (("content-type", "application/x-www-form-urlencoded"),)]
)
def test_only_json_is_taken(client, kind):
    """A form or plain text can be sent by any page without a preflight request; JSON cannot."""
    assert client.post(GUESS, {"text": TEXT}, HOST, *kind).status == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"])
def test_other_methods_are_refused(client, method):
    assert client.call(method, GUESS, HOST).status == 405


def test_actions_are_not_run_by_get(client):
    assert client.get(GUESS).status in (404, 405)


def test_a_long_body_is_refused_whatever_its_length_says(client):
    long = b'{"text": "' + b"a" * MOST_BYTES + b'"}'
    assert client.post(GUESS, long).status == 413
    assert client.call("POST", GUESS, HOST, JSON, ("content-length", "5"), pieces=[long[:50], long[50:]]).status == 413
    assert client.call("POST", GUESS, HOST, JSON, ("content-length", str(1 << 60)), pieces=[b"{}"]).status == 413
    assert client.call("POST", GUESS, HOST, JSON, ("content-length", "-1"), pieces=[b"{}"]).status == 413


def test_a_body_that_never_arrives_is_given_up(client, monkeypatch):
    monkeypatch.setattr(Guard, "patience", 0.1)
    assert client.call("POST", GUESS, HOST, JSON, pieces=[b"{", None]).status == 408


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"3", b'"x"', b'{"text": NaN}', b"\xff\xfe", b"[" * 60_000,
     b'{"hidden": [' + b"9" * 6000 + b"]}", b'{"a":' * 9000],
)  # fmt: skip
def test_malformed_bodies_get_a_sentence(client, body):
    answer = client.post(GUESS, body)
    assert answer.status == 400 and answer.json["error"]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "\x00\x01\x02", "‮abc", "a" * 1999, "日本語のテキスト", "👩‍👩‍👧 family",
     "[SEP] [CLS] [PAD] [UNK]", "\u0301" * 50, '"};alert(1)//', "ﷺ" * 20],
)  # fmt: skip
def test_hostile_text_is_only_text(client, text):
    """Any text gets an answer or a sentence, never an internal error."""
    for path in (GUESS, "/api/mask/surprise", "/api/stepper/steps", "/api/attention/maps"):
        answer = client.post(path, {"text": text})
        assert answer.status in (200, 400), answer.body
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/api/soup/guess", "/api/mask/soup", "/api/mask/__class__", "/api/os/system"])
def test_unknown_actions_are_not_found(client, path):
    assert client.post(path, {"text": TEXT}).status == 404


@pytest.mark.parametrize(
    "mistake", [ValueError("operands could not be broadcast"), KeyError("offsets"), TypeError("x")]
)
def test_our_own_mistakes_are_not_shown_as_the_users(client, monkeypatch, caplog, mistake):
    """Only BadRequest is a sentence for the user; anything else is logged, and said to be a mistake in the lab."""

    def fails(bench, request):
        raise mistake

    monkeypatch.setitem(mask.ACTIONS, "guess", fails)
    answer = client.post(GUESS, {"text": TEXT})
    assert answer.status == 500 and "mistake in the lab" in answer.json["error"]
    assert type(mistake).__name__ in caplog.text


def test_too_many_requests_are_refused(bench):
    """A burst is let in, then RATE requests per second."""
    clock = iter([0.0] * int(BURST + 2) + [1.0] * int(RATE + 1)).__next__
    rate = Rate(clock)
    assert [rate.allows() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    assert [rate.allows() for _ in range(int(RATE) + 1)] == [True] * int(RATE) + [False]
    refusing = Rate(lambda: 0.0)
    refusing.tokens = 0
    app = create_app(Loading("mini-bert", lambda name: bench), PORT)
    slowed = Client(Guard(app.app, PORT, refusing))
    for answer in (slowed.post(GUESS, {"text": TEXT}), slowed.get("/api/about")):
        assert answer.status == 429 and answer.headers["retry-after"] == "1"
    assert slowed.get("/lab.js").status == 200  # the page itself


def test_web_sockets_are_closed(bench):
    import asyncio

    sent = []

    async def send(message):
        sent.append(message)

    app = create_app(Loading("mini-bert", lambda name: bench), PORT)
    asyncio.run(app({"type": "websocket", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_an_action_that_takes_too_long_is_answered(bench, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(server, "TIME", 0.2)
    monkeypatch.setattr(server, "answer", lambda *parts: release.wait(5) and "{}")
    try:
        answer = Client(create_app(Loading("mini-bert", lambda name: bench), PORT)).post(GUESS, {"text": TEXT})
    finally:
        release.set()
    assert answer.status == 503 and "longer than" in answer.json["error"]


def test_a_mistake_of_ours_does_not_show_its_insides(client, monkeypatch, caplog):
    def wrong(*parts):
        raise RuntimeError("a secret path")

    monkeypatch.setattr(server, "answer", wrong)
    answer = client.post(GUESS, {"text": TEXT})
    assert answer.status == 500 and b"secret" not in answer.body and "a secret path" in caplog.text


def test_a_model_that_cannot_be_loaded_is_named():
    def fail(name):
        raise FileNotFoundError("there is no folder")

    app = create_app(Loading("runs/none", fail), PORT)
    answer = Client(app).post(GUESS, {"text": TEXT})
    assert answer.status == 400 and "runs/none could not be loaded: there is no folder" in answer.json["error"]
    assert Client(app).get("/first_view.json").json == {}, "computed beforehand for the bundled model only"


def test_a_wrong_folder_is_an_error_at_once():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run_lab("nowhere", browser=False)


def test_a_taken_port_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is in use"):
            open_port("127.0.0.1", [port])
        with open_port("127.0.0.1", [port, 0]) as listening:
            assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_the_command_serves_and_ends_on_ctrl_c():
    """The page is there before the model; Ctrl-C ends the server with code 0."""
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser", "--port", str(free_port())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = process.stdout.readline()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", line)
        assert b"Mini-BERT lab" in patient(address)
        request = urllib.request.Request(
            address + "api/mask/guess",
            json.dumps({"text": TEXT, "hidden": [4]}).encode(),
            {"content-type": "application/json"},
        )
        assert json.loads(urllib.request.urlopen(request, timeout=30).read())["gaps"]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
        assert process.returncode == 0 and rest.strip() == "The lab is closed."
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_a_second_ctrl_c_is_as_quiet_as_one():
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser", "--port", str(free_port())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        patient(address)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        rest, _ = process.communicate(timeout=20)
        assert process.returncode == 0 and rest.strip() == "The lab is closed."
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def patient(address: str) -> bytes:
    end = time.monotonic() + 20
    while True:
        try:
            return urllib.request.urlopen(address, timeout=20).read()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def test_missing_packages_are_named_together(monkeypatch):
    """One message, one command, whichever of the two is missing first."""
    for missing in ("uvicorn", "starlette"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"`python run.py lab` installs.* -m pip install starlette uvicorn$"):
        run_lab("mini-bert", None, False)
