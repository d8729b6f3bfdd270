#!/usr/bin/env bash
# uv 0.13.8: a wheel that was built again under the same version is not installed from a folder; the earlier one is.
#
# uv keeps an unpacked wheel in its cache. Given the path of a wheel, it compares the time of the file. Given a folder by
# --find-links, or an index at file:// whose page has the hash of the new file, it does not: a new environment gets the
# contents of the first build, without a warning. pip installs the new wheel each time; uv does with --refresh-package NAME.
# Seen on 28 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check uv==0.13.8 flit_core==3.12.0 build==1.3.0
export UV_CACHE_DIR="$work/cache"
uv="$work/env/bin/uv"
"$uv" --version

build() { # build TEXT: the wheel of version 1.0, whose module says TEXT
  mkdir -p "$work/project"
  cat >"$work/project/pyproject.toml" <<'TOML'
[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
[project]
name = "built-again"
version = "1.0"
description = "A module with one name"
TOML
  echo "SAYS = '$1'" >"$work/project/built_again.py"
  "$work/env/bin/python" -m build --wheel --no-isolation --outdir "$work/dist" "$work/project" >/dev/null
}

installed() { # installed COMMAND…: what the module says in a new environment
  python3 -m venv --without-pip "$work/new"
  "$@" >/dev/null
  "$work/new/bin/python" -c "import built_again; print(built_again.SAYS)"
  rm -rf "$work/new"
}

with_uv() { "$uv" pip install --quiet --python "$work/new/bin/python" "$@"; }
with_pip() { "$work/env/bin/pip" --python "$work/new/bin/python" install --quiet --disable-pip-version-check "$@"; }
index() { # the page of an index in a folder
  mkdir -p "$work/simple/built-again"
  for wheel in "$work"/dist/*.whl; do
    digest=$(sha256sum "$wheel" | cut -d' ' -f1)
    echo "<!DOCTYPE html><html><body><a href=\"file://$wheel#sha256=$digest\">${wheel##*/}</a></body></html>"
  done >"$work/simple/built-again/index.html"
}

options=(--no-index --find-links "$work/dist" built-again)
of_index=(--index-url "file://$work/simple" built-again)

build first
index
installed with_uv "${options[@]}" >/dev/null
installed with_uv "${of_index[@]}" >/dev/null
build second
index
stale_index=$(installed with_uv "${of_index[@]}")
pip_index=$(installed with_pip "${of_index[@]}")
stale=$(installed with_uv "${options[@]}")
refreshed=$(installed with_uv --refresh-package built-again "${options[@]}")
by_path=$(installed with_uv "$work"/dist/*.whl)
by_pip=$(installed with_pip "${options[@]}")
echo "uv, --find-links:                    $stale"
echo "uv, --find-links --refresh-package:  $refreshed"
echo "uv, --index-url file://…:            $stale_index"
echo "uv, path of the wheel:               $by_path"
echo "pip, --find-links and --index-url:   $by_pip, $pip_index"
[ "$refreshed $by_path $by_pip $pip_index" = "second second second second" ]
[ "$stale $stale_index" = "first first" ]
