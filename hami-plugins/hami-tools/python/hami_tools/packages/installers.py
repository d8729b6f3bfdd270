"""Runs the installer of this environment: pip, or uv where the environment has no pip."""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hami import PluginError
from hami.cli import printable
from hami.packages import distributions, normalised

from hami_tools.packages.environment import Environment
from hami_tools.packages.lock import VARIABLE, Locked, file_of_report, of_pylock, of_report

LOCKED = ("--no-deps", "--require-hashes", "--requirement")
_UV_CHANGE = re.compile(r"^ \+ ([A-Za-z0-9._-]+)==(\S+)", re.M)
_PIP_SETTING = re.compile(r"^(global|install|:env:)\.(index-url|extra-index-url|no-index)='(.*)'$", re.M)
PYPI = "https://pypi.org/simple"
# Variables with which a user changes what pip and uv print.
_PRINTING = {"FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE", "RUST_LOG", "UV_LOG_CONTEXT"}
_PRINTING |= {f"PIP_{name}" for name in ("VERBOSE", "QUIET", "NO_COLOR", "REPORT", "DRY_RUN", "LOG", "DEBUG")}
# Variables with which a user changes where pip installs, and what: the command says both.
_PLACES = {f"PIP_{name}" for name in ("TARGET", "PREFIX", "ROOT", "USER", "PYTHON", "IGNORE_INSTALLED", "REQUIREMENT")}
_PLACES |= {f"PIP_{name}" for name in ("EDITABLE", "GROUP", "PLATFORM", "PYTHON_VERSION", "ABI", "IMPLEMENTATION")}
# Flags that pip may also have from a file with settings, which a variable overrides.
_OFF = {f"PIP_{name}": "0" for name in ("NO_DEPS", "DRY_RUN", "USER", "IGNORE_INSTALLED", "VERBOSE", "QUIET")}
# Lines with which pip says why an index gave no answer. Its errors do not repeat it.
_CONNECTION = re.compile(r"^WARNING: .*(?:after connection broken by|Could not fetch URL|There was an error).*", re.M)
_LEFT_OUT = "# The following packages were excluded from the output:"  # in annotations of uv; their names follow
_CONFLICT = re.compile(r"The user requested \(constraint\) (\S+)")  # pip's errors do not name it
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


class Change(NamedTuple):
    """One package that an installation adds or replaces."""

    name: str
    old: str  # empty: it is not installed
    new: str
    url: str = ""  # of the file; empty: the installer does not say
    sha256: str = ""  # of the file; empty: the index does not say

    def facts(self) -> dict[str, str]:
        """Return what the output in JSON has."""
        return {"name": self.name, "old": self.old, "new": self.new}

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.locked().file

    def locked(self) -> Locked:
        """Return the file as an entry of a lock."""
        return Locked(self.name, self.new, self.url, self.sha256)

    @property
    def verb(self) -> str:
        return "replace" if self.old else "install"

    @property
    def arrow(self) -> str:
        return " -> ".join(filter(None, [self.old, self.new]))


class Sources(NamedTuple):
    """Where packages come from."""

    indexes: Sequence[str] = ()  # instead of the index in the settings of the installer
    folder: str = ""  # a folder of wheels, instead of any index
    torch_backend: str = ""  # of uv: "auto" takes the build of torch for the driver of this machine

    def options(self) -> list[str]:
        if self.folder:
            return ["--no-index", "--find-links", self.folder]
        if not self.indexes:
            return []
        first, *others = map(_address, self.indexes)
        return ["--index-url", first, *(word for other in others for word in ("--extra-index-url", other))]


def _address(index: str) -> str:
    """Return an index as an address: pip takes a folder only as file://. hami-build writes one with simple/ inside."""
    if "://" in index:
        return index
    folder = Path(index).resolve()
    if not folder.is_dir():
        raise PluginError(
            f'the index "{index}" is not an address such as https://packages.example/simple, nor a folder'
        )
    return (folder / "simple" if (folder / "simple").is_dir() else folder).as_uri()


