#!/usr/bin/env bash
# ziglang 0.17.0: `zig c++ -fsyntax-only FILE` compiles zig's C++ library, and then fails for a file without mistakes.
#
# -fsyntax-only asks for no output, so nothing is linked. zig still compiles libc++, libc++abi, libunwind and its runtime,
# once for each target and set of flags, which takes more than a minute of processor time. It then looks for the object
# file that clang did not write: "failed to rename …: FileNotFound", status 1. Clang's own errors are shown at the same late
# time. A check of a header thus seems to hang, and passes only where an error is expected. `-c -o FILE` works at once.
# Seen on 29 November 2026, x86-64, 2 cores. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.0
echo "int main() { return 0; }" >"$work/x.cpp"

check() { # check ARGUMENT…: the status of zig with a new cache, and the C++ libraries that it has compiled
  rm -rf "$work/cache" && mkdir "$work/cache"
  local status=0
  ZIG_GLOBAL_CACHE_DIR="$work/cache" ZIG_LOCAL_CACHE_DIR="$work/cache" \
    "$work/env/bin/python" -m ziglang c++ "$@" "$work/x.cpp" >"$work/log" 2>&1 || status=$?
  echo "$status $(find "$work/cache" -name 'libc++*.a' -printf '%f\n' | sort -u | paste -sd' ')"
}

object=$(check -c -o "$work/x.o")
syntax=$(check -fsyntax-only)
echo "-c -o x.o:      status and libraries: $object"
echo "-fsyntax-only:  status and libraries: $syntax"
cut -c1-110 "$work/log"
[ "$object" = "0 " ]
[ "$syntax" = "1 libc++.a libc++abi.a" ]
grep -q "FileNotFound" "$work/log"
