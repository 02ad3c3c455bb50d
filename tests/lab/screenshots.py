"""Screenshots of every room, to be looked at: four widths, light and dark.

python -m tests.lab.screenshots FOLDER          a lab of its own; FOLDER/mask-390-dark.png, …
python -m tests.lab.screenshots --picture       docs/pictures/lab.png, for the README
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOMS = {
    "mask": "#mask?hidden=4,9",
    "stepper": "#stepper?step=query&layer=0&head=1&row=4&column=5",
    "attention": "#attention?layer=0&head=2&position=4&off=0",
    "backward": "#backward?step=scores&layer=0&head=1",
    "training": "#training",
    "break": "#break?fault=no_residual",
    "family": "#family",
    "vectors": "#vectors?of=words",
    "text": "#text?at=14&kind=bpe&step=20",
}
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "lab.png"


def main(words: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "mini_bert", "lab", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://\S+/", process.stdout.readline())[0]
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            if words == ["--picture"]:
                shoot(browser, address + ROOMS["stepper"], 1320, "light", PICTURE, False)
            else:
                for width in (390, 768, 1440, 2560):
                    for theme in ("light", "dark"):
                        for room, link in ROOMS.items():
                            shoot(browser, address + link, width, theme, Path(words[0]) / f"{room}-{width}-{theme}.png")
            browser.close()
    finally:
        process.terminate()
        process.wait()


def shoot(browser, address: str, width: int, theme: str, path: Path, whole: bool = True) -> None:
    page = browser.new_page(viewport={"width": width, "height": 1200}, color_scheme=theme)
    page.goto(address)
    page.wait_for_timeout(1500)  # until the last answer is drawn
    page.screenshot(path=path, full_page=whole)
    page.close()
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:] or ["."])