class Installer(Protocol):
    """What the commands need of an installer."""

    def plan(
        self, requirements: Sequence[str], sources: Sources, environment: Environment, *, upgrade: bool
    ) -> list[Change]:
        """Return what an installation would change; change nothing."""
        ...

    def install(self, changes: Sequence[Change], sources: Sources, environment: Environment) -> None:
        """Install exactly these versions."""

    def install_locked(self, lines: Sequence[str], sources: Sources, environment: Environment) -> None:
        """Install the files that lines of a requirements file name with their hashes."""

    def uninstall(self, names: Sequence[str]) -> None:
        """Remove distributions."""

    def indexes(self, sources: Sources) -> list[str]:
        """Return the addresses of the package indexes that it uses, as far as they are known."""
        ...

    def resolve(self, requirements: Sequence[str], constraints: Sequence[str], sources: Sources) -> list[Locked]:
        """Return the files with which an empty environment gets these requirements, in these versions."""
        ...


def find() -> Installer:
    """Return the installer for this environment. Raises PluginError if there is none."""
    if importlib.util.find_spec("pip"):
        return Pip()
    return Uv()


class Pip:
    """pip as a module of this Python."""

    command = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")

    def plan(
        self, requirements: Sequence[str], sources: Sources, environment: Environment, *, upgrade: bool
    ) -> list[Change]:
        options = ["--dry-run", *(["--upgrade"] if upgrade else []), *(["--user"] if environment.user else [])]
        done, report = self._report([*options, *sources.options(), *requirements])
        if done.returncode and "no such option: --report" in done.stderr:
            raise PluginError(
                f"this pip cannot preview an installation; upgrade it: {sys.executable} -m pip install -U pip"
            )
        if done.returncode:
            raise _failed("pip", "install", requirements, done.stderr)
        planned = [file_of_report(entry) for entry in report]
        return [Change(each.name, installed_version(each.name), *each[1:]) for each in planned]

    def install(self, changes: Sequence[Change], sources: Sources, environment: Environment) -> None:
        if all(change.sha256 for change in changes):  # then no file but the planned one
            lines = [change.locked().requirement(by_name=True) for change in changes]
            return self.install_locked(lines, sources, environment)
        options = ["--quiet", "--no-deps", *self._place(environment), *sources.options()]
        pinned = [f"{change.name}=={change.new}" for change in changes]
        _check("pip", "install", pinned, _run([*self.command, "install", *options, *pinned]))

    def install_locked(self, lines: Sequence[str], sources: Sources, environment: Environment) -> None:
        options = self._place(environment)
        with _lines(lines) as file:
            command = [*self.command, "install", "--quiet", *LOCKED, file, *options, *sources.options()]
            _check("pip", "install", map(_name_of_line, lines), _run(command))

    def _place(self, environment: Environment) -> list[str]:
        if environment.user:
            return ["--user"]
        return ["--upgrade", "--target", environment.folder] if environment.target else []

    def indexes(self, sources: Sources) -> list[str]:
        if sources.folder:
            return []
        if sources.indexes:
            return list(map(_address, sources.indexes))
        listed = _PIP_SETTING.findall(_run([*self.command, "config", "list"]).stdout)
        listed.sort(key=lambda each: ("global", "install", ":env:").index(each[0]))  # the last one counts
        found = {key: value.replace("\\n", " ").split() for _, key, value in listed}
        if found.get("no-index", ["0"])[:1] not in ([], ["0"], ["false"], ["no"]):
            return []
        return [*(found.get("index-url") or [PYPI]), *found.get("extra-index-url", ())]

    def resolve(self, requirements: Sequence[str], constraints: Sequence[str], sources: Sources) -> list[Locked]:
        with _lines(constraints) as file:
            options = ["--dry-run", "--ignore-installed", "--constraint", file]
            done, report = self._report([*options, *sources.options(), *requirements])
        if done.returncode:
            alone = ["--dry-run", "--ignore-installed", "--no-deps", *sources.options()]
            said = " ".join([done.stderr, *_CONFLICT.findall(done.stdout)])
            _require_listed(
                [*requirements, *constraints], said, sources, lambda one: not self._report([*alone, one])[0].returncode
            )
        _check("pip", "lock", requirements, done)
        return [of_report(entry) for entry in report]

    def _report(self, arguments: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        """Run an installation with a report; return what it would install. A file holds nothing that pip logs."""
        with tempfile.NamedTemporaryFile("r", suffix=".json", encoding="utf-8") as file:
            # Nothing is installed here; each file that is installed later has a hash.
            done = _run([*self.command, "install", "--report", file.name, *arguments], PIP_REQUIRE_HASHES="0")
            text = file.read()
        return done, json.loads(text)["install"] if text and not done.returncode else []

    def uninstall(self, names: Sequence[str]) -> None:
        _check("pip", "uninstall", names, _run([*self.command, "uninstall", "--quiet", "--yes", *names]))

    def download(
        self,
        requirements: Sequence[str],
        sources: Sources,
        folder: str,
        options: Sequence[str],
        constraints: Sequence[str] = (),
    ) -> None:
        """Download wheels of packages and of everything that they require."""
        command = [*self.command, "download", "--quiet", "--dest", folder, "--only-binary", ":all:", *options]
        with _lines(constraints) as file:
            limits = ["--constraint", file] if constraints else []
            done = _run([*command, *limits, *sources.options(), *requirements])
        _check("pip", "download", requirements, done)


class Uv:
    """uv, for an environment without pip."""

    def __init__(self) -> None:
        """Raise PluginError if uv is not in PATH."""
        found = shutil.which("uv")
        if not found:
            raise PluginError(
                f"{sys.prefix} contains no pip, and uv is not in PATH; "
                f"run {sys.executable} -m ensurepip, or install uv (https://docs.astral.sh/uv)"
            )
        self._path = found

    def plan(
        self, requirements: Sequence[str], sources: Sources, environment: Environment, *, upgrade: bool
    ) -> list[Change]:
        options = ["--deps", "--dry-run", "--no-require-hashes", *self._torch(sources), *self._fresh(sources)]
        for requirement in requirements if upgrade else ():
            options += ["--upgrade-package", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]]
        command = [*self._install(environment), *options, *sources.options(), *requirements]
        done = _run(command, UV_REQUIRE_HASHES=None)  # nothing is installed here; the option is for uv.toml
        if done.returncode:
            raise _failed("uv", "install", requirements, done.stderr)
        changes = [_change(name, version) for name, version in _UV_CHANGE.findall(done.stderr)]
        if not changes and "Would make no changes" not in done.stderr:
            raise PluginError(
                f"{self._path} reports its plan in a way that this hami-core does not read; install pip beside it: "
                f"uv pip install --python {sys.executable} pip\n  {_CREDENTIALS.sub('***@', done.stderr).strip()}"
            )
        return changes

    def install(self, changes: Sequence[Change], sources: Sources, environment: Environment) -> None:
        pinned = [f"{change.name}=={change.new}" for change in changes]
        options = ["--quiet", "--no-deps", *self._torch(sources), *self._fresh(sources), *sources.options()]
        if environment.target:
            options += ["--target", environment.folder]
        done = _run([*self._install(environment), *options, *pinned])
        if done.returncode and "--require-hashes" in done.stderr:  # the user's settings want them; its plan has none
            found = self._files("install", pinned, *self._compile_alone(pinned, sources))
            lines = [each.requirement(by_name=True) for each in found]
            return self.install_locked(lines, sources, environment)
        _check("uv", "install", pinned, done)

    def install_locked(self, lines: Sequence[str], sources: Sources, environment: Environment) -> None:
        options = [*self._torch(sources), *sources.options()]
        if environment.target:
            options += ["--target", environment.folder]
        with _lines(lines) as file:
            command = [*self._install(environment), "--quiet", *LOCKED, file, *options]
            _check("uv", "install", map(_name_of_line, lines), _run(command))

    def uninstall(self, names: Sequence[str]) -> None:
        command = [self._path, "pip", "uninstall", "--quiet", "--python", sys.executable]
        _check("uv", "uninstall", names, _run([*command, *names]))

    def indexes(self, sources: Sources) -> list[str]:
        return [] if sources.folder else list(map(_address, sources.indexes))

    def resolve(self, requirements: Sequence[str], constraints: Sequence[str], sources: Sources) -> list[Locked]:
        with _lines(requirements) as wanted, _lines(constraints) as limits:
            done, text = self._compile(["--deps", wanted, "--constraint", limits], sources)
        if done.returncode:

            def is_listed(one: str) -> bool:
                return self._compile_alone([one], sources)[0].returncode == 0

            _require_listed([*requirements, *constraints], done.stderr, sources, is_listed)
        return self._files("lock", requirements, done, text)

    def _files(
        self, verb: str, names: Sequence[str], done: subprocess.CompletedProcess[str], text: str
    ) -> list[Locked]:
        """Return the files of a resolution. Raises PluginError if it failed, or settings leave a package out of it."""
        _check("uv", verb, names, done)
        if absent := re.findall(r"^# (\S+)$", text.partition(_LEFT_OUT)[2], re.M):
            raise PluginError(
                f"uv left {', '.join(absent)} out of its resolution; nothing was changed; remove no-emit-package from "
                "its settings, which are in uv.toml or pyproject.toml"
            )
        return of_pylock(text)

    def _compile_alone(self, pinned: Sequence[str], sources: Sources) -> tuple[subprocess.CompletedProcess[str], str]:
        """Find the files of these versions, and not of what they require."""
        with _lines(pinned) as file:
            return self._compile([file, "--no-deps", *self._torch(sources)], sources)

    def _compile(self, arguments: Sequence[str], sources: Sources) -> tuple[subprocess.CompletedProcess[str], str]:
        """Run a resolution; return also its pylock.toml. The user's settings may name another file for it."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "pylock.toml")
            options = ["--format", "pylock.toml", "--output-file", str(file), "--no-header", "--annotate", "--quiet"]
            options += ["--python", sys.executable, *self._fresh(sources), *sources.options()]
            done = _run([self._path, "pip", "compile", *options, *arguments])
            return done, file.read_text("utf-8") if file.is_file() else ""

    def _torch(self, sources: Sources) -> list[str]:
        return [f"--torch-backend={sources.torch_backend}"] if sources.torch_backend else []

    def _fresh(self, sources: Sources) -> list[str]:
        """Return the option without which uv installs, from a folder, the first build that it saw of a version."""
        local = sources.folder or any(_address(index).startswith("file:") for index in sources.indexes)
        fresh = "--no-cache" if _is_on("UV_OFFLINE") else "--refresh"  # which uv takes only with a network
        return [fresh] if local else []

    def _install(self, environment: Environment) -> list[str]:
        if environment.user:
            raise PluginError("uv cannot install for one user: omit --user, or install pip first")
        return [self._path, "pip", "install", "--no-progress", "--python", sys.executable]


def _is_on(variable: str) -> bool:
    """Return whether a variable of uv is true."""
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on", "t", "y")


def _change(name: str, version: str) -> Change:
    return Change(normalised(name), installed_version(name), version)


def installed_version(name: str) -> str:
    """Return the version that this Python uses; empty if the distribution is not installed."""
    try:
        return metadata.version(name) or ""
    except Exception:  # not installed, or a leftover folder without metadata
        return ""


def installed_versions() -> list[str]:
    """Return every installed distribution with its version, as constraints."""
    found: dict[str, str] = {}
    for each in distributions():
        try:
            found.setdefault(normalised(each.metadata["Name"]), each.version)
        except Exception:  # a leftover folder
            continue
    return [f"{name}=={version}" for name, version in sorted(found.items()) if version]


def _run(command: Sequence[str], **variables: str | None) -> subprocess.CompletedProcess[str]:
    """Run a command with more variables; with None, without this one."""
    env = {name: value for name, value in {**_plain_environment(), **variables}.items() if value is not None}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=env)


def _plain_environment() -> dict[str, str]:
    """Return the environment without settings that change what an installer prints, and where it installs."""
    left_out = _PRINTING | _PLACES | {"PIP_NO_DEPENDENCIES"}  # a second name of PIP_NO_DEPS
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **_OFF, "NO_COLOR": "1"}


def require_installed(changes: Iterable[Change], folder: str) -> None:
    """Raise PluginError if an installation is not in its folder: a file with settings may name another one."""
    importlib.invalidate_caches()
    found = {(normalised(each.metadata["Name"] or ""), each.version) for each in distributions(path=[folder])}
    if absent := [f"{each.name} {each.new}" for each in changes if (each.name, each.new) not in found]:
        raise PluginError(
            f"the installer reported success, but {', '.join(absent)} is not in {folder}; remove target, prefix, root "
            f"and user from its settings, which {sys.executable} -m pip config list shows, and uv has in uv.toml"
        )


@contextmanager
def _lines(lines: Sequence[str]) -> Iterator[str]:
    """Write a requirements file, and return its path."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        if wrong := next((line for line in lines if VARIABLE.search(line)), ""):
            raise PluginError(
                f"{_name_of_line(wrong)} has ${{…}} in its version or address, which an installer replaces by a "
                "variable of this machine; take it from another index"
            )
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        yield file.name


