#!/bin/sh
# Builds every wheel, tests the plugin as it is installed, and checks the wheels: sh ci.sh
set -eu
python3 -m venv build/env
build/env/bin/pip install "hami-build[all]"
build/env/bin/hami-build wheel --platform manylinux2014_x86_64,manylinux2014_aarch64 --to dist
build/env/bin/pip install --find-links dist "hami-example-cpp[test]"
build/env/bin/python -m pytest tests
build/env/bin/hami-build check dist/*.whl --require gold
