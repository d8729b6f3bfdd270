"""Records how long each run of ci/wheels took, in the cache; tests/wheels/results.md shows the figures."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hami_build import index, index_server, zig
from hami_build.interpreters import Interpreter
from hami_build.steps import environment, run

from . import environments, wheel_env, wheelhouse
from .paths import CACHE

FILE = CACHE / "times.jsonl"
INSTALLED = ("hami-core", "hami-onnx")  # by `install_s`


@dataclass(frozen=True)
class Run:
    """One run of ci/wheels that succeeded."""

    seconds: float
    busy: float  # CPU seconds of all processors; on a busy machine the better measure
    prepared: list[str]  # prepared by this run: the tools, the compiler's library, the core without Python
    pythons: list[str]  # wheels of the core that it built
    plugins: list[str]  # wheels of plugins that it built

    @property
    def kind(self) -> str:
        """The title of its figure; "" for a kind of run that is not reported."""
        if len(self.prepared) == 3 and len(self.pythons) == 1:
            return "first run in a fresh checkout, for one CPython"
        if self.pythons and not self.prepared and not self.plugins:
            return f"for {len(self.pythons)} more CPython{'s' if len(self.pythons) > 1 else ''}"
        return "" if self.prepared or self.plugins or self.pythons else "repeated run, without changes"


def running_s() -> float:
    """Return the seconds since this process started, including programs that it executed before."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def record(files: Sequence[Path]) -> None:
    """Record the duration of this run of ci/wheels and which of `files` it built."""
    seconds = running_s()
    began = time.time() - seconds
    targets = map(zig.target, zig.ARCHITECTURES)
    prepared = {
        "tools": [CACHE / "envs" / "tools" / environments.STAMP],
        "library": [zig.cache_folder(target) / "warm" for target in targets],
        "core": [*(CACHE / "build").glob("core-*/hami-core/libhami_core.a")],
    }
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    made = [file.name for file in files if is_newer(file, began) and file.suffix == ".whl"]
    done = Run(
        round(seconds, 1),
        round(sum(use.ru_utime + use.ru_stime for use in used), 1),
        [name for name, paths in prepared.items() if any(is_newer(path, began) for path in paths)],
        [name for name in made if name.startswith("hami_core-")],
        [name for name in made if not name.startswith("hami_core-")],
    )
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(done)) + "\n")


def is_newer(path: Path, than: float) -> bool:
    return path.exists() and path.stat().st_mtime >= than


def recorded() -> dict[str, Run]:
    """Return the last run of each reported kind."""
    lines = FILE.read_text("utf-8").splitlines() if FILE.is_file() else []
    runs = [Run(**json.loads(line)) for line in lines]
    return {done.kind: done for done in runs if done.kind}


def install_s(interpreter: Interpreter) -> float:
    """Return the seconds that pip takes to install INSTALLED into a new environment, from an index on this machine."""
    names = tuple(f"{name.replace('-', '_')}-" for name in INSTALLED)
    ours = wheel_env.usable(interpreter)
    # hami-model-check, which hami-onnx needs too, has no requirements of its own.
    wanted = wheelhouse.requirements([wheel for wheel in ours if wheel.name.startswith(names)])
    others = wheelhouse.fetch(interpreter, wanted)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        index.write([*ours, *others], folder / "index")
        with index_server.serving(folder / "index") as address:
            env = environment(
                PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL=address, PIP_FIND_LINKS="", PIP_NO_CACHE_DIR="1"
            )
            python = environments.fresh_venv(folder / "env", str(interpreter.executable))
            start = time.monotonic()
            run([python, "-m", "pip", "install", *INSTALLED], log="times-install", env=env)
            return round(time.monotonic() - start, 1)
