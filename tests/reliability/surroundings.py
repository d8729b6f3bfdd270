"""Full and broken surroundings: commands and servers work, or say in one line what is wrong, and lose nothing.

    python tests/reliability/surroundings.py --seconds 300
    python tests/reliability/surroundings.py --only "a full disk" "umask 000"

Each command runs in each surrounding, in an order that is always the same; `--only` takes parts of the names of both.
A command may succeed, or end with `error: …`; a traceback, a signal, a warning of Python, a file that is half written,
or a lost file breaks the promise. Surroundings with file systems or users of their
own need bubblewrap, and are left out without it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import mutations
from promise import Clock, Figures, keep, main

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 120  # of one command, also on a loaded machine
LEAST = 8  # pairs, in the short form
UNKNOWN_USER = 54321  # without a name and a home
SMALL = 1 << 16  # bytes of a full disk
# HAMI_TRACE names a file that is written.
OUR_VARIABLES = [f"HAMI_{name}" for name in ("PLUGINS", "PLUGIN_PATH", "WATCHDOG", "LOG", "TOP", "CATALOG", "CACHE")]
OUR_VARIABLES += [f"HAMI_ALLOWED_{name}" for name in ("VARIABLES", "MODULES", "LIBRARIES", "FACTORIES")]
OUR_VARIABLES += [f"HAMI_{name}" for name in ("ACCEL_CACHE", "SEARCH_TIMEOUT", "IMAGE_PASSES", "PROCESS_MEMFD")]
SESSION = ".ses"  # an empty file that ONNX Runtime leaves in the folder for temporary files
OLD = b"the file of an earlier run\n"
UNTIDY = (
    "Traceback (most recent call last)",
    "Exception ignored",
    "Warning:",
    "Segmentation fault",
    "terminate called",
)


@dataclass
class Surroundings:
    """What is different for a command. `{work}` is its folder, and `{out}` the folder of its files."""

    variables: dict[str, str | None] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    before: Callable[[], object] | None = None  # runs in the child, before the command
    output: str = ""  # a file instead of the pipe for its standard output
    needs: str = ""  # a program


def bwrap(*options: str) -> tuple[str, ...]:
    return ("bwrap", "--dev-bind", "/", "/", *options)


def limit(name: int, value: int) -> Callable[[], object]:
    return lambda: resource.setrlimit(name, (value, value))


# Copies the files of an earlier run onto a small disk, runs a command there, and copies what is left back.
ON_SMALL_DISK = """cp -r {old}/. {out}; head -c 1000000 /dev/zero >{out}/filler 2>/dev/null
truncate -s -{free} {out}/filler; "$@"; status=$?; rm -f {out}/filler; cp -r {out}/. {left}; exit $status"""


def small_disk(free: int) -> Surroundings:
    options = bwrap("--size", str(SMALL), "--tmpfs", "{out}", "--size", "4096", "--tmpfs", "{home}")
    script = ON_SMALL_DISK.replace("{free}", str(free))
    return Surroundings({"TMPDIR": "{out}"}, (*options, "sh", "-c", script, "sh"), needs="bwrap")


SURROUNDINGS = {
    "ordinary": Surroundings(),
    "a full disk": small_disk(0),
    "a disk with 8 KB left": small_disk(8192),
    "files of at most 4 KB": Surroundings(before=limit(resource.RLIMIT_FSIZE, 4096)),
    "a full standard output": Surroundings(output="/dev/full"),
    "a closed standard output": Surroundings(prefix=("sh", "-c", 'exec "$@" >&-', "sh")),
    "a closed standard input": Surroundings(prefix=("sh", "-c", 'exec "$@" <&-', "sh")),
    **{
        f"{count} descriptors": Surroundings(before=limit(resource.RLIMIT_NOFILE, count))
        for count in (6, 8, 10, 13, 17, 24)
    },
    "no /dev/shm": Surroundings(prefix=bwrap("--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm"), needs="bwrap"),
    "a full /dev/shm": Surroundings(prefix=bwrap("--size", "4096", "--tmpfs", "/dev/shm"), needs="bwrap"),
    "a read-only file system": Surroundings(
        prefix=("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        needs="bwrap",
        variables={"HOME": "{home}"},
    ),
    "no temporary folder": Surroundings(
        variables={"TMPDIR": "/nowhere"}, prefix=bwrap("--tmpfs", "/var/tmp", "--remount-ro", "/var/tmp"), needs="bwrap"
    ),
    "no home": Surroundings(variables={"HOME": None, "XDG_CACHE_HOME": None}),
    "a home that is absent": Surroundings(variables={"HOME": "{home}/absent"}),  # also after a command made it
    "a home that is a file": Surroundings(variables={"HOME": "/etc/passwd"}),
    "a user without a name": Surroundings(
        {"HOME": None, "USER": None, "LOGNAME": None},
        ("bwrap", "--unshare-user", "--uid", str(UNKNOWN_USER), "--gid", str(UNKNOWN_USER), *bwrap()[1:]),
        needs="bwrap",
    ),
    "colours": Surroundings(variables={"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "PY_COLORS": "1", "TERM": "dumb"}),
    "a narrow terminal": Surroundings(variables={"COLUMNS": "1", "LINES": "1"}),
    "no columns": Surroundings(variables={"COLUMNS": "0"}),
    "an unknown terminal": Surroundings(variables={"TERM": "nonsense", "NO_COLOR": "1"}),
    "settings of pip": Surroundings(
        variables={
            "PIP_QUIET": "3",
            "PIP_TARGET": "/nowhere/target",
            "PIP_USER": "1",
            "PIP_REQUIRE_VIRTUALENV": "1",
            "PIP_FORMAT": "columns",
            "PIP_NO_COLOR": "0",
            "PIP_REPORT": "/nowhere/report",
            "PIP_LOG": "/nowhere/log",
            "PIP_PREFIX": "/nowhere/prefix",
            "PIP_DRY_RUN": "1",
            "PIP_PROGRESS_BAR": "on",
            "PIP_VERBOSE": "2",
        }
    ),
    "a wrong setting of pip": Surroundings(variables={"PIP_TIMEOUT": "soon", "PIP_CONFIG_FILE": "/etc/passwd"}),
    "locale C": Surroundings(variables={"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "ASCII output": Surroundings(variables={"PYTHONIOENCODING": "ascii"}),
    "an absent locale": Surroundings(variables={"LC_ALL": "xx_YY.UTF-8"}),
    **{
        f"rubbish in variables of HAMI, {text!r}": Surroundings(dict.fromkeys(OUR_VARIABLES, text))
        for text in ("", "rubbish", "/nowhere/\udcff:é \x1b[31m", "-1", "9" * 400)
    },
    "a certificate that is absent": Surroundings(
        dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), "/nowhere/certificate.pem")
    ),
    "a closed standard error": Surroundings(prefix=("sh", "-c", 'exec "$@" 2>&-', "sh")),
    "a closed standard input, standard output and standard error": Surroundings(
        prefix=("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    ),
    "umask 077": Surroundings(before=lambda: os.umask(0o077)),
    "umask 777": Surroundings(before=lambda: os.umask(0o777)),
    "umask 000": Surroundings(before=lambda: os.umask(0)),
    "a folder that is gone": Surroundings(
        prefix=("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh")
    ),
    "no variables": Surroundings(variables=dict.fromkeys(os.environ)),
}


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    output: str = ""  # the file that it writes
    serves: bool = False
    streams: bool = False  # writes the file from its beginning on, and so replaces an older one


def hami(*words: str, output: str = "", serves: bool = False, streams: bool = False) -> Command:
    return Command((sys.executable, "-m", "hami", *words), output, serves, streams)


COMMANDS = {
    "run": hami("run", "S[Identity,Identity]", "--text", "ein schöner Täg", "--stats"),
    "run an array": hami("run", "Identity", "{work}/rows.npy", "--output", "{out}/arrays"),
    "run a model": hami("run", "OnnxTensor", "--set", "model={work}/model.onnx", "{work}/rows.npy", "--json"),
    "run with a trace": hami(
        "run", "Identity", "--text", "x", "--trace", "{out}/new.pftrace", output="new.pftrace", streams=True
    ),
    "run in a process": hami("run", "Process[Identity]", "--text", "x"),
    "run a bundle": hami("run", "{work}/app.hami", "--text", "hello"),
    "check": hami("check", "{work}/pipe.toml"),
    "check a model": hami("check", "{work}/model.toml", "--json"),
    "show": hami("show", "{work}/model.onnx"),
    "doctor": hami("doctor"),
    "plugins": hami("plugins"),
    "info": hami("info"),
    "graph": hami("graph", "{work}/pipe.toml"),
    "bench": hami(
        "bench",
        "Identity",
        "--text",
        "x",
        "--seconds",
        "0.1",
        "--clients",
        "1",
        "--output",
        "{out}/bench.json",
        "--no-ceiling",
        output="bench.json",
    ),
    "trace convert": hami(
        "trace", "convert", "{work}/good.pftrace", "--chrome", "{out}/chrome.json", output="chrome.json"
    ),
    "bundle": hami(
        "bundle", "{work}/pipe.toml", "-o", "{out}/new.hami", "--no-packages", "--text", "x", output="new.hami"
    ),
    "unpack": hami("unpack", "{work}/app.hami", "{out}/unpacked"),
    "verify": hami("verify", "{work}/app.hami"),
    "lock": hami("lock", "--to", "{out}/pylock.toml", "--index", "http://127.0.0.1:9/simple", output="pylock.toml"),
    "sync": hami("sync", "{work}/pylock.toml", "--dry-run", "--from", "{work}"),
    "install": hami("install", "hami-onnx", "--dry-run", "--from", "{work}"),
    "schema": hami("schema"),
    "compile": hami("compile", "{work}/recipe.toml", "-o", "{out}/new.accel", output="new.accel"),
    "new-plugin": hami("new-plugin", "acme-plug", "--help"),
    "build": hami("build", "check", "{work}/nothing.whl"),
    "serve": hami("serve", "Identity", "--http", "0", serves=True),
    "serve by Python": hami("serve", "{work}/pipe.toml", "--http", "0", "--grpc", "0", "--door", "python", serves=True),
    "serve with workers": hami("serve", "Identity", "--http", "0", "--workers", "2", serves=True),
    "soak": Command((sys.executable, str(ROOT / "ci" / "soak"), "--list")),
}


# ---- one command in one surrounding ----


class Place:
    """A folder with what the commands read, and one for what they write."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.names = {name: str(base / name) for name in ("work", "out", "home", "old", "left")}
        for folder in self.names.values():
            Path(folder).mkdir(parents=True)
            Path(folder).chmod(0o777)
        base.chmod(0o755)
        self.work, self.out, self.left = (base / name for name in ("work", "out", "left"))
        prepare(self.work)
        for command in COMMANDS.values():
            if command.output:
                (base / "old" / command.output).write_bytes(OLD)

    def fill(self, word: str) -> str:
        return re.sub(r"\{(work|out|home|old|left)\}", lambda found: self.names[found.group(1)], word)

    def clear(self, command: Command) -> None:
        for name in ("out", "home", "left"):
            for entry in (self.base / name).iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if command.output:
            (self.out / command.output).write_bytes(OLD)
            (self.out / command.output).chmod(0o666)


