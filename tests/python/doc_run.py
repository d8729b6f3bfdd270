"""Runs the code blocks of one Markdown document in a temporary folder and checks each block.

* `python`: all blocks of a document, in order, are one program in a separate process. Warnings are errors.
* `text`: the complete output of the Python block before it.
* `console`: each line that starts with `$ ` is run; the lines below it are its complete output. `hami` and `python` are
  those of the tests. Nothing is downloaded: the names after `pip install` must be packages of this repository or
  installed, a folder is installed by copying the package that its pyproject.toml describes, and the commands of `ci/`,
  which would run these tests again, must exist and accept the options used. `uvicorn … &` and `hami serve … &` start
  a server on a free port, which the other commands of the same block use; `kill %1`, or the end of the block, stops
  it. tests/wheels runs the pages with the directive `machine`.
* `toml`: parsed and passed to `hami check`, except for a pyproject.toml.
* `c`: a verbatim part of hami/abi.h.
* `mermaid`: a diagram of a known kind, with a plausible structure; it is not rendered.
* `cpp`, `cmake`: files of a native plugin, which tests/abi builds and runs, or a program that tests/cpp runs.
"""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_of
from doc_server import Server
from fake_site import tomllib, write_metadata

_MARK = "\x1e"
_MERMAID_BLOCKS = [[word] for word in ("subgraph", "loop", "alt", "opt", "par", "critical", "box", "rect")]
_NAMES = re.compile(r"^name = \"(.*)\"$", re.MULTILINE)


