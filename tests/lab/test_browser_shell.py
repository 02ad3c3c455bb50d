"""The frame around the rooms in a real browser: changing rooms, links, errors, keys."""

import pytest

from tests.lab.test_browser import address, until  # noqa: F401  (a fixture)

pytestmark = pytest.mark.browser
LINKS = {
    "text": "#text?text=A+cat.&kind=bpe&step=2&pasted=low+lower+lowest+low",
    "vectors": "#vectors?text=A+cat+sat.&lines=The+dog+slept.%0AThe+war+ended.%0AShe+left.&of=sentences",
    "backward": "#backward?text=A+cat+sat.&hidden=2&h=3",
    "attention": "#attention?text=A+cat+sat.&special=no",
}


@pytest.fixture
def loose_page(browser, address):  # noqa: F811
    """A page whose console may have entries (the browser logs the status 400), but no exceptions."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    broken = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.open = lambda link: page.goto(address + link)
    yield page
    page.close()
    assert broken == []


# ---------------------------------------------------------------------- changing rooms


def test_going_there_and_back_quickly_shows_what_the_navigation_marks(new_page):
    """Also if the module of the room in between arrives late."""
    page = new_page("#mask")
    page.wait_for_selector(".card")
    page.route("**/rooms/vectors.js", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.evaluate("location.hash = '#vectors'; setTimeout(() => { location.hash = '#mask'; }, 50)")
    page.wait_for_timeout(900)
    assert page.inner_text("h1") == page.inner_text("main > h1") == "Mask lab"
    assert page.inner_text("nav [aria-current]") == "Mask" and page.locator(".mask .token").count()


def test_text_that_was_just_typed_comes_along(new_page):
    """Nobody has to wait for the pause after the last key; the room that was left changes nothing any more."""
    page = new_page("#mask")
    page.wait_for_selector(".card")
    page.fill("textarea", "A dog ran.")
    page.click("nav a[data-room=attention]")
    page.wait_for_selector(".attention .heads button")
    page.wait_for_timeout(400)
    assert page.input_value("textarea") == "A dog ran." and page.url.partition("#")[2].startswith(
        "attention?text=A+dog"
    )


def test_a_closed_room_leaves_the_address_alone(new_page):
    page = new_page("#mask")
    page.wait_for_selector(".card")
    page.evaluate("""() => {
        const field = document.querySelector("textarea");
        field.value = "A dog ran.";
        field.dispatchEvent(new Event("input"));
        location.hash = "#attention";
    }""")
    page.wait_for_selector(".heads button")
    page.wait_for_timeout(400)
    assert "#attention" in page.url and page.input_value("textarea").startswith("She opened")


def test_closed_rooms_leave_no_listeners(new_page):
    page = new_page("#mask")
    page.wait_for_selector(".card")
    page.evaluate("""() => {
        window.alive = 0;
        const add = window.addEventListener;
        window.addEventListener = (kind, act, options) => {
            if (kind === "resize") {
                window.alive += 1;
                options?.signal?.addEventListener("abort", () => { window.alive -= 1; });
            }
            add.call(window, kind, act, options);
        };
    }""")
    for room in ("stepper", "attention", "mask", "backward", "mask"):
        page.click(f"nav a[data-room={room}]")
        page.wait_for_selector(f".{room} textarea")
    assert page.evaluate("window.alive") == 1  # of the room that is open


@pytest.mark.parametrize("width", [390, 768, 1024, 1280, 1366, 1440, 2560])
def test_all_rooms_can_be_seen_in_the_navigation(new_page, width):
    """None is cut off, and none moves when something is being computed."""
    page = new_page("#family", width)
    page.wait_for_selector(".models .heat")
    edges = "[...document.querySelectorAll('nav a')].map((link) => Math.round(link.getBoundingClientRect().right))"
    before = page.evaluate(edges)
    nav = page.evaluate("document.querySelector('nav').getBoundingClientRect().right")
    assert len(before) == 9 and max(before) <= min(width, nav + 1)
    page.evaluate("document.querySelector('#busy').textContent = 'computing …'")
    assert page.evaluate(edges) == before
    tools = page.evaluate("document.querySelector('.tools').getBoundingClientRect().right")
    assert tools <= width and page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("room", LINKS)
def test_the_link_has_everything_that_was_typed_or_chosen(new_page, room):
    page = new_page(LINKS[room])
    page.wait_for_timeout(200)
    seen = {
        "text": "document.querySelector('.pasted')?.value === 'low lower lowest low'"
        " && document.querySelectorAll('.spelt li').length === 4",
        "vectors": "document.querySelectorAll('.dot').length === 4",
        "backward": "document.querySelector('[aria-label=\"Step size h\"]')?.value === '3'"
        " && document.querySelector('.verdict')",
        "attention": "document.querySelector('.heads svg')?.getAttribute('viewBox') === '0 0 4 4'",
    }[room]
    until(page, f"Boolean({seen})")
    wanted = {"text": "pasted=low+lower", "vectors": "lines=The+dog", "backward": "h=3", "attention": "special=no"}[
        room
    ]
    until(page, f"location.hash.includes({wanted!r})")


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("text", ["", "a " * 90, "   "])
def test_the_attention_room_bears_an_invalid_sentence(loose_page, text):
    """What was drawn before stays, and every control still works."""
    page = loose_page
    page.open("#attention")
    page.wait_for_selector(".saliency")
    page.fill("textarea", text)
    until(page, "document.querySelector('.room > .error').textContent !== ''")
    page.click(".heads button >> nth=4")
    page.click("text=Arcs")
    page.click("text=Show [CLS] and [SEP]")
    page.click("#theme")
    page.click(".token >> text=looked")
    page.wait_for_timeout(300)
    assert "Layer 1, head 0" in page.inner_text(".head h2") and page.locator(".arc").count()


def test_an_error_stays_until_its_own_question_is_answered(loose_page):
    """The answer to another question does not clear it."""
    page = loose_page
    page.route("**/api/mask/guess", lambda route: route.fulfill(status=400, body='{"error": "no guesses today"}'))
    page.open("#mask?text=A+cat+sat.&hidden=2")
    until(page, "document.querySelector('.room > .error')?.textContent === 'No guesses today.'")
    page.fill("textarea", "A dog sat.")
    page.wait_for_timeout(600)  # the words are coloured by how surprising they are: that has worked
    assert page.inner_text(".room > .error") == "No guesses today."
    page.unroute("**/api/mask/guess")
    page.fill("textarea", "A dog ran.")
    until(page, "document.querySelector('.room > .error').textContent === ''")


# ---------------------------------------------------------------------- keyboard and screen reader


def test_single_keys_can_be_switched_off(new_page):
    """WCAG 2.1.4: someone who dictates does not want single letters to do something."""
    page = new_page("#mask")
    page.wait_for_selector(".card")
    page.keyboard.press("2")
    page.wait_for_selector(".stepper .numbers td")
    page.click("footer label")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    page.focus(".numbers td[tabindex='0']")
    page.keyboard.press("n")
    page.wait_for_timeout(200)
    assert page.inner_text("h1") == "Stepper" and page.input_value(".bar select") == "2"
    page.reload()
    page.wait_for_selector(".numbers td")
    assert not page.is_checked("#keys")


@pytest.mark.parametrize(("room", "map_of", "status"), [
    ("attention", ".drawing .heat", ".head .told"), ("backward", ".operation .heat", ".operation .told"),
    ("backward", ".checking .heat", ".checking .told"), ("stepper", ".operation .heat", "#announcer"),
])  # fmt: skip
def test_numbers_of_a_heat_map_are_announced(new_page, room, map_of, status):
    """The sentence that the arrow keys change is a status, which screen readers say."""
    page = new_page(f"#{room}")
    page.wait_for_selector(map_of)
    page.wait_for_timeout(500)
    page.focus(map_of)
    said = set()
    for key in ("ArrowRight",) * 3:
        page.keyboard.press(key)
        said.add(page.inner_text(status) or page.text_content(status))
    assert len(said) == 3 and "" not in said
    assert page.get_attribute(status, "role") == "status"


def test_tags_of_the_probe_explain_themselves_by_keyboard(new_page):
    page = new_page("#vectors")
    page.wait_for_selector(".probe .tag")
    page.focus(".probe .tag[tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.is_visible("#tip") and "; then " in page.inner_text("#tip")


# ---------------------------------------------------------------------- what learners stumbled over


def test_a_gap_in_the_text_is_what_the_stepper_shows(new_page):
    page = new_page("#stepper?text=She+opened+the+[MASK].&step=probabilities")
    until(page, "document.querySelector('.why h3')?.textContent.startsWith('[MASK]')")
    place = "document.querySelector('.steps [aria-current]').getBoundingClientRect()"
    assert page.evaluate(f"{place}.top > 0 && {place}.bottom < innerHeight")


def test_backward_says_which_word_counts_as_right_for_a_gap(new_page):
    page = new_page("#backward?text=She+opened+the+[MASK].")
    until(page, "document.querySelector('.loss-line')?.textContent.includes('best guess counts as right')")
    assert page.get_attribute(".token.gap", "aria-disabled") == "true"


def test_hiding_special_tokens_hides_them_in_all_maps(new_page):
    page = new_page("#attention?text=A+cat+sat.")
    until(page, "document.querySelector('.heads svg')?.getAttribute('viewBox') === '0 0 6 6'")
    page.click("text=Show [CLS] and [SEP]")
    until(page, "document.querySelector('.heads svg').getAttribute('viewBox') === '0 0 4 4'")


def test_names_on_the_plane_do_not_cover_each_other(new_page):
    """And nearly all points have one."""
    page = new_page("#vectors")
    page.wait_for_selector(".dots .dot")
    page.wait_for_timeout(300)
    boxes = page.evaluate("""[...document.querySelectorAll(".dot:not(.crowded) text")]
        .map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.right, box.top, box.bottom])""")
    assert len(boxes) >= 0.85 * page.locator(".dots .dot").count()
    for place, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[place + 1 :]:
            assert right < other[0] + 2 or other[1] < left + 2 or bottom < other[2] + 6 or other[3] < top + 6
