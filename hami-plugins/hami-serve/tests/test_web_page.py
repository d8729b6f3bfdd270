"""The page of the server: its models, a form to try each, and programs that run. It loads nothing from elsewhere."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys

import hami
import numpy as np
import pytest
from browsers import CONTRASTS
from browsers import browser as browser  # a fixture

from hami_serve.web_page import PAGES

STRANGE = "<img src=x onerror=alert(1)>"
PNG = bytes.fromhex(  # one pixel
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


@hami.register
class TestSize(hami.Backend):
    """The number of bytes of a picture."""

    def forward(self, batch):
        for item in batch:
            data = item["data"]
            item["result"] = {"bytes": len(data), "type": type(data).__name__}


@hami.register
class TestBytes(hami.Backend):
    """Returns its picture, and the sum of its numbers."""

    def forward(self, batch):
        for item in batch:
            item["picture"] = item["image"][0]
            item["result"] = item["total"] = np.asarray(item["n"]).sum().reshape(1)


def tensor(name: str, datatype: str, *shape: int) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


MODELS = {
    "photo": "TestSize",
    "echo": "Identity",
    "rows": {"source": "Identity", "inputs": [tensor("x", "FP32", -1, 2)], "outputs": [tensor("y", "FP32", -1, 2)]},
    "large": {"source": "Identity", "inputs": [tensor("x", "UINT8", 1, 3, 40, 40)], "outputs": []},
    "text": {"source": "Identity", "inputs": [tensor("it's", "STRING", 1)], "outputs": [tensor(STRANGE, "BYTES", 1)]},
    "both": {
        "source": "TestBytes",
        "inputs": [tensor("image", "BYTES", 1), tensor("n", "INT64", -1)],
        "outputs": [tensor("picture", "BYTES", 1), tensor("total", "INT64", 1)],
    },
}


@pytest.fixture(scope="module")
def shown():
    from conftest import Running

    running = Running(MODELS)
    running.get("/docs/models.json")  # after the models are loaded
    running.serving.rounder.registry.find("photo").data_type = "bytes"  # as the plugin of a decoder says
    yield running
    running.close()


@pytest.mark.parametrize("path", PAGES)
def test_the_page_loads_only_its_own_files_and_has_no_script_in_its_markup(shown, path):
    status, headers, content = shown.call("GET", path)
    assert (status, headers.get_content_type()) == (200, PAGES[path][1])
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(rb"https?:|<style| style=| on[a-z]+=|<script>|innerHTML|eval\(", content)


def test_the_models_of_the_page_are_those_of_the_server(shown):
    status, found = shown.get("/docs/models.json")
    assert status == 200
    models = {each["name"]: each for each in found["models"]}
    assert [*models] == sorted(MODELS)
    assert models["rows"]["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 2], "form": "numbers", "sample": [[0.0, 0.0]], "count": 2}
    ]
    assert (models["large"]["inputs"][0]["sample"], models["large"]["inputs"][0]["count"]) == (None, 4800)
    assert [models[name]["picture"] for name in ("photo", "echo")] == [True, False]
    assert models["text"]["outputs"][0]["name"] == STRANGE


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("language", ["curl", "Python", "JavaScript"])
def test_each_program_of_the_page_runs(shown, tmp_path, model, language):
    (tmp_path / "picture.jpg").write_bytes(PNG)
    (text,) = (
        each["snippets"][language] for each in shown.get("/docs/models.json")[1]["models"] if each["name"] == model
    )
    program = {"curl": "bash", "Python": sys.executable, "JavaScript": "node"}[language]
    for needed in {program, *(["curl"] if language == "curl" else [])}:
        if shutil.which(needed) is None:
            pytest.skip(f"needs {needed}")
    file = tmp_path / {"curl": "run.sh", "Python": "run.py", "JavaScript": "run.mjs"}[language]
    file.write_text(f"set -e\n{text}" if language == "curl" else text)
    done = subprocess.run([program, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, '{"error"' in done.stdout) == (0, False), done.stderr + done.stdout
    expected = {"photo": str(len(PNG)), "echo": "hello", "rows": "y", "text": STRANGE, "both": "total", "large": "["}
    assert expected[model] in done.stdout


def test_with_a_token_the_page_is_open_and_its_data_are_not(tmp_path):
    from test_access import ask
    from test_command import serving

    (tmp_path / "token").write_text("t0k3n\n")
    with serving(tmp_path, "Identity", "--token-file", "token") as (_, port):
        assert ask(port, "GET", "/docs/models.json", {})[0] == 401
        status, found = ask(port, "GET", "/docs/models.json", {"Authorization": "Bearer t0k3n"})
        assert status == 200
        assert all("TOKEN" in text for text in found["models"][0]["snippets"].values())
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/docs", timeout=60) as answer:
            assert b"Identity" not in answer.read()


DROP = """([node, data]) => {
  const bytes = Uint8Array.from(data), transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "photo.png", {type: "image/png"}));
  node.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


