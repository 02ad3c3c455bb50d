"""Live training and Break it in a real browser, in a working folder of their own; the console must stay empty."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.lab.test_browser import HOSTILE, NAMELESS, until
from tests.lab.test_family import preset_bench

pytestmark = pytest.mark.browser
ROOMS = ("training", "break")
TEXT = "the cat sat on the mat . the dog lay on the rug . a bird sang in the tree near the old house .\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of the lab: a text, a paused run of another name, and a name that is markup."""
    home = tmp_path_factory.mktemp("lab")
    (home / "mine.txt").write_text(TEXT * 400, encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def address(browser, folder):
    pytest.importorskip("uvicorn", reason="needs the extra `lab`")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    line = process.stdout.readline()
    yield re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
    process.terminate()
    process.communicate(timeout=60)


def test_a_run_is_started_watched_paused_resumed_and_looked_back_at(new_page, folder):
    page = new_page("#training")
    page.click("text=A file")
    page.fill("input[type=text]", "mine.txt")
    page.click("text=Start a run")
    until(page, "document.querySelector('.status-line')?.textContent.includes('run-1')")
    until(page, "document.querySelector('.status-line')?.textContent.includes('is running')", 120)
    other = new_page("#training")  # a second tab sees the same run
    until(other, "document.querySelector('.status-line')?.textContent.includes('run-1')")
    assert other.is_disabled("text=Start a run")
    page.click("text=Pause")
    until(page, "document.querySelector('.status-line')?.textContent.includes('paused')", 60)
    until(page, "document.querySelectorAll('.card .bars li').length === 25", 30)
    assert page.locator(".heads figure").count() == 12 and page.locator(".finding").count() >= 1
    assert (folder / "runs" / "run-1" / "config.json").is_file()
    assert list((folder / "runs" / "run-1" / "checkpoints").iterdir())
    page.reload()
    until(page, "document.querySelector('.status-line')?.textContent.includes('paused')")
    first = page.inner_text(".scrub .at")
    page.click("button:has-text('Resume')")
    until(page, "document.querySelector('.status-line')?.textContent.includes('is running')", 60)
    page.wait_for_timeout(2500)
    page.click("text=Pause")
    until(page, "document.querySelector('.status-line')?.textContent.includes('paused')", 60)
    until(page, f"document.querySelector('.scrub .at').textContent !== '{first}'", 30)
    until(page, "Number(document.querySelector('.scrub input').max) > 0", 30)
    page.focus(".scrub input")
    page.keyboard.press("Home")
    until(page, "!document.querySelector('.scrub .at').textContent.includes('newest')")
    assert "step=" in page.url and "run=run-1" in page.url


def test_a_model_is_broken_after_a_prediction(new_page):
    page = new_page("#break?fault=wrong_sign")
    page.wait_for_selector(".faults button")
    assert page.is_disabled("text=Run both")  # predict first
    page.click("text=It learns just as well")
    page.click("text=Run both")
    until(page, "document.querySelector('.status-line')?.textContent.includes('Running')", 30)
    until(page, "document.querySelector('.happened')", 90)
    assert page.locator(".chart .line").count() == 2
    text = page.inner_text(".broken-result")
    assert "Gradients right" in text and "Gradients wrong: the largest relative error is 2.00" in text
    assert "As you predicted" in text or "You predicted" in text
    page.click("text=No layer norm")
    until(page, "document.querySelector('.broken-result').hidden")
    assert "fault=no_norm" in page.url and page.is_disabled("text=Run both")
    page.focus(".faults button[tabindex='0']")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.changed').textContent.includes('LN(Attention(x))')")


def test_a_wrong_file_is_one_sentence(browser, address):
    page = browser.new_page()  # the browser itself logs the status 400
    page.goto(address + "#training")
    page.click("text=A file")
    for path, said in (("../x.txt", "There is no file"), (HOSTILE, "There is no file"), ("", "not a text file")):
        page.fill("input[type=text]", path)
        page.click("text=Start a run")
        until(page, f"document.querySelector('.room > .error')?.textContent.includes('{said}')")
    assert page.locator("main img, main script").count() == 0
    page.close()


@pytest.mark.parametrize("room", ROOMS)
def test_a_view_can_be_saved(new_page, room, tmp_path):
    page = new_page(f"#{room}")
    page.wait_for_timeout(1000)
    for kind in ("html", "svg", "png"):
        page.click("summary:has-text('Save')")
        with page.expect_download() as download:
            page.click(f"button:has-text('(.{kind})')")
        download.value.save_as(tmp_path / f"saved.{kind}")
        assert download.value.suggested_filename == f"mini-bert-{room}.{kind}"
    saved = (tmp_path / "saved.html").read_text(encoding="utf-8")
    assert (
        "<script" not in saved and page.inner_text("h1") in saved and (tmp_path / "saved.png").stat().st_size > 20_000
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_hostile_link_is_harmless(browser, address, room):
    page = browser.new_page()
    broken = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(f"{address}#{room}?run={quote(HOSTILE)}&step=99&fault={quote(HOSTILE)}")
    page.wait_for_selector("main h1")
    page.wait_for_timeout(500)
    assert broken == [] and page.locator("main img, main script").count() == 0
    assert page.title().endswith("Mini-BERT lab")
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440, 2560])
@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_cut_off_and_everything_has_a_name(new_page, room, width, theme):
    page = new_page(f"#{room}", width, theme)
    page.wait_for_timeout(900)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(NAMELESS) == []


