"""Builds the documentation site, fetches the script that draws its diagrams, and checks that it loads nothing else.

ci/pages contains what MkDocs loads.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hami_build.steps import Failure, environment, exclusive, run, step

from . import environments, tiers
from .paths import CACHE, ROOT
from .runners import Totals

SITE = ROOT / "build" / "site"
CONFIG = ROOT / "hami-core" / "mkdocs.yml"
MERMAID = "11.17.2"  # of the major version that the theme calls
MERMAID_SHA256 = (
    "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"  # of the package on the npm registry
)
# What a browser loads together with a page from another host: files of elements, and url() or @import of a style.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|object)\s[^>]*?\b(?:src|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\s(?![^>]*\brel=["']?(?:canonical|prev|next|alternate)\b)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
)
STYLE = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:https?:)?//[^"')\s]+)""")
STYLED = re.compile(r"""<style\b[^>]*>.*?</style>|\bstyle=(?:"[^"]*"|'[^']*')""", re.DOTALL)


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
    script.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=script.parent) as folder, step("fetching the script that draws diagrams"):
        try:
            run([npm, "pack", f"mermaid@{MERMAID}", "--silent"], log="npm-mermaid", cwd=Path(folder))
        except Failure as failure:
            raise Unreachable(f"npm cannot fetch mermaid {MERMAID}: {str(failure).splitlines()[-1]}") from failure
        archive = Path(folder, f"mermaid-{MERMAID}.tgz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != MERMAID_SHA256:
            raise Failure(f"mermaid {MERMAID} from the npm registry has another checksum than expected")
        with tarfile.open(archive) as files:
            files.extract("package/dist/mermaid.min.js", folder)
        Path(folder, "package/dist/mermaid.min.js").replace(script)


def settings(diagrams: Path | None) -> dict[str, str]:
    """Write the generated pages, by the wheels of this checkout; return the environment of MkDocs."""
    generated = CACHE / "docs" / "generated"
    shutil.rmtree(generated, ignore_errors=True)
    python = tiers.test_environment(tiers.build_current())
    with step("generating pages"):
        run([python, ROOT / "ci" / "pages" / "generated.py", generated], log="docs-generated", env=environment())
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


def loaded_from_elsewhere(text: str, suffix: str) -> list[str]:
    """Return the addresses on other hosts that a page or a style sheet loads."""
    styles = [text] if suffix == ".css" else STYLED.findall(text)
    elements = [] if suffix == ".css" else [first or second for first, second in LOADED.findall(text)]
    return elements + [url for style in styles for url in STYLE.findall(style)]


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
    diagrams: Path | None = None
    try:
        diagrams = mermaid()
    except Unreachable as reason:
        totals.skip("docs: diagrams", str(reason))
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder, "site"), diagrams)
    totals.check(True, "docs")
