#!/usr/bin/env bash
# sentence-transformers 6.2.0: its extra [onnx] cannot be installed; without a version, it installs 5.7.0 instead.
#
# Every 6.x requires transformers 5, and optimum-onnx, which the extra needs, an older one in all releases up to 0.1.0.
# Given no version, an installer answers this in silence: `sentence-transformers[onnx]` is 5.7.0 with transformers 4.57,
# `sentence-transformers` and `sentence-transformers[openvino]` are 6.2.0 with transformers 5. Two environments that
# should differ in their engine differ in the major release of both libraries, and a comparison of engines measures it.
# Seen on 30 November 2026 with uv 0.13.8, for CPython 3.11 on x86-64. It resolves only. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check uv==0.13.8
export UV_CACHE_DIR="$work/cache"
printf '%s\n' 'sentence-transformers<=6.2.0' 'optimum-onnx<=0.1.0' >"$work/seen.txt" # the releases of that day

resolved() { # resolved REQUIREMENT: the versions of both libraries
  echo "$1" | "$work/env/bin/uv" pip compile --quiet --no-annotate --no-header --python-version 3.11 \
    --python-platform x86_64-manylinux_2_28 --constraint "$work/seen.txt" - 2>"$work/error.txt" |
    grep -E '^(sentence-)?transformers==' | tr '\n' ' '
}

for requirement in sentence-transformers 'sentence-transformers[openvino]' 'sentence-transformers[onnx]'; do
  printf '%-32s %s\n' "$requirement" "$(resolved "$requirement")" | tee -a "$work/seen"
done
if resolved 'sentence-transformers[onnx]==6.2.0' >"$work/pinned"; then
  echo "sentence-transformers[onnx]==6.2.0 has a solution: $(cat "$work/pinned")"
  exit 1
fi
grep -q "optimum-onnx" "$work/error.txt"
echo "sentence-transformers[onnx]==6.2.0  no solution"
[ "$(grep -c "sentence-transformers==6.2.0 transformers==5" "$work/seen")" = 2 ]
grep -q "^sentence-transformers\[onnx\] .*sentence-transformers==5.7.0 transformers==4" "$work/seen"
