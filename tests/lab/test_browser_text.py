"""The text room, the vectors room and the family room in a real browser."""

import pytest

from tests.lab.test_browser import address, until, words  # noqa: F401  (a fixture)

pytestmark = pytest.mark.browser


def test_pieces_and_their_making(new_page):
    page = new_page("#text?text=The+zebras+ran.&at=5")
    until(page, "document.querySelectorAll('.made').length === 3")
    assert page.inner_text(".panel h2") == "How “zebras” is spelt"
    cards = words(page, ".card h3 .note")
    assert cards == ["8k: 6 pieces", "bpe-8k: 7 pieces", "unigram-8k: 6 pieces"]
    assert words(page, ".card:first-child .token")[:3] == ["[CLS] 2 added", "the 490 0–3", "ze 6692 4–6"]
    assert "zebra, zebr, zeb" in page.inner_text(".made li:first-child .note >> nth=0")
    page.click(".card:nth-child(2) .token:has-text('ran')")
    until(page, "document.querySelector('.panel h2').textContent.includes('ran')")
    assert "at=11" in page.url
    page.fill("textarea", "A naïve 𝔘 [MASK]")
    until(page, "document.querySelector('.card').textContent.includes('[UNK]')")


def test_a_vocabulary_is_learnt_with_the_slider(new_page):
    page = new_page("#text?step=0")
    page.wait_for_selector(".spelt li")
    page.fill("textarea.pasted", "low lower lowest low slow slower")
    until(page, "document.querySelectorAll('.spelt li').length === 5")  # the words of the new text
    best = words(page, ".bars .marked .name")[0]
    page.click("[aria-label='One step on']")
    until(page, "document.querySelector('.slider input').value === '1'")
    until(page, "document.querySelector('.learning .chip.new') !== null")
    merged = words(page, ".learning > .learning > p:nth-child(2) .chip")
    assert f"{merged[0]} + {merged[1]}" == best
    page.focus(".slider input")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.learning .note').textContent.startsWith('Step 2 of')")
    assert "step=2" in page.url
    for kind, said in (("BPE", "bytes"), ("Unigram", "far too many pieces")):
        page.click(f".segmented button:has-text('{kind}')")
        until(page, f"document.querySelector('.learning .learning').textContent.includes('{said}')")
    page.keyboard.press("Tab")
    page.click("[aria-label='One step on']")
    until(page, "document.querySelector('.learning .learning').textContent.includes('expectation-maximisation')")


# ---------------------------------------------------------------------- vectors and probes


def test_a_probe_and_neighbours(new_page):
    page = new_page("#vectors")
    page.wait_for_selector(".probe td")
    assert words(page, ".probe tbody th") == ["layer 2", "layer 1", "layer 0", "embeddings"]
    assert page.locator(".probe td.other").count() == 1  # judge, a verb, is a noun without context
    page.fill("textarea", "Old judges judge.")
    until(page, "document.querySelectorAll('.probe thead th').length === 5")
    page.click(".token:has-text('old')")
    until(page, "document.querySelector('.panel h3').textContent.includes('old')")
    assert page.locator(".panel .bars li").count() == 8 and "position=1" in page.url


def test_points_on_a_plane(new_page):
    page = new_page("#vectors?text=A+cat+sat.")
    page.wait_for_selector(".dot.chosen")
    assert page.locator(".dot").count() == 13
    page.click(".planes .bars button >> nth=0")
    until(page, "!document.querySelector('.dot.own').classList.contains('chosen')")
    page.focus(".dot[tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.dot.chosen').dataset.number === '1'")
    assert "The dog slept" in page.inner_text(".planes h3")
    page.click(".segmented button:has-text('Words')")
    until(page, "document.querySelectorAll('.dot').length > 60")
    page.select_option("[aria-label='Layer']", "0")
    until(page, "document.querySelector('.dot.chosen') && location.hash.includes('layer=0')")
    page.fill("textarea.pasted", "The dog ran.")
    until(page, "document.querySelectorAll('.dot').length === 8")


# ---------------------------------------------------------------------- models


def test_two_models_side_by_side(new_page):
    page = new_page("#family")
    until(page, "document.querySelectorAll('.models .heat').length === 2")
    until(page, "document.querySelectorAll('.models .bars').length === 2")
    assert words(page, ".models .own") == ["door", "door"]
    assert page.input_value(".models h2 select") == "mini-bert, untrained"
    page.click(".models article:nth-child(2) .token:has-text('looked')")
    until(page, "[...document.querySelectorAll('.models .own')].every((node) => node.textContent === 'looked')")
    page.select_option("[aria-label='Layer of the left model']", "2")
    until(page, "document.querySelector(\"[aria-label='Layer of the right model']\").value === '2'")
    until(page, "document.querySelectorAll('.models .heat')[1].getAttribute('aria-label').includes('layer 2')")
    assert "layer=2" in page.url and "other=mini-bert" in page.url
    page.select_option(".models h2 select", "mini-bert")
    until(page, "document.querySelectorAll('.models .bars .name')[0].textContent === "
                "document.querySelectorAll('.models .bars')[1].querySelector('.name').textContent")  # fmt: skip
    page.fill("textarea", "The zebras ran.")
    until(page, "document.querySelectorAll('.models .token').length === 16")


def test_a_chosen_model_is_asked_in_every_room(new_page):
    """The model is in the address, in the links of other rooms, and survives a reload."""
    page = new_page("#mask")
    page.wait_for_selector(".card .bars")
    assert words(page, ".card .name")[0] == "door"
    until(page, "!document.querySelector('#model').hidden")
    page.select_option("#model", "mini-bert, untrained")
    until(page, "document.querySelector('.card .name') && document.querySelector('.card .name').textContent !== 'door'")
    assert "model=mini-bert" in page.url
    page.click("nav a:has-text('Vectors')")
    until(page, "document.querySelector('.probe')?.textContent.includes('trained on Mini-BERT')")
    page.reload()
    until(page, "document.querySelector('.probe')?.textContent.includes('trained on Mini-BERT')")
    until(page, "document.querySelector('#model').value === 'mini-bert, untrained'")
    page.select_option("#model", "mini-bert")
    page.wait_for_selector(".probe td")
    assert "model=" not in page.url


def test_an_unknown_model_is_one_line(browser, address):  # noqa: F811
    page = browser.new_page()  # the browser itself logs the status 404, so the console is not empty here
    page.goto(f"{address}#mask?model=..%2F..%2Fetc")
    until(page, "document.querySelector('.room > .error')?.textContent.includes('There is no model')")
    page.close()
