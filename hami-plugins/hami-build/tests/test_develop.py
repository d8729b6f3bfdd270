"""`hami-build develop` compiles native plugins where their sources are, and `check --source` with sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ENTRY, PLATFORM, QUALITY, SOURCE, Compile, Make

from hami_build import cache, develop, development, grades, project, sanitizers
from hami_build.commands import main
from hami_build.wheels import installed_cmake_dir

Find = Callable[..., grades.Finding]
RUN = "import hami\nwith hami.pipe('AcmeInc') as pipe: print(pipe({'data': 40})['result'])"


def run(folder: Path) -> str:
    """Run the backend from the package in a folder of sources."""
    code = (
        f"import hami.native\nhami.native.register_plugin({str(folder / 'python' / 'acme_inc' / 'acme.so')!r})\n{RUN}"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_change_is_compiled_into_the_package(native_project: Path) -> None:
    plugin = project.read(native_project)
    work = plugin.cached / "development"
    (library,) = development.build_in_place(plugin, work, installed_cmake_dir())
    assert library == native_project / "python" / "acme_inc" / "acme.so"
    assert run(native_project) == "41"
    assert development.build_in_place(plugin, work, installed_cmake_dir()) == []
    (native_project / "src" / "acme.cpp").write_text(SOURCE.replace("+ 1", "+ 2"))
    assert development.build_in_place(plugin, work, installed_cmake_dir()) == [library]
    assert run(native_project) == "42"


def test_watch_compiles_what_is_saved_and_goes_on_after_an_error(native_project: Path) -> None:
    source = native_project / "src" / "acme.cpp"
    lines = develop.watch(native_project, develop.dates(native_project))
    assert next(lines) == f"watching {native_project}; Ctrl-C ends"

    def saved(text: str) -> str:
        source.write_text(text)
        now = source.stat().st_mtime_ns
        os.utime(source, ns=(now, now + 1_000_000_000 * saved_times.pop()))
        return next(lines)

    saved_times = [3, 2, 1]
    assert saved(SOURCE) == "compiled acme.so"
    error = saved(SOURCE.replace("+ 1", "+ one"))
    assert error.startswith("error: ")
    assert "one" in error
    assert saved(SOURCE.replace("+ 1", "+ 2")) == "compiled acme.so"
    assert run(native_project) == "42"


def test_what_is_saved_during_the_installation_is_compiled(
    native_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = native_project / "src" / "acme.cpp"

    def install(folder: Path) -> str:
        source.write_text(SOURCE.replace("+ 1", "+ 2"))
        return "installed"

    def compile_changes(plugin: project.Project) -> list[Path]:
        assert source.read_text() == SOURCE.replace("+ 1", "+ 2")
        raise KeyboardInterrupt

    polls = iter([0])  # without the change it would poll again
    monkeypatch.setattr(develop.time, "sleep", lambda seconds: next(polls))
    monkeypatch.setattr(develop, "install", install)
    monkeypatch.setattr(develop, "compile_changes", compile_changes)
    assert main(["develop", str(native_project), "--watch"]) == 0
    assert capsys.readouterr().out == f"installed\nwatching {native_project}; Ctrl-C ends\n"


def test_the_editable_wheel_has_the_metadata_and_the_path_of_the_package(native_project: Path, tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    wheel = develop.editable_wheel(project.read(native_project), tmp_path)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(list(map(str, command)), check=True)
    assert (site / "_acme_inc.pth").read_text() == f"{native_project / 'python'}\n"
    assert "inc = acme_inc.plugin" in (site / "acme_inc-1.0.dist-info" / "entry_points.txt").read_text()


def test_the_sources_of_tools_are_not_watched(native_project: Path) -> None:
    before = develop.dates(native_project)
    for name in ("build/x.o", "python/acme_inc/acme.so", "python/acme_inc/__pycache__/x.pyc", ".git/index"):
        (native_project / name).parent.mkdir(exist_ok=True)
        (native_project / name).touch()
    assert develop.dates(native_project) == before
    assert str(native_project / "src" / "acme.cpp") in before


def test_a_project_in_python_has_nothing_to_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[build-system]\nbuild-backend = "hatchling.build"\n[project]\nname = "acme-inc"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setattr(develop, "_pip", lambda *arguments: None)
    assert main(["develop", str(tmp_path), "--watch"]) == 1
    assert capsys.readouterr().err == (
        "error: acme-inc is not compiled: changes of its Python files need no step; omit --watch\n"
    )


# ---- sanitizers ----


@pytest.fixture
def sanitizer() -> sanitizers.Sanitizer:
    found = sanitizers.find()
    if found is None:
        pytest.skip(f"no runtime of AddressSanitizer; install {sanitizers.PACKAGES}")
    return found


def test_clean_sources_pass_the_sanitizers(
    make: Make, finding: Find, compiled: Compile, native_project: Path, sanitizer: sanitizers.Sanitizer
) -> None:
    wheel = make(PLATFORM, {"acme_inc/acme.so": compiled(ENTRY)})
    found = finding(wheel, "sanitizers", source=native_project)
    if found.state == "skipped":
        pytest.skip(found.detail)
    assert found.detail == f"{sanitizer.compiler}: AcmeInc"


@pytest.mark.parametrize(
    ("code", "report"),
    [
        ("std::vector<int> one(1); volatile int* end = one.data() + 1; *end = 1;", "heap-buffer-overflow"),
        ("volatile int zero = 0; volatile int shifted = 1 << (32 + zero); (void)shifted;", "runtime error: shift"),
    ],
    ids=["overflow", "undefined"],
)
def test_a_report_of_a_sanitizer_is_a_finding(
    make: Make,
    finding: Find,
    compiled: Compile,
    native_project: Path,
    sanitizer: sanitizers.Sanitizer,
    code: str,
    report: str,
) -> None:
    source = native_project / "src" / "acme.cpp"
    source.write_text(SOURCE.replace("      try {", f"      {code}\n      try {{"))
    found = finding(make(PLATFORM, {"acme_inc/acme.so": compiled(ENTRY)}), "sanitizers", source=native_project)
    if found.state == "skipped":
        pytest.skip(found.detail)
    assert found.state == "failed"
    assert report in found.detail


def test_sources_of_another_project_are_not_used(
    make: Make, finding: Find, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_chosen", tmp_path / "cache")
    text = '[build-system]\nbuild-backend = "scikit_build_core.build"\n[project]\nname = "acme-other"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    wheel = make(PLATFORM, {"acme_inc/acme.so": compiled(ENTRY), "acme_inc/quality.toml": QUALITY})
    found = finding(wheel, "sanitizers", source=tmp_path)
    assert (found.state, found.detail) == ("skipped", f"{tmp_path} has the sources of acme-other")
