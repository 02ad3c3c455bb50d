"""The lab in a real browser: every room is opened and used; anything in the console fails the test."""

import re
import subprocess
import sys
import time
from itertools import pairwise
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.browser
WIDTHS = (390, 768, 1440, 2560)
ROOMS = ("mask", "stepper", "attention", "backward", "text", "vectors", "family")
HOSTILE = '<img src=x onerror="document.title=1"> </script><script>document.title=2</script> {{7*7}} ${7*7}'


@pytest.fixture(scope="module")
def address(browser):
    """A lab that runs as a user would start it; none without a browser."""
    pytest.importorskip("uvicorn", reason="needs the extra `lab`")
    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    line = process.stdout.readline()
    yield re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
    process.terminate()
    process.communicate(timeout=20)


def until(page, expression, seconds=20):
    """Wait until an expression is true. (`wait_for_function` uses eval, which our security policy forbids.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still false after {seconds} seconds: {expression}"
        page.wait_for_timeout(25)


def words(page, selector):
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


# ---------------------------------------------------------------------- the first view


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        ("mask", ".bars li"),
        ("stepper", ".numbers td"),
        ("attention", ".heat image"),
        ("backward", ".flow .node"),
        ("training", ".starting button"),
        ("break", ".faults button"),
        ("text", ".pieces .token"),
        ("vectors", ".dots .dot"),
        ("family", ".models .bars li"),
    ],
)
def test_the_first_view_needs_no_model(browser, address, room, shown):
    """What was computed beforehand is drawn while no action of the server answers at all."""
    page = browser.new_page()
    page.route("**/api/**", lambda route: None)  # never answered
    page.goto(f"{address}#{room}")
    page.wait_for_selector(shown, timeout=10_000)
    page.close()


def test_the_first_view_of_the_mask_lab_asks_nothing(new_page, address):
    page = new_page("#nowhere")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if re.search("/api/(?!about)", request.url) else None)
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".bars li")
    page.wait_for_timeout(300)
    assert asked == [] and words(page, ".bars .name")[0] == "door"


# ---------------------------------------------------------------------- the mask lab


def test_words_are_hidden_guessed_and_put_back(new_page):
    page = new_page()
    page.wait_for_selector(".card")
    page.click(".token >> text=looked")
    until(page, "document.querySelectorAll('.card').length === 2")
    assert page.get_attribute(".token:has-text('looked')", "aria-pressed") == "true"
    assert "hidden=4%2C6" in page.url
    page.click("text=left only")
    until(page, "document.querySelectorAll('.token.faded').length === 4")  # into the room .
    page.click(".token >> text=looked")
    until(page, "document.querySelectorAll('.card').length === 1")
    page.click("text=both sides")
    page.click(".card button:has-text('window')")
    until(page, "document.querySelector('textarea').value.includes('the window and')")
    until(page, "!document.querySelector('.card')")


def test_typing_shows_new_words(new_page):
    page = new_page("#mask")
    page.fill("textarea", "The sun [MASK] in the sky.")
    until(page, "document.querySelectorAll('.token').length === 9")
    page.wait_for_selector(".card")
    assert "With the best guesses" in page.inner_text(".filled")


def test_an_error_is_one_line_and_goes_away(browser, address):
    page = browser.new_page()  # the browser itself logs the status 400, so the console is not empty here
    page.goto(address)
    page.wait_for_selector(".card")
    page.fill("textarea", "a " * 90)
    until(page, "document.querySelector('.room > .error').textContent.includes('at most 64 fit')")
    page.fill("textarea", "A dog.")
    until(page, "document.querySelector('.room > .error').textContent === ''")
    page.close()


@pytest.mark.parametrize("room", ROOMS)
def test_hostile_text_is_shown_as_text(new_page, room):
    """In the address, in the editor, in tokens, in saved pages: it stays text."""
    page = new_page(f"#{room}?text={quote(HOSTILE)}")
    until(page, "document.querySelector('textarea')?.value.includes('onerror')")
    page.wait_for_selector(".token, .numbers td")
    page.wait_for_timeout(400)
    assert page.locator("main img, main script").count() == 0
    assert page.title().endswith("Mini-BERT lab")


# ---------------------------------------------------------------------- the stepper


def test_every_operation_opens_and_explains_its_numbers(new_page):
    """Next leads through all 48 operations; each has numbers, and an explanation that names a line of source."""
    page = new_page("#stepper?step=tokens")
    page.wait_for_selector(".numbers td")
    count = page.locator(".bar select option").count()
    assert count == 48
    seen = []
    for number in range(count):
        until(page, f"document.querySelector('.bar select').value === '{number}'")
        if number in (0, 2, 3, 6, 7, 8, 10, 11, 12, 13, 45, 46, 47):
            until(page, "document.querySelector('.operation h2').textContent.includes("
                                   "document.querySelector('.bar select').selectedOptions[0].text)")  # fmt: skip
            page.wait_for_timeout(150)
            page.hover(".numbers tbody tr:nth-child(3) td:nth-child(4)")
            until(page, "document.querySelector('.why h3 .note')?.textContent.startsWith('opened')")
            page.wait_for_selector(".why .source")
            seen.append(page.inner_text(".why .source .note"))
        if number < count - 1:
            page.click("text=Next →")
    assert len(seen) == 13 and all(re.fullmatch(r"mini_bert/[\w/]+\.py, line \d+", one) for one in seen)
    assert page.is_disabled("text=Next →")


def test_the_explained_sum_is_the_number_in_the_cell(new_page):
    page = new_page("#stepper?step=query&layer=1&head=2")
    page.wait_for_selector(".numbers td")
    page.wait_for_selector(".why .terms li")
    page.hover(".numbers tbody tr:nth-child(5) td:nth-child(4)")
    until(page, "document.querySelector('.why h3 .note').textContent.startsWith('door, column 2')")
    page.wait_for_selector(".why .total b")
    page.wait_for_timeout(200)

    def number(text):
        return float(text.replace("−", "-").replace("=", ""))

    cell = number(page.inner_text(".numbers tbody tr:nth-child(5) td:nth-child(4)"))
    terms = [number(text) for text in words(page, ".why .terms .share")]
    assert sum(terms) == pytest.approx(cell, abs=0.02) and len(terms) == 9
    assert number(page.inner_text(".why .total b")) == pytest.approx(cell, abs=0.01)


def test_the_stepper_is_usable_by_keyboard(new_page):
    page = new_page("#stepper?step=attention&layer=0&head=1&column=0")
    page.wait_for_selector(".why .terms")
    page.focus(".numbers td[tabindex='0']")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    until(page, "document.activeElement.dataset.row === '2' && document.activeElement.dataset.column === '2'")
    until(page, "document.querySelector('.why h3 .note').textContent.startsWith('opened, opened')")
    page.keyboard.press("n")
    until(page, "document.querySelector('.operation h2').textContent === 'Block 0: Context'")
    assert "step=context" in page.url and "layer=0" in page.url


# ---------------------------------------------------------------------- the attention room


def test_heads_queries_and_switches(new_page):
    page = new_page("#attention?layer=0&head=1")
    page.wait_for_selector(".heads button")
    assert page.locator(".heads button").count() == 12
    assert page.inner_text(".head h2") == "Layer 0, head 1: mostly next"
    page.click(".heads button >> nth=0")
    assert page.inner_text(".head h2") == "Layer 0, head 0: mostly previous"
    page.wait_for_selector(".query tbody tr")
    page.click(".token:has-text('door')")
    until(
        page,
        "document.querySelector('.query').previousElementSibling.previousElementSibling.textContent.includes('door')",
    )
    until(page, "document.querySelector('.saliency')?.textContent.includes('[MASK]')")
    page.click("text=Arcs")
    assert page.locator(".arc").count() >= 1
    page.click("text=Show [CLS] and [SEP]")
    assert page.locator(".arcs .word").count() == 10
    page.click("text=Switch head 0.0 off")
    page.wait_for_selector(".pair")
    assert page.locator(".heads .off").count() == 1 and "off=0" in page.url
    assert "KL divergence" in page.inner_text(".two")
    page.click("text=All on")
    until(page, "!document.querySelector('.pair')")


def test_heads_by_keyboard(new_page):
    page = new_page("#attention")
    page.wait_for_selector(".heads button")
    page.focus(".heads button[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.head h2').textContent.startsWith('Layer 1, head 1')")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("1.1")


def test_a_special_token_as_query_has_no_guess(new_page):
    page = new_page("#attention")
    page.wait_for_selector(".saliency")
    page.click(".token >> nth=0")
    until(page, "document.querySelector('.two').textContent.includes('[CLS] is not a word')")


# ---------------------------------------------------------------------- backward mode


def test_the_gradient_is_followed_and_a_weight_checked(new_page):
    page = new_page("#backward")
    page.wait_for_selector(".flow .node")
    page.wait_for_selector(".checked .verdict.good")
    assert page.locator(".flow .node").count() == 45 and "p(door) = 43\u00a0%" in page.inner_text(".loss-line")
    for wanted in ("Final norm", "Block 2: Output of the block", "Block 2: Residual connection"):
        page.click("text=Further back")
        until(page, f"document.querySelector('.operation h2').textContent === '{wanted}'")
    page.click(".flow .node[data-step='scores'][data-layer='0']")
    until(page, "document.querySelector('.operation h2').textContent === 'Block 0: Scores'")
    assert "step=scores" in page.url and "layer=0" in page.url
    page.click("text=Open the derivation: Softmax")
    until(page, "document.querySelector('.derivation h3')?.textContent === 'Softmax'")
    assert page.inner_text(".derivation .formulas >> nth=0") == "p_i = exp(x_i) / Σ_j exp(x_j)"
    page.select_option(".derivation select", label="Attention")
    until(page, "document.querySelector('.derivation h3').textContent === 'Attention'")
    page.click(".derivation .link >> nth=0")  # to another section
    until(page, "document.querySelector('.derivation h3').textContent !== 'Attention'")
    page.select_option(".checking select >> nth=0", "encoder.blocks.1.feed_forward.expand.w")
    until(page, "document.querySelector('.checked th').textContent.includes('blocks.1.feed_forward.expand.w')")
    page.wait_for_timeout(300)
    assert "agree to" in page.inner_text(".verdict")
    before = page.inner_text(".checked")
    page.locator(".checking .heat image").click(position={"x": 5, "y": 5}, force=True)  # any weight
    page.wait_for_timeout(300)
    assert page.inner_text(".checked") != before
    page.fill("input[aria-label=Row]", "3")
    page.press("input[aria-label=Row]", "Tab")
    until(page, "document.querySelector('.checked th').textContent.includes('[3, ')")
    assert "row=3" in page.url


def test_backward_by_keyboard_and_with_other_words(new_page):
    page = new_page("#backward?step=embeddings")
    until(page, "document.querySelector('.operation h2')?.textContent === 'Embeddings'")
    page.focus(".flow .node[tabindex='0']")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.operation h2').textContent === 'Block 0: Key'")
    page.click(".token >> text=looked")
    until(page, "document.querySelector('.loss-line').textContent.includes('p(looked)')")
    assert "hidden=4%2C6" in page.url


# ---------------------------------------------------------------------- the page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_cut_off(new_page, room, width, theme):
    """No room is wider than the window, in light and in dark, and no text is the colour of its background."""
    page = new_page(
        f"#{room}?text={quote('The unaffable zebras of Madagascar sat on the mat because they were tired.')}",
        width,
        theme,
    )
    page.wait_for_selector(".token, .numbers td")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 28)"}[theme]


def test_the_theme_is_kept(new_page):
    page = new_page()
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    page.wait_for_selector(".card")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"


def test_a_link_survives_a_reload_and_rooms_share_the_sentence(new_page):
    page = new_page("#stepper?text=A+cat+sat.&layer=1&step=scores&head=2")
    page.wait_for_selector(".numbers td")
    page.reload()
    page.wait_for_selector(".numbers td")
    assert page.inner_text(".operation h2") == "Block 1: Scores"
    page.click("nav a:has-text('Attention')")
    page.wait_for_selector(".heads button")
    assert page.input_value("textarea") == "A cat sat."
    page.go_back()
    page.wait_for_selector(".numbers td")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    page.wait_for_selector(".mask .token")
    assert page.input_value("textarea") == "A cat sat."


@pytest.mark.parametrize("link", ["#stepper?step=soup&layer=77&head=9&row=999&column=99999", "#%ff",
                                  "#attention?layer=x&off=1,zz,900&position=-4",
                                  "#backward?step=soup&layer=9&tensor=x&row=77&column=zz&hidden=0",
                                  "#mask?hidden=a,,1&context=up", "#?", "#mask?text="])  # fmt: skip
def test_a_broken_link_opens_something(browser, address, link):
    page = browser.new_page()
    broken = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(address + link)
    page.wait_for_selector("main textarea")
    page.wait_for_timeout(300)
    page.close()
    assert broken == []


def test_two_tabs_work_side_by_side(new_page):
    one, other = new_page("#mask?text=A+cat+sat."), new_page("#mask?text=The+old+dog+barked.")
    one.click(".token:has-text('cat')")
    other.click(".token:has-text('dog')")
    one.wait_for_selector(".card")
    other.wait_for_selector(".card")
    assert "cat" in one.inner_text(".card h3") and "dog" in other.inner_text(".card h3")


@pytest.mark.parametrize("room", ROOMS)
def test_every_view_can_be_saved(new_page, browser, room, tmp_path):
    """As a page without scripts that opens from disk, as an SVG that a browser draws, and as a PNG."""
    page = new_page(f"#{room}?text={quote('A <b>bold</b> cat sat.')}")
    page.wait_for_selector(".token, .numbers td")
    page.wait_for_timeout(500)
    for kind in ("html", "svg", "png"):
        page.click("summary:has-text('Save')")
        with page.expect_download() as download:
            page.click(f"button:has-text('(.{kind})')")
        path = tmp_path / f"saved.{kind}"
        download.value.save_as(path)
        assert download.value.suggested_filename == f"mini-bert-{room}.{kind}"
        if kind == "png":
            assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000
            continue
        saved = browser.new_page()
        said = []
        saved.on("console", lambda message, said=said: said.append(message.text))
        saved.goto(path.as_uri())
        text = saved.inner_text("body") if kind == "html" else saved.evaluate("document.documentElement.textContent")
        assert "A <b>bold</b> cat sat." in text and saved.locator("b:has-text('bold')").count() == 0
        assert saved.locator("script").count() == 0 and said == []
        saved.close()


NAMELESS = """() => [...document.querySelectorAll(
    'button, a, input, textarea, select, [role=group], [role=grid], nav, aside')]
    .filter((node) => node.checkVisibility())
    .filter((node) => !node.textContent.trim() && !node.ariaLabel && !node.title && !node.labels?.length)
    .map((node) => node.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("room", ROOMS)
def test_everything_has_a_name_for_a_screen_reader(new_page, room):
    page = new_page(f"#{room}")
    page.wait_for_selector(".token, .numbers td")
    page.wait_for_timeout(400)
    assert page.evaluate(NAMELESS) == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))


@pytest.mark.parametrize("room", ROOMS)
def test_the_keyboard_reaches_the_room(new_page, room):
    """Tab leads from the top through the navigation into the sentence and to the room's own controls."""
    page = new_page(f"#{room}")
    page.wait_for_selector(".token, .numbers td")
    page.wait_for_timeout(300)
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(({ tagName, className }) => `${tagName} ${className.baseVal ?? className}`)(document.activeElement)"
            )
        )
    for wanted in ("A", "TEXTAREA", {"stepper": "TD", "backward": "g node"}.get(room, "BUTTON token")):
        assert any(one.startswith(wanted) for one in reached), (wanted, reached)
