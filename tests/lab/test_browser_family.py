"""Other architectures in a real browser: every room with each of them; anything in the console fails the test."""

import re
import subprocess
import sys

import pytest

from tests.lab.test_browser import ROOMS, until, words
from tests.lab.test_family import preset_bench

pytestmark = pytest.mark.browser
NAMES = ("gpt2", "electra", "modernbert", "deberta-v2", "transformer-xl", "xlnet")
SHOWN = {
    "mask": ".token",
    "stepper": ".why h3",
    "attention": ".query tbody tr",
    "backward": ".flow .node",
    "text": ".pieces .token",
    "vectors": ".dots .dot",
    "family": ".models .heat",
}


@pytest.fixture(scope="module")
def address(browser, tmp_path_factory):
    """A lab that was started with a folder of each architecture, small and random."""
    pytest.importorskip("uvicorn", reason="needs the extra `lab`")
    home = tmp_path_factory.mktemp("models")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser", "--model", "mini-bert"]
    for name in NAMES:
        bench = preset_bench(name)
        (home / name).mkdir()
        bench.model.save_pretrained(home / name)
        bench.tokenizer.save(home / name)
        command += ["--model", str(home / name)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
    process.terminate()
    process.communicate(timeout=20)


def choose(page, name):
    until(page, "document.querySelector('#model').options.length > 6")
    page.select_option("#model", page.evaluate(f"[...document.querySelector('#model').options].map((one) => one.value)"
                                               f".find((one) => one.endsWith('/{name}'))"))  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_room_shows_something(new_page, name):
    """Each room draws its result, or says in a sentence what this model cannot do."""
    page = new_page("#mask")
    choose(page, name)
    for room in ROOMS:
        page.click(f"nav a[data-room={room}]")
        if room == "backward" and name == "electra":
            until(page, "document.querySelector('.backward > .error')?.textContent.includes('no output head')")
            continue
        page.wait_for_selector(f".{room} {SHOWN[room]}")
        page.wait_for_timeout(200)
        assert page.inner_text(".room > .error") == ""


def test_a_forward_model_guesses_from_the_left(new_page):
    page = new_page("#mask")
    choose(page, "gpt2")
    until(page, "document.querySelector('.filled')?.textContent.includes('reads forward')")
    assert page.locator(".token.faded").count() == 6  # what follows the gap
    assert page.locator("text=both sides").is_hidden() and words(page, ".card h3")[0].startswith("The gap")


def test_a_model_that_guesses_no_words_leads_to_other_rooms(new_page):
    page = new_page("#mask")
    choose(page, "electra")
    until(page, "document.querySelector('.filled')?.textContent.includes('no output head that guesses words')")
    page.click(".filled a:has-text('Attention')")
    until(page, "document.querySelector('.two')?.textContent.includes('was not replaced')")
    until(page, "document.querySelector('.two').textContent.includes('no output head that guesses words')")
