import shutil

import pytest
from threadpoolctl import threadpool_limits

from mini_bert.lab.bench import Bench

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

threadpool_limits(1)  # again: NumPy, which the bench has loaded, may not have been there the first time


@pytest.fixture(scope="session")
def bench():
    """The bundled model; no room may change it."""
    return Bench.load("mini-bert")


@pytest.fixture(scope="module")
def browser(request):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: python run.py test --browser")
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # None: Playwright's own
        except playwright.Error as error:
            give_up = pytest.exit if request.config.option.markexpr == "browser" else pytest.skip
            give_up(
                f"no Chromium could be started; install it (Debian: apt install chromium): {str(error).splitlines()[0]}"
            )
        yield opened
        opened.close()


@pytest.fixture
def new_page(browser, address):
    """A function that opens the lab at a link. At the end, the console of every page must be empty."""
    said, contexts = [], []

    def open_page(link="", width=1440, theme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"exception: {error}"))
        page.goto(address + link)
        page.wait_for_selector("main h1")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
