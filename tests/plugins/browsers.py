"""A browser for tests of the pages of plugins, and the contrast of the texts that a page shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# For each text that is shown: the text, and the contrast of its colour with what is behind it, as WCAG 2 defines it.
# Behind a text of the picture is the last rectangle that contains its middle.
CONTRASTS = """() => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const isOpaque = color => channels(color).length === 3 || channels(color)[3] === 1;
  const luminance = color => {
    const parts = channels(color).slice(0, 3).map(part => part / 255);
    const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    const box = element.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    const svg = element.closest("svg");
    if (svg) {
      const covers = [...svg.querySelectorAll("rect")].filter(rect => {
        const area = rect.getBoundingClientRect();
        return area.left <= x && x <= area.right && area.top <= y && y <= area.bottom;
      });
      if (covers.length) return getComputedStyle(covers.at(-1)).fill;
    }
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (isOpaque(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const isText = node => node.nodeType === 3 && node.data.trim();
  const shows = element => element.value || [...element.childNodes].some(isText);
  return [...document.body.querySelectorAll("*")]
    .filter(element => shows(element) && element.getBoundingClientRect().width > 0)
    .filter(element => !["STYLE", "title", "style"].includes(element.tagName))
    .map(element => {
      const style = getComputedStyle(element), color = element.closest("svg") ? style.fill : style.color;
      const [light, dark] = [luminance(color), luminance(behind(element))].sort((one, other) => other - one);
      return [element.textContent.trim() || element.value, (light + 0.05) / (dark + 0.05)];
    });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; one test module at a time, as playwright runs an event loop on this thread meanwhile."""
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with api.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])  # its sandbox refuses root
        yield browser
        browser.close()