@pytest.fixture
def opened(browser, shown):
    """Open the page, and record what it loads and complains about as `page.asked` and `page.complaints`."""
    contexts = []

    def open_page(scheme: str = "light", width: int = 1100):
        contexts.append(browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(f"http://{shown.url}/docs")
        page.wait_for_selector("section")
        return page

    yield open_page
    for context in contexts:
        context.close()


def section(page, name: str):
    return page.locator("section", has=page.locator("h2", has_text=name))


def test_the_page_shows_each_model_asks_only_this_server_and_has_no_errors(opened, shown):
    page = opened()
    assert page.locator("h2").all_inner_texts() == [f"{name} version 1" for name in sorted(MODELS)]
    assert {url.split("/")[2] for url in page.asked if not url.startswith("data:")} == {shown.url}
    assert page.complaints == []
    assert STRANGE in section(page, "text").inner_text()  # as text
    assert page.locator("td img").count() == 0


def test_a_photograph_that_is_dropped_is_answered(opened):
    page = opened()
    card = section(page, "photo")
    card.locator(".drop").evaluate(f"(node, data) => ({DROP})([node, data])", [*PNG])
    card.locator(".good").wait_for()
    assert json.loads(card.locator("output pre").inner_text()) == {"bytes": len(PNG), "type": "bytes"}
    assert card.locator(".drop img").get_attribute("alt") == "Preview of photo.png"


def test_a_photograph_beside_a_field_goes_to_the_model_where_it_is_dropped(opened):
    page = opened()
    for target, name in (("header", "both"), ("#model-3", "photo")):
        page.locator(target).evaluate(f"(node, data) => ({DROP})([node, data])", [*PNG])
        section(page, name).locator(".good").wait_for()
    pictures = section(page, "both").locator("output img")
    assert pictures.count() == 1
    assert pictures.evaluate("node => node.decode().then(() => node.naturalWidth)") == 1


def test_the_form_is_sent_with_the_keyboard_and_an_error_is_shown(opened):
    page = opened()
    card = section(page, "rows")
    card.locator("textarea").focus()
    for text, kind, words in (("[[1, 2]]", "good", '"y"'), ("[[1, 2, 3]]", "bad", "has the shape [-1, 2], got [1, 3]")):
        page.keyboard.press("Control+A")
        page.keyboard.type(text)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Run"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
        page.keyboard.press("Enter")
        card.locator(f".{kind}").wait_for()
        assert words in card.locator("output").inner_text()
        card.locator("textarea").focus()


def test_every_control_has_a_name_and_the_tab_key_reaches_it(opened):
    page = opened()
    controls = "a, button, textarea, input, pre"
    names = page.eval_on_selector_all(
        "button, textarea, input",
        "all => all.map(each => each.labels?.[0]?.textContent || each.ariaLabel || each.textContent)",
    )
    assert names
    assert all(names)
    visible = page.eval_on_selector_all(controls, "all => all.filter(each => each.tabIndex >= 0).length")
    reached = set()
    for _ in range(visible):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"[...document.querySelectorAll('{controls}')].indexOf(document.activeElement)"))
    assert reached == set(range(visible))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_text_has_enough_contrast_and_a_narrow_page_does_not_scroll_sideways(opened, scheme):
    page = opened(scheme, width=360)
    card = section(page, "rows")
    card.locator("button[type=submit]").click()
    card.locator(".good").wait_for()
    contrasts = page.evaluate(CONTRASTS)
    assert {"Run", "Copy", "Models"} <= {text for text, _ in contrasts}
    assert [each for each in contrasts if each[1] < 4.5] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    picture = pytest.importorskip("PIL.Image").open(io.BytesIO(page.screenshot())).convert("L")
    assert (picture.getpixel((2, 2)) < 60) == (scheme == "dark")
