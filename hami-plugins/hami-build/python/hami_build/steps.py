"""Long steps: progress on the terminal after two seconds, a log per command, its last lines on failure."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hami_build import cache
from hami_build.errors import Failure as Failure

SHOWN_AFTER_S = 2.0
REPEATED_AFTER_S = 20.0  # without a terminal, where a line cannot be rewritten
TAIL_LINES = 40
shows_progress = True  # False while the output goes to a file that is shown later: then only the end of a step is
# Messages of the system and of zig for a full disk, in the log of a command.
DISK_IS_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "NoSpaceLeft")


@contextmanager
def step(title: str, detail: Callable[[], str] = str) -> Iterator[None]:
    """Show `title`, `detail` and the elapsed time if the block takes over two seconds.

    Steps in other threads than the main one are silent: the code that started the threads shows them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    start, ended, shown = time.monotonic(), threading.Event(), threading.Event()
    terminal = sys.stderr.isatty()

    def tick() -> None:
        wait = SHOWN_AFTER_S
        while not ended.wait(wait):
            shown.set()
            if not shows_progress:
                return
            seconds = time.monotonic() - start
            line = f"{title}{detail()} … {seconds:.0f} s"
            sys.stderr.write(f"\r\033[K{line}" if terminal else f"{line}\n")
            sys.stderr.flush()
            wait = 1.0 if terminal else REPEATED_AFTER_S

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        ended.set()
        ticker.join()
        if shown.is_set():
            line = f"{title}: {outcome} {time.monotonic() - start:.1f} s"
            sys.stderr.write(f"\r\033[K{line}\n" if terminal else f"{line}\n")
            sys.stderr.flush()


def run(command: Sequence[object], log: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run `command` with its output in the log file `log`; return the output, or raise Failure with its last lines."""
    path = cache.folder() / "logs" / f"{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # another process may be writing a log of that name: it keeps its own file
    with path.open("w+b") as output:
        output.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        output.flush()
        try:
            result = subprocess.run(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment() if env is None else env),
                cwd=cwd,
                check=False,
            )
        except OSError as error:
            raise Failure(f"cannot start {command[0]}: {error.strerror}") from error
        output.seek(0)
        text = output.read().decode(errors="replace")
    if result.returncode != 0:
        tail = "\n".join(text.splitlines()[-TAIL_LINES:])
        raise Failure(f"{tail}\n\n{command[0]} ended with {result.returncode}; the complete log: {path}")
    return text.partition("\n")[2]


def environment(**extra: str) -> dict[str, str]:
    """Return the environment for commands: ours without settings of another Python, plus settings for pip."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    defaults = {
        "PIP_CACHE_DIR": str(cache.folder() / "pip"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_RETRIES": "8",  # each waits twice as long: an index may be unreachable for a minute
        "PYTHONNOUSERSITE": "1",
    }
    return {**defaults, **inherited, **extra}


def lock_file(name: str) -> IO[str]:
    folder = cache.folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("w")


@contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """Wait until no other command of this checkout uses the cache."""
    with lock_file("checkout") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step("waiting for another command of this checkout"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the lock of one thing in the cache against processes of the same command that run beside this one."""
    with lock_file(name) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def guarded(main: Callable[[], int]) -> int:
    """Run `main` and return its exit status: 1 for a Failure or a full disk, with a message, and 130 for Ctrl-C."""
    try:
        return main()
    except (Failure, OSError) as error:
        text = str(error.args[0][0][-1] if isinstance(error, shutil.Error) else error)  # of many files, the first one
        of_full_disk = [line for line in text.splitlines() if any(message in line for message in DISK_IS_FULL)]
        disk_is_full = bool(of_full_disk)
        if not isinstance(error, Failure) and not disk_is_full:
            raise
        text = of_full_disk[-1] if disk_is_full else text  # the output of a command may contain a traceback
        print(f"\n{text}", file=sys.stderr)
        if disk_is_full:
            print("Free some space and run the command again; finished parts are kept.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished parts are kept for the next run", file=sys.stderr)
        return 130
