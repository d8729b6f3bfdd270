"""A wheel that is unpacked, to be checked: what it contains, and how its code is run in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.tags import platform_tags
from packaging.utils import canonicalize_name

from hami_build import archive, binary, quality, wheel_file

CHILD = Path(__file__).with_name("child.py")
CHILD_TIMEOUT_S = 120
SANITIZER = re.compile(r"ERROR: \w+Sanitizer: .*|.*: runtime error: .*")  # the first line of a report


class Skipped(Exception):
    """A check that does not apply here; the text says why."""


class Wrong(Exception):
    """A check that fails; the text says what is wrong and what to do."""


@dataclass
class Wheel:
    """A wheel that is complete, unpacked into `folder`."""

    path: Path
    folder: Path
    cores: Sequence[str] = ()  # other versions of hami-core to run it with, as `cores.find` takes them
    source: Path | None = None  # the project that it was built from

    @cached_property
    def files(self) -> dict[str, bytes]:
        return wheel_file.read(self.path)

    @cached_property
    def name(self) -> str:
        return str(wheel_file.metadata(self.files)["Name"])

    @cached_property
    def package(self) -> str:
        return canonicalize_name(self.name).replace("-", "_")

    @cached_property
    def binaries(self) -> list[binary.Binary]:
        return binary.read_all(self.folder, binary.shared_objects(self.path))

    @cached_property
    def platforms(self) -> list[str]:
        return self.path.stem.split("-")[-1].split(".")

    @cached_property
    def entry_points(self) -> dict[str, dict[str, str]]:
        return archive.entry_points(self.files)

    @cached_property
    def backends(self) -> dict[str, str]:
        return self.entry_points.get("hami.backends", {})

    @cached_property
    def quality(self) -> quality.Quality:
        name = f"{self.package}/{quality.NAME}"
        text = self.files.get(name)
        return (
            quality.parse(text.decode("utf-8", "replace"), f"{self.path.name}: {name}") if text else quality.Quality()
        )

    @property
    def runs_here(self) -> bool:
        return self.platforms == ["any"] or not set(self.platforms).isdisjoint(platform_tags())

    def run(
        self, task: str, argument: object, first: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> Any:
        """Run a task of child.py with the folder `first` and the wheel first on its path."""
        if not self.runs_here:
            raise Skipped(f"the wheel is for {self.platforms[0]}, this machine is {next(platform_tags())}")
        folders = [str(folder) for folder in (first, self.folder) if folder]
        path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
        with tempfile.TemporaryDirectory() as work, Path(work, "stderr").open("w+b") as stderr:
            result = Path(work, "result")  # not the output, into which the code of the wheel writes too
            try:
                done = subprocess.run(
                    [sys.executable, str(CHILD), task, folders[0], json.dumps(argument), str(result)],
                    env={**os.environ, "PYTHONPATH": path, **(variables or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    timeout=CHILD_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Wrong(f"its code did not end within {CHILD_TIMEOUT_S} s") from None
            stderr.seek(0)
            said = stderr.read().decode("utf-8", "replace")
            if found := SANITIZER.search(said):
                raise Wrong(f"{found[0].strip()}; correct the code, and see the report of hami-build check --source")
            if done.returncode < 0:
                raise Wrong(f"its code ended the process with signal {-done.returncode}")
            if done.returncode:
                last = (said.strip().splitlines() or ["no message"])[-1]
                raise Wrong(f"{last}; install what the wheel requires into this environment, or correct the code")
            if not result.is_file():
                raise Wrong("its code ended the process, with status 0; correct the code")
            return json.loads(result.read_bytes())


def unpack(path: Path, folder: Path, cores: Sequence[str] = (), source: Path | None = None) -> Wheel:
    """Unpack a complete wheel into a folder."""
    with zipfile.ZipFile(path) as opened:
        opened.extractall(folder)
    return Wheel(path, folder, cores, source)


Run = Callable[[str, object], Any]  # as `Wheel.run`, in other surroundings
