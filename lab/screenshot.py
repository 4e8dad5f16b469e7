"""The screenshot of README: a report, from its top to the end of its first chart.

    tokengraft adapt SmolLM2 ... --out new  # the command of README
    python lab/screenshot.py new/report.html docs/report.png

Needs chromium and the packages `playwright` and `pillow`.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, COLOURS = 1200, 256


def main(report: str, out: str) -> None:
    """Writes the picture, with few colours: less than half of the bytes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        viewport = {"width": WIDTH, "height": 900}
        page = browser.new_context(offline=True, color_scheme="light", viewport=viewport).new_page()
        page.goto(Path(report).resolve().as_uri())
        chart = page.locator("#curve svg:visible").last.bounding_box()
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": chart["y"] + chart["height"]}
        picture = page.screenshot(full_page=True, clip=clip)
        browser.close()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(out, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
