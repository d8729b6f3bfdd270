"""ci/check_forks.py: this repository passes, and each lock that may stay locked in a forked child is found."""

from __future__ import annotations

from pathlib import Path

import check_forks
import pytest

ROOT = Path(__file__).resolve().parents[2]
HANDLER = "os.register_at_fork(after_in_child={})\n"
RESET = "def reset():\n    global lock\n    lock = Lock()\n" + HANDLER.format("reset")


def found_in(root: Path, **modules: str) -> list[str]:
    folder = root / "hami-plugins" / "hami-new" / "python" / "hami_new"
    folder.mkdir(parents=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return [line.partition("hami_new/")[2] for line in check_forks.violations(root)]


def test_this_repository_passes() -> None:
    assert check_forks.violations(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "lock = threading.Lock()\n",
        "lock: Lock = RLock()\n",
        "class A:\n    lock = Condition()\n",
        "if True:\n    lock = ThreadPoolExecutor(2)\n",
        "class A:\n    def __init__(self):\n        self.own = Lock()\n\n\nlock = A()\n",
        "class A:\n    own: Lock = field(default_factory=Lock)\n\n\nlock = A()\n",
        "other = Lock()  # fork: it guards nothing\nlock = Lock()\n",
        "lock = Lock()\n\n\ndef reset():\n    pass\n\n\n" + HANDLER.format("reset"),
    ],
)
def test_a_lock_without_a_handler_is_found(text: str, tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, new=text)
    assert ": lock may be locked in a forked child" in found


@pytest.mark.parametrize(
    "text",
    [
        "lock = Lock()\n\n\n" + RESET,
        "lock = Lock()\n\n\nif True:\n    " + HANDLER.format("lock._at_fork_reinit"),
        "lock = Lock()\nos.register_at_fork(before=lock.acquire, after_in_child=lock.release)\n",
        "lock = Lock()  # fork: only a new interpreter uses it\n",
        "locks = {}\nlocal = threading.local()\n",
        "def f():\n    lock = Lock()\n",
    ],
)
def test_locks_with_a_handler_or_a_reason_pass(text: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, new=text) == []


def test_a_new_object_that_another_module_does_not_see_is_found(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, new="lock = Lock()\n\n\n" + RESET, user="from hami_new.new import lock\n")
    assert found.startswith("new.py:1: lock has a new object in a forked child, but not in ")