class Document:
    """The blocks of a document, written out and ready to run in `folder`."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.blocks = blocks_of(path)
        self.folder = folder
        self.site = folder / "site"
        self.printed: dict[int, str] = {}  # by the line of the block
        self._server: Server | None = None
        self.seconds = 0.0  # processor time of the processes that the blocks have started
        self._write_files()
        self._run_python()

    def check(self, block: Block) -> None:
        """Fail if the block does not do what the document shows; skip it if it cannot run here."""
        for reason in filter(None, [block.directives.get("skip"), self._missing(block)]):
            pytest.skip(f"{block.place}: {reason}")
        check: dict[str, Callable[[Block], None]] = {
            "python": self._check_python,
            "text": self._check_text,
            "console": self._check_console,
            "toml": self._check_toml,
            "c": self._check_header,
            "cpp": self._check_native,
            "cmake": self._check_native,
            "mermaid": self._check_diagram,
        }
        if block.language not in check:
            pytest.fail(f"{block.place}: no test handles blocks of {block.language}")
        check[block.language](block)

    def _missing(self, block: Block) -> str | None:
        for module in block.directives.get("needs", "").split():
            try:
                found = importlib.util.find_spec(module)
            except ModuleNotFoundError:  # the package of the module
                found = None
            if not found:
                return f"needs {module}, which is not installed"
        return None

    def _write_files(self) -> None:
        for block in self.blocks:
            if name := block.directives.get("file"):
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, "utf-8")
        for block in self.blocks:
            if block.language == "console":
                for target in re.findall(r"^\$ pip install (\./\S+)$", block.text, re.MULTILINE):
                    self._install(self.folder / target)

    def _install(self, project: Path) -> None:
        data = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
        package = project / data["name"].replace("-", "_")
        assert (package / "__init__.py").is_file(), f"hatchling finds no package {package.name} in {project.name}"
        for entry in project.iterdir():
            if entry.is_dir():
                shutil.copytree(entry, self.site / entry.name)
        write_metadata(self.site, data["name"], data["version"], data["entry-points"])

    def _environment(self) -> dict[str, str]:
        path = [str(self.site), str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONIOENCODING": "utf-8"}

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        with self._timed():
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                env=self._environment(),
                cwd=self.folder,
                timeout=300,
            )

    def _run_python(self) -> None:
        """Run the Python blocks as one program with the line numbers of the document."""
        program: list[str] = []
        blocks = [block for block in self.blocks if self._is_program(block)]
        for block in blocks:
            program += [""] * (block.line - 1 - len(program))
            program += [f'print("{_MARK}{block.line}", flush=True)', *block.text.splitlines()]
        if not blocks:
            return
        script = self.folder / f"{blocks[0].document.stem}_blocks.py"
        script.write_text("\n".join(program) + "\n", "utf-8")
        result = self._run(sys.executable, "-W", "error", str(script))
        before, *parts = result.stdout.split(_MARK)
        for part in parts:
            line, _, text = part.partition("\n")
            self.printed[int(line)] = text
        self.failed_in = None if result.returncode == 0 else max(self.printed, default=0)
        self.failure = before + (parts[-1] if parts else "")

    def _is_program(self, block: Block) -> bool:
        skipped = "file" in block.directives or "skip" in block.directives or self._missing(block)
        return block.language == "python" and not skipped

    def _check_python(self, block: Block) -> None:
        if name := block.directives.get("file"):
            compile(block.text, name, "exec")  # it runs when it is imported
            return
        if self.failed_in == block.line:
            pytest.fail(f"{block.place} fails:\n{self.failure}", pytrace=False)
        if block.line not in self.printed:
            pytest.fail(f"{block.place} is not reached: the block at line {self.failed_in} fails", pytrace=False)

    def _check_text(self, block: Block) -> None:
        before = (other for other in reversed(self.blocks) if other.line < block.line and other.language == "python")
        source = next(other for other in before if not {"file", "skip"} & other.directives.keys())
        if reason := self._missing(source):
            pytest.skip(f"{block.place}: {reason}")
        printed = self.printed.get(source.line, "")
        printed = _without_notes(printed)
        assert printed == block.text, f"{block.place}: the output of line {source.line} differs"

    def _check_console(self, block: Block) -> None:
        if any("machine" in other.directives for other in self.blocks):
            guides = (ROOT / "tests" / "wheels" / "matrix" / "test_guides.py").read_text("utf-8")
            assert f'"{block.document.name}"' in guides, f"{block.place} is not run by tests/wheels"
            return
        command, output = "", ""
        try:
            for line in [*block.text.splitlines(), "$ "]:
                if not line.startswith("$ "):
                    output += f"{line}\n"
                    continue
                if command:
                    self._check_command(block, command, output)
                command, output = line[2:], ""
        finally:
            failure = self._stop_server()
        assert not failure, f"{block.place}: the server fails: {failure}"

    def _stop_server(self) -> str | None:
        server, self._server = self._server, None
        if server is None:
            return None
        with self._timed():
            return server.stop()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the processor time of the child processes that end in this block."""
        before = _seconds_of_children()
        yield
        self.seconds += _seconds_of_children() - before

    def _check_command(self, block: Block, command: str, output: str) -> None:
        program, *arguments = shlex.split(command)
        if arguments[-1:] == ["&"] and (program == "uvicorn" or (program, arguments[0]) == ("hami", "serve")):
            self._server = Server(program, arguments[:-1], self._environment(), self.folder)
        elif program.startswith("./ci/"):
            _check_ci_command(block, ROOT / program, arguments)
        elif program == "pip":
            _check_pip(block, arguments)
        elif program in ("hami", "python"):
            start = [sys.executable, "-m", "hami"] if program == "hami" else [sys.executable]
            result = self._run(*start, *map(self._server.address_in if self._server else str, arguments))
            if output:
                assert result.stdout == output, f"{block.place}: the output of `{command}` differs"
            else:
                assert result.returncode == 0, f"{block.place}: `{command}` fails:\n{result.stdout}"
        elif program == "curl" and self._server:
            if not shutil.which("curl"):
                pytest.skip(f"{block.place}: needs curl, which is not installed")
            printed = self._run("curl", "--max-time", "60", *map(self._server.address_in, arguments)).stdout
            assert _without_notes(printed) == output, f"{block.place}: the answer to `{command}` differs"
        elif program == "kill":
            failure = self._stop_server()
            assert not failure, f"{block.place}: the server fails: {failure}"
        else:
            pytest.fail(f"{block.place}: no test can run {program}")

    def _check_header(self, block: Block) -> None:
        header = (ROOT / "hami-core" / "include" / "hami" / "abi.h").read_text("utf-8")
        assert block.text in header, f"{block.place}: hami/abi.h does not contain this text"

    def _check_native(self, block: Block) -> None:
        if quoted := block.directives.get("quotes"):
            assert block.text == (block.document.parent / quoted).read_text("utf-8"), f"{block.place} is not {quoted}"
            return
        page = f'DOCUMENT = "{block.document.name}"'
        assert "file" in block.directives, f"{block.place}: only whole files are built"
        assert page in (ROOT / "tests" / "abi" / "test_document.py").read_text("utf-8"), f"{block.place} is not built"

    def _check_diagram(self, block: Block) -> None:
        kind, *lines = block.text.splitlines()
        assert re.fullmatch(r"flowchart (LR|TB|TD)|sequenceDiagram|stateDiagram-v2", kind), f"{block.place}: {kind}?"
        opened = sum(line.endswith("{") or line.split()[:1] in _MERMAID_BLOCKS for line in lines)
        closed = sum(line.strip() in ("end", "}") for line in lines)
        assert opened == closed, f"{block.place}: a part of the diagram is not closed"
        for line in lines:
            pairs = "[]", "()", '""'
            assert all(line.count(left) == line.count(right) for left, right in pairs), f"{block.place}: {line}"

    def _check_toml(self, block: Block) -> None:
        data = tomllib.loads(block.text)
        name = block.directives.get("file", f"line-{block.line}.toml")
        if Path(name).name == "pyproject.toml":
            assert data["project"]["name"], block.place
            return
        (self.folder / name).write_text(block.text, "utf-8")
        imports = [f"--import={module}" for module in block.directives.get("imports", "").split()]
        result = self._run(sys.executable, "-m", "hami", "check", name, *imports)
        assert result.returncode == 0, f"{block.place}:\n{result.stdout}"


