"""What the type checkers read: documents with their own line numbers, and what `hami new-plugin` writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from _lib import type_checks
from _lib.paths import ROOT

DOCUMENT = """\
# Title

```python
import shout

first = 1
```

<!-- file: shout.py -->
```python
def shout() -> None: ...
```

```text
not python
```

```python
second = 2
```
"""


def test_blocks_keep_the_line_numbers_of_their_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_checks, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(ROOT / "tests" / "python")
    document = tmp_path / "docs" / "page.md"
    document.parent.mkdir()
    document.write_text(DOCUMENT)
    ((program, shout),) = type_checks.write_pages(tmp_path / "pages", [document]).values()
    assert (program.name, shout.name) == ("page_docs_page.py", "shout.py")
    places = {line: number for number, line in enumerate(program.read_text().splitlines(), start=1) if line}
    assert places == {"import shout": 4, "first = 1": 6, "second = 2": 19}
    assert shout.read_text().splitlines().index("def shout() -> None: ...") + 1 == 11


def test_every_python_block_of_the_documents_is_at_its_line(tmp_path: Path) -> None:
    pages = type_checks.write_pages(tmp_path, type_checks.documents())
    assert len(pages) > 10
    for document, modules in pages.items():
        lines = document.read_text("utf-8").splitlines()
        for module in modules:
            for number, line in enumerate(module.read_text("utf-8").splitlines()):
                assert not line or lines[number] == line, f"{module}:{number + 1}"


def test_findings_name_the_document(tmp_path: Path) -> None:
    module, document = tmp_path / "page_x.py", ROOT / "README.md"
    shown = type_checks.translated(f"{module}:3: error: x\n{ROOT}/ci/y.py:1: z\n", {module: document})
    assert shown == "README.md:3: error: x\nci/y.py:1: z\n"


def test_modules_of_one_name_are_checked_apart() -> None:
    pages = {
        Path("a.md"): [Path("a/page_a.py"), Path("a/shout.py")],
        Path("b.md"): [Path("b/page_b.py"), Path("b/shout.py")],
        Path("c.md"): [Path("c/page_c.py")],
    }
    assert type_checks.groups(pages) == [
        [Path("a/page_a.py"), Path("a/shout.py"), Path("c/page_c.py")],
        [Path("b/page_b.py"), Path("b/shout.py")],
    ]


def test_written_projects_are_python(tmp_path: Path) -> None:
    packages = type_checks.write_projects(tmp_path)
    names = {package.name for package in packages}
    assert names == {f"acme_add_{kind}" for kind in ("python", "cpp", "cuda", "torch", "pipeline")}
    for source in tmp_path.rglob("*.py"):
        assert not re.search(r"@[A-Z_]+@", source.read_text("utf-8")), source
        compile(source.read_text("utf-8"), source.name, "exec")


def test_a_checker_is_run_with_its_output_kept() -> None:
    done = type_checks.checker([sys.executable, "-c", "print('found'); raise SystemExit(1)"], {})
    assert (done.returncode, done.stdout) == (1, "found\n")