def prepare(work: Path) -> None:
    """Write the files that commands read."""
    import hami as runtime
    import numpy

    numpy.save(work / "rows.npy", numpy.ones((2, 4), numpy.float32))
    (work / "pipe.toml").write_text('[words]\nbackend = "S[Identity,Identity]"\n')
    (work / "model.toml").write_text('[m]\nbackend = "OnnxTensor"\nmodel = "model.onnx"\n')
    (work / "recipe.toml").write_text('[[model]]\nname = "m"\nfile = "model.onnx"\n')
    wheel = "small-1.0-py3-none-any.whl"
    locked = f'{{name = "{wheel}", path = "{wheel}", hashes = {{sha256 = "{"0" * 64}"}}}}'
    package = f'[[packages]]\nname = "small"\nversion = "1.0"\nwheels = [{locked}]\n'
    (work / "pylock.toml").write_text(f'lock-version = "1.0"\ncreated-by = "hami"\n{package}')
    with runtime.pipe("Identity") as pipe, pipe.trace(work / "good.pftrace"):
        pipe({"data": 1})
    good, _ = mutations.model()
    (work / "model.onnx").write_bytes(good[0])
    words = COMMANDS["bundle"].words
    made = [word.replace("{out}/new.hami", str(work / "app.hami")).replace("{work}", str(work)) for word in words]
    subprocess.run(made, check=True, capture_output=True)
    for path in work.iterdir():
        path.chmod(0o644)