def _name_of_line(line: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]


def _require_listed(pinned: Sequence[str], output: str, sources: Sources, is_listed: Callable[[str], bool]) -> None:
    """Raise PluginError with the packages that no index has in the installed version, if that is why a lock failed.

    Args:
        pinned: The installed packages with their versions, such as "acme-one==1.0".
        output: What the installer printed. Only packages that it names are asked for, one by one.
        sources: Where it looked for them.
        is_listed: Whether an index has a package in that version.
    """
    if _CONNECTION.search(output) or "Failed to fetch" in output:  # an index gave no answer, which pip and uv explain
        return
    named = set(map(normalised, re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", output.replace("==", " "))))
    suspects = [each for each in dict.fromkeys(pinned) if normalised(_name_of_line(each)) in named]
    if absent := [each.replace("==", " ") for each in suspects if not is_listed(each)]:
        lacks, remedy = "no index has", "an index has, or name the index that has it: --index URL"
        if sources.folder:
            lacks, remedy = f"{printable(sources.folder)} lacks", "the folder has, or add a wheel of this one"
        raise PluginError(
            f"{lacks} {' and '.join(absent)}, which is installed here; nothing was written; install a version that "
            f"{remedy}"
        )


def _check(tool: str, verb: str, names: Iterable[str], done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise _failed(tool, verb, names, done.stderr)


def _failed(tool: str, verb: str, names: Iterable[str], output: str) -> PluginError:
    """Return the error for a failed command, with what the installer says is wrong."""
    output = _CREDENTIALS.sub("***@", output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # An error of pip may go on in lines that are indented.
    errors = re.findall(r"^ERROR:.*(?:\n[ \t]+\S.*)*", output, re.M)
    said = [line.strip() for each in errors for line in each.removeprefix("ERROR:").splitlines()] or lines[-8:]
    if connections := _CONNECTION.findall(output):
        said.append(connections[-1].removeprefix("WARNING:").strip())
    reason = "\n  ".join(said) or "it printed no reason"
    return PluginError(f"{tool} could not {verb} {', '.join(names)}; nothing was changed\n  {reason}")
