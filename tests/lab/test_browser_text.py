"""The text room, the vectors room and the family room in a real browser."""

import pytest

from tests.lab.test_browser import address, browser, new_page, until, words  # noqa: F401  (fixtures)

pytestmark = pytest.mark.browser


def test_pieces_and_their_making(new_page):  # noqa: F811
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


def test_a_vocabulary_is_learnt_with_the_slider(new_page):  # noqa: F811
    page = new_page("#text?step=0")
    page.wait_for_selector(".spelt li")
    page.fill("textarea.pasted", "low lower lowest low slow slower")
    until(page, "document.querySelector('.learning .bars')?.textContent.includes('##l + ##o') "
                "|| document.querySelector('.learning .bars')?.textContent.includes('##o + ##w')")  # fmt: skip
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


def test_a_probe_and_neighbours(new_page):  # noqa: F811
    page = new_page("#vectors")
    page.wait_for_selector(".probe td")
    assert words(page, ".probe tbody th") == ["layer 2", "layer 1", "layer 0", "embeddings"]
    assert page.locator(".probe td.other").count() == 1  # judge, a verb, is a noun without context
    page.fill("textarea", "Old judges judge.")
    until(page, "document.querySelectorAll('.probe thead th').length === 5")
    page.click(".token:has-text('old')")
    until(page, "document.querySelector('.panel h3').textContent.includes('old')")
    assert page.locator(".panel .bars li").count() == 8 and "position=1" in page.url


def test_points_on_a_plane(new_page):  # noqa: F811
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
    page.select_option("select", "0")
    until(page, "document.querySelector('.dot.chosen') && location.hash.includes('layer=0')")
    page.fill("textarea.pasted", "The dog ran.")
    until(page, "document.querySelectorAll('.dot').length === 8")
