"""Measure discovery and loading of plugins: the index among 300 installed distributions, and a native library.

    python tests/bench/plugin_discovery.py

Every figure comes from new processes; the contenders alternate. The native library is compiled by c++; without a
compiler it is not measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import about_hami, about_this_machine, percentile

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "plugins"))
from fake_site import write_metadata, write_plugin  # noqa: E402

RUNS = 25
OTHERS, OURS = 300, 5
TIMED = """
import sys, time
{before}
started = time.perf_counter_ns()
{work}
print(time.perf_counter_ns() - started)
"""
IMPORT = ("", "import hami; assert not hasattr(sys.modules.get('hami._plugins'), 'installed')")
INDEX = ("import hami; from hami._plugins.manager import installed", "installed.index()")
AGAIN = ("import hami; from hami._plugins.manager import installed; installed.index()", "installed.index()")
STANDARD = ("import importlib.metadata as metadata", "metadata.entry_points(group='hami.backends')")


def site(folder: Path, others: int) -> Path:
    """Write distributions without plugins, with the usual description and scripts, and a few with plugins."""
    for number in range(others):
        info = write_metadata(folder, f"other-{number}", "1.0", {"console_scripts": {f"other{number}": "other:main"}})
        (info / "METADATA").write_text((info / "METADATA").read_text() + "\n" + "A line of the description.\n" * 200)
    for number in range(OURS):
        write_plugin(folder, f"acme-p{number}", "0.1", f"Acme{number}")
    return folder


def library(folder: Path) -> Path | None:
    if not shutil.which("c++"):
        print("not measured: loading a native plugin; c++ is not installed (Debian, Ubuntu: apt install g++)")
        return None
    made = folder / "addone.so"
    command = ["c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o", made]
    source = ROOT / "tests" / "cpp" / "plugins" / "addone.cpp"
    subprocess.run([*map(str, command), f"-I{ROOT / 'hami-core' / 'include'}", str(source)], check=True)
    return made


def milliseconds(code: tuple[str, str], path: Path | None, *arguments: str) -> float:
    program = TIMED.format(before=code[0], work=code[1])
    where = os.pathsep.join(filter(None, [str(path or ""), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": where},
    )
    return int(done.stdout) / 1e6


def main() -> int:
    with tempfile.TemporaryDirectory() as work:
        none, many = site(Path(work) / "none", 0), site(Path(work) / "many", OTHERS)
        contenders: dict[str, tuple[tuple[str, str], Path | None, tuple[str, ...]]] = {
            f"index, {OURS} plugins": (INDEX, none, ()),
            f"index, {OURS} plugins among {OTHERS} other distributions": (INDEX, many, ()),
            "the index again": (AGAIN, many, ()),
            "importlib.metadata.entry_points, the same": (STANDARD, many, ()),
            f"import hami, {OURS} plugins": (IMPORT, none, ()),
            f"import hami, among {OTHERS}": (IMPORT, many, ()),
        }
        if made := library(Path(work)):
            contenders["load a native plugin"] = (
                ("import hami; from hami import native", "hami.native.register_plugin(sys.argv[1])"),
                None,
                (str(made),),
            )
        timed: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(RUNS):
            for name, (code, path, arguments) in contenders.items():
                timed[name].append(milliseconds(code, path, *arguments))
    print(f"{about_this_machine()}; {about_hami()}; {RUNS} new processes each, alternating; milliseconds")
    for name, values in timed.items():
        median, p99 = percentile(values, 0.5), percentile(values, 0.99)
        print(f"{name:55} min {min(values):8.3f}  median {median:8.3f}  p99 {p99:8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
