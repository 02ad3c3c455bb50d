"""How quickly the lab answers: replays the requests of its page against a running server.

    python benchmarks/lab.py                    starts a lab of its own; the median of each action, and the slowest
    python benchmarks/lab.py --rounds 20

Also measured: the time from starting the command to the first byte of the page, and to the first answer of the model.
Exits with 1 if the median of an action is above 100 ms. Measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from typing import Any

LIMIT = 100.0  # ms
SENTENCES = (
    "She opened the door and looked into the room.",
    "She was born in New York in 1921.",
    "The old man closed his eyes and smiled.",
    "The cat sat on the mat because it was tired.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.",
)
STEPS = ("query", "scores", "attention", "context", "expand", "output_norm")


def session(text: str) -> list[tuple[str, dict[str, Any]]]:
    """What the page asks in all nine rooms while someone types a sentence, hides two words, steps through a block,
    looks at heads, follows the gradient, learns a vocabulary and looks at vectors."""
    asked: list[tuple[str, dict[str, Any]]] = []
    for end in range(len(text) // 2, len(text) + 1, 4):  # typing
        asked += [("mask/guess", {"text": text[:end], "hidden": []}), ("mask/surprise", {"text": text[:end]})]
    asked += [("mask/guess", {"text": text, "hidden": hidden}) for hidden in ([4], [2, 4])]
    asked.append(("mask/guess", {"text": text, "hidden": [2, 4], "context": "left"}))
    asked.append(("stepper/steps", {"text": text}))
    for layer in range(3):
        for step in STEPS:
            asked.append(("stepper/values", {"text": text, "step": step, "layer": layer}))
            number = {"text": text, "step": step, "layer": layer, "row": 3, "head": 0}
            asked += [("stepper/explain", {**number, "column": column}) for column in range(3)]
    asked.append(("stepper/values", {"text": text, "step": "probabilities"}))
    asked.append(("attention/maps", {"text": text}))
    for head in range(4):
        asked.append(("attention/query", {"text": text, "layer": 1, "head": head, "position": 4}))
        asked.append(("attention/without", {"text": text, "position": 4, "off": [head]}))
    for at in range(0, 40, 8):
        asked.append(("text/spelling", {"text": text, "at": at}))
        asked.append(("family/guesses", {"text": text, "at": at}))
    asked += [("text/pieces", {"text": text[:end]}) for end in range(len(text) // 2, len(text) + 1, 4)]
    asked += [
        ("text/learn", {"text": " ".join(SENTENCES), "kind": kind, "step": step})
        for kind in ("wordpiece", "bpe", "unigram")
        for step in range(0, 20, 4)
    ]
    asked += [("vectors/plane", {"text": "\n".join((text, *SENTENCES)), "of": of, "layer": layer})
              for of in ("sentences", "words") for layer in range(4)]  # fmt: skip
    asked += [("vectors/neighbours", {"text": text, "position": position}) for position in range(1, 5)]
    asked += [("vectors/probe", {"text": text}), ("family/attention", {"text": text, "layer": 1, "head": 1})]
    asked.append(("family/about", {}))
    for position in (3, 4):
        asked.append(("attention/saliency", {"text": text, "position": position}))
        asked.append(("attention/importance", {"text": text, "position": position}))
    for hidden in ([3], [4]):
        asked.append(("backward/flow", {"text": text, "hidden": hidden}))
        for step in ("logits", "scores", "expand", "embeddings"):
            asked.append(("backward/values", {"text": text, "hidden": hidden, "step": step, "layer": 1}))
        for tensor in ("head.w", "tokens.table", "encoder.blocks.0.attention.qkv.w"):
            weight = {"text": text, "hidden": hidden, "tensor": tensor}
            asked.append(("backward/weights", weight))
            asked.append(("backward/check", {**weight, "row": 3, "column": 5}))
    sections = (("attention.md", "attention"), ("norms_and_activations.md", "softmax"))
    asked += [("backward/derivation", {"page": page, "anchor": anchor}) for page, anchor in sections]
    asked += [("training/status", {}), ("break/faults", {}), ("break/status", {})]
    return asked


def ask(port: int, action: str, request: dict[str, Any]) -> float:
    """Milliseconds until the whole answer has arrived."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/api/{action}", json.dumps(request), {"content-type": "application/json"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status == 429:  # a replay is faster than a person
        time.sleep(1)
        return ask(port, action, request)
    if response.status != 200:
        raise SystemExit(f"{action} {request}: {body.decode()}")
    return 1e3 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    begun = time.perf_counter()
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])  # type: ignore[index]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/")
        connection.getresponse().read()
        print(f"the page after {time.perf_counter() - begun:.2f} s", end="; ")
        ask(port, "mask/guess", {"text": SENTENCES[0], "hidden": [4]})
        print(f"the model's first answer after {time.perf_counter() - begun:.2f} s\n")
        times: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for text in SENTENCES:
                for action, request in session(text):
                    times.setdefault(action, []).append(ask(port, action, request))
    finally:
        process.terminate()
        process.wait()
    print(f"{'action':24} {'requests':>8} {'median':>8} {'95 %':>8} {'slowest':>8}   ms")
    for action, all_ms in times.items():
        ordered = sorted(all_ms)
        late = ordered[int(0.95 * (len(ordered) - 1))]
        print(f"{action:24} {len(ordered):8} {statistics.median(ordered):8.1f} {late:8.1f} {ordered[-1]:8.1f}")
    slow = [action for action, all_ms in times.items() if statistics.median(all_ms) > LIMIT]
    every = [one for all_ms in times.values() for one in all_ms]
    print(f"{'all':24} {len(every):8} {statistics.median(every):8.1f}")
    if slow:
        raise SystemExit(f"above {LIMIT:.0f} ms: {', '.join(slow)}")


if __name__ == "__main__":
    main()
