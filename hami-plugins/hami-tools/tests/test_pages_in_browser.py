"""The pages of `hami graph` and `hami bench` in headless Chromium: what they load, how they look, and keyboards."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import CONTRASTS
from browsers import browser as browser  # a fixture
from hami.cli import main

GRAPH = """
[load]
backend = "S[Identity,Identity]"
max = 8
next = ["left", "right"]
[left]
backend = "Identity"
next = "join"
[right]
backend = "Identity"
next = "join"
[join]
backend = "Identity"
map = "left[result:data],right[result:other]"
"""
OTHER = GRAPH.replace("max = 8", "max = 4").replace("other", "more")
NODES = ["#node-0", "#node-1", "#node-2", "#node-3"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of commands, by their kind."""
    folder = tmp_path_factory.mktemp("pages")
    for name, text in (("graph.toml", GRAPH), ("other.toml", OTHER)):
        (folder / name).write_text(text, "utf-8")
    source, other = str(folder / "graph.toml"), str(folder / "other.toml")
    files = {name: folder / f"{name}.html" for name in ("graph", "diff", "bench")}
    assert main(["graph", source, "--format", "html", "--output", str(files["graph"])]) == 0
    assert main(["graph", source, "--diff", other, "--format", "html", "--output", str(files["diff"])]) == 1
    load = ["--text", "page", "--clients", "1,2", "--seconds", "0.05"]
    assert main(["bench", source, *load, "--html", str(files["bench"])]) == 0
    return files


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Open a page, and record what it loads and complains about as `page.asked` and `page.complaints`."""
    contexts = []

    def open_page(kind: str, scheme: str = "light", width: int = 1100) -> Any:
        contexts.append(browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}))
        page = contexts[-1].new_page()
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(pages[kind].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("kind", ["graph", "diff", "bench"])
def test_a_page_loads_one_file_and_has_no_errors(kind: str, opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    page = opened(kind)
    assert page.asked == [pages[kind].as_uri()]
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["graph", "diff", "bench"])
def test_each_text_has_enough_contrast_with_what_is_behind_it(
    kind: str, scheme: str, opened: Callable[..., Any]
) -> None:
    contrasts = opened(kind, scheme).evaluate(CONTRASTS)
    assert {"load", "join"} <= {text for text, _ in contrasts}
    assert [(text, contrast) for text, contrast in contrasts if contrast < 4.5] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_screenshot_has_a_border_around_each_node_and_text_inside(scheme: str, opened: Callable[..., Any]) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="the package pillow is not installed")
    page = opened("graph", scheme)
    for place in range(len(NODES)):
        box = page.locator("svg.hami a").nth(place).locator("rect").bounding_box()
        clip = {"x": box["x"] - 6, "y": box["y"] - 6, "width": box["width"] + 12, "height": box["height"] + 12}
        picture = image_module.open(io.BytesIO(page.screenshot(clip=clip))).convert("L")
        outside, middle = picture.getpixel((1, 1)), picture.height // 2
        border = max(abs(picture.getpixel((x, middle)) - outside) for x in range(3, 10))
        inside = picture.crop((12, 12, picture.width - 12, picture.height - 12)).getextrema()
        assert border > 60
        assert inside[1] - inside[0] > 120


def test_the_tab_key_reaches_the_picture_and_each_node_in_order_with_a_visible_focus(
    opened: Callable[..., Any],
) -> None:
    page = opened("graph")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "FIGURE"
    plain = page.evaluate("getComputedStyle(document.querySelector('svg.hami a rect')).strokeWidth")
    for link in NODES:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('href')") == link
        assert page.evaluate("getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth") != plain


def test_the_tab_key_reaches_each_part_of_a_benchmark_that_may_scroll(opened: Callable[..., Any]) -> None:
    page = opened("bench", width=360)
    parts = page.evaluate("[...document.querySelectorAll('figure')].map(part => part.ariaLabel)")
    assert parts[0] == "Loads"
    reached = []
    for _ in parts:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel"))
    assert reached == parts


def test_the_enter_key_on_a_node_leads_to_its_section(opened: Callable[..., Any]) -> None:
    page = opened("graph")
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/graph.html{NODES[2]}")  # the browser follows the link after the key
    section = page.locator("section:target")
    assert section.locator("h2").inner_text() == "right"
    assert page.evaluate("document.querySelector('section:target').getBoundingClientRect().top < innerHeight")


@pytest.mark.parametrize("kind", ["graph", "diff", "bench"])
def test_a_narrow_page_scrolls_its_wide_parts_and_not_itself(kind: str, opened: Callable[..., Any]) -> None:
    page = opened(kind, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    rows = page.evaluate("[...document.querySelectorAll('tr')].map(row => row.clientHeight)")
    assert max(rows, default=0) < 40  # cells are one line
