"""ci/check_reasons.py: this repository passes, and each dangerous construct without a reason is found."""

from __future__ import annotations

from pathlib import Path

import check_reasons
import pytest

ROOT = Path(__file__).resolve().parents[2]


def found_in(root: Path, text: str) -> list[str]:
    path = root / "hami-core" / "src" / "sync" / "new.cpp"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return [line.partition(" without a reason")[0] for line in check_reasons.violations(root)]


def test_this_repository_passes() -> None:
    assert check_reasons.violations(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("catch (...)", "try {\n} catch (...) {\n  count += 1;\n}\n"),
        ("reinterpret_cast", "auto* x = reinterpret_cast<Call*>(y);\n"),
        ("a detached thread", "state->thread.detach();\n"),
        ("a detached thread", "pthread_detach(thread);\n"),
        ("a detached thread", "std::thread([] { run(); }).detach();\n"),
        ("dlopen", "void* library = dlopen(path, 0);\n"),
        ("a lock without a scope", "mutex_.lock();\n"),
        ("a lock without a scope", "if (mutex->try_lock()) mutex->unlock();\n"),
    ],
)
def test_a_construct_without_a_reason_is_found(name: str, text: str, tmp_path: Path) -> None:
    line = 2 if name == "catch (...)" else 1
    assert found_in(tmp_path, f"{text}int end;\n") == [f"hami-core/src/sync/new.cpp:{line}: {name}"]


@pytest.mark.parametrize(
    "text",
    [
        "mutex_.lock();  // until the end of the batch\n",
        "// The head of the file, which is mapped.\nauto* x = reinterpret_cast<Head*>(y);\n",
        "try {\n} catch (...) {\n  request.fail(current_error());\n}\n",
        "const char* x = reinterpret_cast<const char*>(y);\n",
        "std::shared_ptr<Pipe> pipe = pipe_.lock();\n",
        "lock.unlock();\n",
        "// A sentence about catch (...) and dlopen(path).\n",
    ],
)
def test_reasons_and_forms_that_are_right_everywhere_pass(text: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, text) == []


@pytest.mark.parametrize(
    ("name", "is_checked"),
    [
        ("hami-plugins/hami-new/src/deep/new.cu", True),
        ("hami-plugins/hami-new/python/hami_new/include/new.hpp", True),
        ("hami-plugins/hami-tools/python/hami_tools/templates/cpp/src/new.cpp.in", True),
        ("examples/hami-example/src/new.cpp", True),
        ("hami-plugins/hami-new/tests/new.cpp", False),
        ("hami-plugins/hami-new/README.md.in", False),
    ],
)
def test_templates_examples_and_all_sources_of_plugins_are_checked(name: str, is_checked: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text("mutex_.lock();\n")
    assert bool(check_reasons.violations(tmp_path)) == is_checked


def test_one_right_form_does_not_excuse_another_construct_of_its_line(tmp_path: Path) -> None:
    line = "f(reinterpret_cast<const char*>(x), reinterpret_cast<Head*>(y));\n"
    assert found_in(tmp_path, line) == ["hami-core/src/sync/new.cpp:1: reinterpret_cast"]