def attempt(place: Place, command: Command, where: str) -> str:
    """Run a command, and return what is wrong, or ""."""
    around = SURROUNDINGS[where]
    place.clear(command)
    variables = {**os.environ, "HOME": place.names["home"], "TMPDIR": place.names["out"]}
    variables["PIP_RETRIES"] = "0"  # the index is always absent
    for name in ("FORCE_COLOR", "NO_COLOR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        variables.pop(name, None)
    for name, value in around.variables.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = place.fill(value)
    words = [place.fill(word) for word in (*around.prefix, *command.words)]
    with contextlib.ExitStack() as opened:
        out = opened.enter_context(open(around.output, "w")) if around.output else subprocess.PIPE
        process = subprocess.Popen(
            words,
            env=variables,
            cwd=place.out,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            preexec_fn=around.before,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            if command.serves and not around.output:
                assert process.stdout
                stop_when_ready(process, process.stdout.readline())
            text, errors = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            return f"it did not end in {LONGEST_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    left = place.left if "{left}" in "".join(around.prefix) else place.out
    return wrong(process.returncode, f"{text or ''}{errors}", command, left, where)


def stop_when_ready(process: subprocess.Popen[str], line: str) -> None:
    """Ask a server that has started whether it is ready, and end it as a service manager does."""
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    if found:
        with urllib.request.urlopen(f"{found.group()}/v2/health/ready", timeout=LONGEST_S) as answer:
            assert answer.status == 200
        os.kill(server_in(process.pid), signal.SIGTERM)


def server_in(group: int) -> int:
    """Return the process of the server, which other programs may have started, in a group."""
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0] == os.fsencode(sys.executable) and os.getpgid(int(folder.name)) == group:
                return int(folder.name)
    return group


def wrong(status: int, text: str, command: Command, left: Path, where: str) -> str:
    said = text[-1500:]
    if status < 0 or status > 2:
        return f"status {status}: {said}"
    if found := next((each for each in UNTIDY if each in text), ""):
        return f"it printed {found!r}: {said}"
    if status and not text.strip() and "standard error" not in where:
        return f"status {status} without a reason: {said!r}"
    if command.output:
        file = left / command.output
        if not file.is_file():
            return f"{command.output} is lost: {said}"
        content = file.read_bytes()
        is_printing = "standard output" in where  # fails after the file is written
        if status and content != OLD and not command.streams and not is_printing:
            return f"status {status}, and {command.output} of an earlier run is lost ({len(content)} bytes): {said}"
        if not status and (content == OLD or not content):
            return f"status 0, and {command.output} was not written: {said}"
    expected = {SESSION, *(each.output for each in COMMANDS.values())}
    if parts := [path.name for path in left.iterdir() if path.is_file() and path.name not in expected]:
        return f"it left {parts}: {said}"
    return ""


def can(needs: str) -> bool:
    if not needs:
        return True
    return bool(shutil.which(needs)) and subprocess.run([*bwrap(), "true"], capture_output=True).returncode == 0


def pairs(names: list[str]) -> list[tuple[str, str]]:
    possible = [name for name, around in SURROUNDINGS.items() if can(around.needs)]
    found = [(around, command) for around in possible for command in COMMANDS]
    found = [each for each in found if not (COMMANDS[each[1]].serves and "standard output" in each[0])]  # says its port
    random.Random(0).shuffle(found)
    return [each for each in found if not names or any(name in part for name in names for part in each)]


def run(seconds: float, strict: bool, names: list[str] | None = None) -> Figures:
    """Run each command in each surrounding, in an order that is always the same, while there is time."""
    done, clock = 0, Clock(seconds)
    failed = []
    tried = set()
    chosen = pairs(names or [])
    with tempfile.TemporaryDirectory(prefix="hami-") as folder:
        place = Place(Path(folder, "place"))
        Path(folder).chmod(0o755)
        for around, command in chosen:
            if not clock and done >= LEAST:
                break
            if problem := attempt(place, COMMANDS[command], around):
                failed.append(f"{command} with {around}: {problem}")
                print(failed[-1], file=sys.stderr, flush=True)
            tried.add(around)
            done += 1
    keep(not failed, "\n".join([f"{len(failed)} of {done}", *failed]))
    absent = [name for name, around in SURROUNDINGS.items() if not can(around.needs)]
    found: Figures = {"commands": done, "of": len(chosen), "surroundings": len(tried)}
    return {**found, "not tried": f"without bwrap: {', '.join(absent)}"} if absent else found


if __name__ == "__main__":
    if "--only" in sys.argv:
        at = sys.argv.index("--only")
        print(run(3600, False, sys.argv[at + 1 :]))
    else:
        main(run, "commands work in full and broken surroundings, or say why not")
