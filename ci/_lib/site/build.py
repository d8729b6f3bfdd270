"""Builds the documentation site, fetches the script that draws its diagrams, and checks that it loads nothing else."""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from hami_build.steps import Failure, environment, exclusive, run, step

from .. import environments, preflight, tiers
from ..paths import CACHE, ROOT
from ..totals import Totals

SITE = ROOT / "build" / "site"
CONFIG = ROOT / "hami-core" / "mkdocs.yml"
MERMAID = "11.17.2"  # of the major version that the theme calls
MERMAID_SHA256 = (
    "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"  # of the package on the npm registry
)
# The elements whose files a browser loads together with a page, and the attribute with the address.
LOADED = {"link": "href", "object": "data"} | dict.fromkeys(("script", "img", "iframe", "source", "video"), "src")
# Relations of <link> that a browser does not load.
NOT_LOADED = {"canonical", "prev", "next", "alternate"}
CSS_URL = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:https?:)?//[^"')\s]+)""")


class Unreachable(Failure):
    """The script for diagrams is not in the cache and cannot be fetched."""


def mermaid() -> Path:
    """Return the script that draws diagrams; npm fetches it once into the cache."""
    script = CACHE / "docs" / f"mermaid-{MERMAID}.min.js"
    with exclusive("mermaid"):
        if not script.is_file():
            _fetch(script)
    return script


def _fetch(script: Path) -> None:
    npm = shutil.which("npm")
    if not npm:
        raise Unreachable(
            "npm is missing, which fetches the script that draws diagrams (Debian, Ubuntu: apt install npm)"
        )
    with tempfile.TemporaryDirectory() as folder, step("fetching the script that draws diagrams"):
        try:
            run([npm, "pack", f"mermaid@{MERMAID}", "--silent"], log="npm-mermaid", cwd=Path(folder))
        except Failure as failure:
            raise Unreachable(f"npm cannot fetch mermaid {MERMAID}: {str(failure).splitlines()[-1]}") from failure
        archive = Path(folder, f"mermaid-{MERMAID}.tgz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != MERMAID_SHA256:
            raise Failure(f"mermaid {MERMAID} from the npm registry has another checksum than expected")
        with tarfile.open(archive) as files:
            content = files.extractfile("package/dist/mermaid.min.js")
            if content is None:
                raise Failure(f"mermaid {MERMAID} has no dist/mermaid.min.js")
            script.parent.mkdir(parents=True, exist_ok=True)
            unfinished = script.with_suffix(".part")
            unfinished.write_bytes(content.read())
        unfinished.replace(script)


def settings(diagrams: Path | None) -> dict[str, str]:
    """Write the generated pages, by the wheels of this checkout; return the environment of MkDocs."""
    generated = CACHE / "docs" / "generated"
    shutil.rmtree(generated, ignore_errors=True)
    python = tiers.test_environment(tiers.build_current())
    with step("generating pages"):
        run([python, Path(__file__).with_name("generated.py"), generated], log="docs-generated", env=environment())
    return environment(HAMI_GENERATED=str(generated), HAMI_MERMAID=str(diagrams or ""), NO_MKDOCS_2_WARNING="1")


def build(folder: Path, diagrams: Path | None) -> None:
    """Build the site into `folder`; warnings are errors. Without `diagrams`, diagrams are shown as text."""
    python = environments.ensure("docs")
    command = [python, "-m", "mkdocs", "build", "--strict", "--config-file", CONFIG, "--site-dir", folder]
    env = settings(diagrams)
    with step("building the documentation"):
        run(command, log="docs", env=env, cwd=ROOT)
    found = list(external(folder))
    if found:
        raise Failure("the site would load files from other hosts:\n" + "\n".join(found))


class _Sources(HTMLParser):
    """Collects what a browser loads together with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        loaded = tag in LOADED and not (tag == "link" and set(values.get("rel", "").split()) & NOT_LOADED)
        urls = [values.get(LOADED[tag], "")] if loaded else []
        self.urls += [url for url in urls if re.match(r"(https?:)?//", url)]
        self.urls += CSS_URL.findall(values.get("style", ""))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.urls += CSS_URL.findall(data)


def loaded_from_elsewhere(text: str, suffix: str) -> list[str]:
    """Return the addresses on other hosts that a page or a style sheet loads."""
    if suffix == ".css":
        return CSS_URL.findall(text)
    parser = _Sources()
    parser.feed(text)
    return parser.urls


def external(folder: Path) -> Iterator[str]:
    """Yield each page or style sheet of the site with an address on another host that it loads.

    Pages with a diagram must also bring the script that draws it, which the theme would load from elsewhere.
    """
    for file in sorted(folder.rglob("*")):
        if file.suffix not in (".html", ".css"):
            continue
        name, text = file.relative_to(folder), file.read_text("utf-8")
        yield from (f"{name}: {url}" for url in loaded_from_elsewhere(text, file.suffix))
        if 'class="mermaid"' in text and "mermaid.min.js" not in text:
            yield f"{name}: the script that draws diagrams"


def check(totals: Totals) -> None:
    """Build the site in a temporary folder for `ci/test docs`; skip what needs a registry that cannot be reached."""
    if not environments.stamp_of(CACHE / "envs" / "docs"):
        try:
            preflight.require_index("mkdocs-material")
        except Failure as reason:
            totals.skip("docs", f"the package index cannot be reached: {str(reason).splitlines()[0]}")
            return
    diagrams: Path | None = None
    try:
        diagrams = mermaid()
    except Unreachable as reason:
        totals.skip("docs: diagrams", str(reason))
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(Path(folder, "site"), diagrams)
        except Failure as failure:
            print(failure, flush=True)
            totals.check(False, "docs: see above")
            return
    totals.check(True, "docs")