def test_a_run_ends_with_the_lab(browser, tmp_path):
    """The lab is ended while a run goes on: it saves a checkpoint first."""
    (tmp_path / "mine.txt").write_text(TEXT * 400, encoding="utf-8")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path) as lab:
        page = browser.new_page()
        page.goto(re.search(r"http://127\.0\.0\.1:\d+/", lab.stdout.readline())[0] + "#training")
        page.click("text=A file")
        page.fill("input[type=text]", "mine.txt")
        page.click("text=Start a run")
        until(page, "document.querySelector('.status-line')?.textContent.includes('is running')", 120)
        page.close()
        lab.terminate()
        lab.wait(60)
    metrics = Path(tmp_path / "runs" / "run-1" / "metrics.jsonl").read_text(encoding="utf-8")
    assert '"reason": "interrupted"' in metrics and list((tmp_path / "runs" / "run-1" / "checkpoints").iterdir())


def write_run(folder, name, records):
    run = folder / "runs" / name
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")


def test_what_was_not_measured_is_not_shown(new_page, folder):
    """Before the first record there are no axes, before the first checkpoint nothing is said about heads."""
    write_run(folder, "early", [{"kind": "start", "step": 0, "unigram_loss": 6.5}])
    page = new_page("#training?run=early")
    until(page, "document.querySelector('.specialised')?.textContent.includes('first checkpoint')")
    assert page.locator(".chart").count() == 0 and "after 10 steps" in page.inner_text(".watching")


def test_the_name_of_the_level_is_not_cut_off(new_page, folder):
    """Also if the unigram loss is above all losses."""
    losses = [
        {"kind": "train", "step": step, "loss": 6 - step / 100, "lr": 1e-3, "seconds": 1} for step in (10, 20, 30)
    ]
    write_run(folder, "level", [{"kind": "start", "step": 0, "unigram_loss": 6.5}, *losses])
    page = new_page("#training?run=level")
    page.wait_for_selector(".chart .of-level")
    tops = page.evaluate(
        "['.of-level', '.chart'].map((name) => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert tops[0] >= tops[1]


def test_the_gap_of_a_run_of_roberta_is_found(new_page, folder):
    """Its mask token is not [MASK]; what it guesses can be put into the sentence without marks."""
    bench = preset_bench("roberta")
    checkpoint = folder / "runs" / "roberta" / "checkpoints" / "step-00000010"
    write_run(folder, "roberta", [{"kind": "start", "step": 0}, {"kind": "train", "step": 10, "loss": 8.0, "lr": 1e-3}])
    checkpoint.mkdir(parents=True)
    bench.model.save_pretrained(checkpoint)
    bench.tokenizer.save(checkpoint)
    page = new_page("#training?run=roberta")
    until(page, "document.querySelectorAll('.card .bars li').length === 25")
    assert page.inner_text(".room > .error") == ""
    page.goto(page.url.partition("#")[0] + "#mask?model=runs/roberta&text=The+cat+sat.&hidden=2")
    page.wait_for_selector(".card .bars button")
    page.locator(".card .bars button", has_text="▁").first.click()
    until(page, "!document.querySelector('textarea').value.includes('cat')")
    assert "▁" not in page.input_value("textarea")
