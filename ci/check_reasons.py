#!/usr/bin/env python3
"""Prove that each dangerous construct of the native code is of a kind that is right, or has its reason beside it.

Usage: ci/check_reasons.py [ROOT]. Prints one line per construct without a reason, and exits 1 if there is any

The constructs are `catch (...)`, `reinterpret_cast`, detached threads, `dlopen`, and locks that no scope releases.
`KINDS` has the forms that are right wherever they occur. Every other one needs a comment, in its line or beside it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
REACH = 3  # lines below a comment that it may speak of
HANDLER_LINES = 4  # of a handler, in which it passes the exception on
CONSTRUCTS = {
    "catch (...)": re.compile(r"catch \(\.\.\.\)"),
    "reinterpret_cast": re.compile(r"reinterpret_cast<"),
    # Other classes have a method of that name too, so that the name of the thread says what it is.
    "a detached thread": re.compile(r"(?:thread\w*|worker\w*|\))\.detach\(\)|pthread_detach\("),
    "dlopen": re.compile(r"\bdlopen\("),
    "a lock without a scope": re.compile(r"(?:\.|->)(?:lock|unlock|try_lock)\(\)"),
}
# Forms that are right wherever they occur, and why. A handler is judged with the lines that follow it.
KINDS = {
    "catch (...)": (
        r"current_error\(|current_exception\(",  # the exception becomes the error of a request or of a call
        r"\bthrow;|rethrow_python_error\(",  # the exception goes on after something is undone
        r"set_python_error\(|current_python_error\(",  # the exception becomes that of Python
        r"throw_escaped_exception\(",  # the exception becomes an error that names the plugin
    ),
    "reinterpret_cast": (
        r"reinterpret_cast<(?:const )?(?:unsigned |signed )?char ?\*+>",  # bytes of any object may be read
        r"reinterpret_cast<(?:const )?(?:std::)?u?int8_t ?\*+>",  # the same
        r"reinterpret_cast<(?:std::)?u?int(?:ptr|64)_t>",  # an address as a number
        r"reinterpret_cast<(?:CUdeviceptr|CUstream)>",  # the driver's types for addresses and handles
        r"reinterpret_cast<(?:const )?void ?\*+>",  # for a device, which alone reads it, or a slot of Python
        r"reinterpret_cast<(?:const )?__m\d+i ?\*>",  # vectors may alias anything, and are read unaligned
        # These begin with the same head.
        r"reinterpret_cast<(?:const )?(?:PyObject|PyTypeObject|PyCFunction|py::detail::instance) ?\*?>",
        r"reinterpret_cast<(?:const )?sockaddr ?\*>",  # as bind and accept demand
        r"reinterpret_cast<.*(?:dlsym\(|Function ?\*>)",  # POSIX: functions from dlsym
    ),
    "a lock without a scope": (
        r"(?:shared_ptr<.*|Ptr \w+|context_?|pipe) = [\w.]+\.lock\(\)|\b(?:weak|known)\.lock\(\)",  # of std::weak_ptr
        r"HAMI_(?:TRY_)?(?:ACQUIRE|RELEASE)\(",  # a method that clang's analysis of locks knows
        r"HAMI_NO_THREAD_SAFETY_ANALYSIS \{.*lock\(\)",  # held over a fork, by handlers of pthread_atfork
        r"\block\.(?:un)?lock\(\)",  # of a scope, which releases it at its end
    ),
}


def files(root: Path) -> Iterator[Path]:
    """Yield all that users run or copy: not tests, but also templates and examples."""
    for folder in ("hami-core", "hami-plugins", "examples"):
        for path in sorted((root / folder).rglob("*")):
            is_source = SUFFIXES & {path.suffix, Path(path.name.removesuffix(".in")).suffix}
            if is_source and "tests" not in path.relative_to(root).parts:
                yield path


def has_comment(lines: list[str], at: int) -> bool:
    """Whether the line has a comment, or one begins at most REACH lines above it or right below it."""
    beside = [*lines[max(at - REACH, 0) : at], *lines[at + 1 : at + 2]]
    return "//" in lines[at] or any(line.lstrip().startswith("//") for line in beside)


def without_reason(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the constructs of a file without a reason, by the number of their line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for at, line in enumerate(lines):
        code = line.partition("//")[0]
        for name, pattern in CONSTRUCTS.items():
            found = len(pattern.findall(code))
            if not found or has_comment(lines, at):
                continue
            judged = " ".join(lines[at : at + HANDLER_LINES]) if name == "catch (...)" else code
            right = sum(len(re.findall(kind, judged)) for kind in KINDS.get(name, ()))
            if right < found:
                yield at + 1, name


def violations(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{line}: {name} without a reason: write in a comment beside it why it is right"
        for path in files(root)
        for line, name in without_reason(path)
    ]


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    found = violations(root)
    print("\n".join(found) or "every dangerous construct has a reason")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