def _without_notes(printed: str) -> str:
    if sys.version_info < (3, 11):  # exceptions have no notes: the message contains the place
        printed = re.sub(r"^in (backend|node) .*\n", "", printed, flags=re.MULTILINE)
        printed = re.sub(r'\\nin (backend|node) (\\"|[^"\\])*(?="})', "", printed)  # the same inside JSON
        printed = re.sub(r"\\nin (backend|node) [^'\n]*", "", printed)  # the same inside a repr
    return printed


def _seconds_of_children() -> float:
    """Return the processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check_ci_command(block: Block, program: Path, arguments: list[str]) -> None:
    assert os.access(program, os.X_OK), f"{block.place}: {program} is not an executable file"
    text = program.read_text("utf-8")
    for argument in arguments:
        if argument.startswith("-"):
            assert f'"{argument}"' in text, f"{block.place}: {program.name} has no option {argument}"


def _check_pip(block: Block, arguments: list[str]) -> None:
    assert arguments[0] == "install", block.place
    projects = [ROOT / "pyproject.toml", *ROOT.glob("hami-plugins/*/pyproject.toml")]
    ours = {_NAMES.search(project.read_text("utf-8"))[1] for project in projects}  # type: ignore[index]
    words = [word for word in arguments[1:] if word not in ("--find-links", "dist") and not word.startswith("./")]
    names = {word.partition("[")[0] for word in words}  # without extras
    unknown = sorted(name for name in names - ours if not _is_installed(name))
    assert not unknown, f"{block.place}: {unknown} are neither packages of this repository nor installed"


def _is_installed(distribution: str) -> bool:
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False
