"""What the errors about names and keys of torchpipe say, and the migration page, which shows the same texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hami
import pytest

from hami_torchpipe import replacements

ROOT = Path(__file__).resolve().parents[3]  # these tests need a checkout
PAGE = ROOT / "hami-core" / "docs" / "howto" / "from-torchpipe.md"


def refused(config: Any, expected: type[hami.Error] = hami.ConfigError) -> str:
    with pytest.raises(expected) as caught:
        hami.pipe(config)
    return str(caught.value)


def test_three_unknown_keys_are_reported_at_once_with_what_to_write_instead() -> None:
    node = {
        "backend": "Identity",
        "max_workspace_size": 1024,
        "precision::fp32": "layer_1",
        "device_id": 1,
    }
    assert refused({"model": node}) == (
        "3 problems in the configuration\n\n"
        'nothing uses the key "max_workspace_size"\n  in  max_workspace_size = 1024   (node "model")\n'
        "      ^^^^^^^^^^^^^^^^^^\n"
        '  from torchpipe: write workspace with a unit; torchpipe counts MiB: 1024 is workspace = "1024MiB"\n\n'
        'nothing uses the key "precision::fp32"\n  in  precision::fp32 = "layer_1"   (node "model")\n'
        "      ^^^^^^^^^^^^^^^\n"
        "  from torchpipe: remove it, and export the model with the type that each layer needs\n\n"
        'nothing uses the key "device_id"\n  in  device_id = 1   (node "model")\n      ^^^^^^^^^\n'
        '  from torchpipe: write device = "cuda:N"'
    )


def test_a_backend_of_torchpipe_is_refused_with_what_to_write_instead() -> None:
    assert refused("Tuple[Identity]", hami.BackendNotFound) == (
        'backend "Tuple" not found\n  in  Tuple[Identity]   (node "default")\n      ^^^^^\n  from torchpipe: write List'
    )


@pytest.mark.parametrize("name", replacements.BACKENDS)
def test_every_name_without_an_equivalent_has_a_hint(name: str) -> None:
    assert refused(name, hami.BackendNotFound).splitlines()[-1] == f"  from torchpipe: {replacements.BACKENDS[name]}"


def test_the_tables_of_the_migration_page_are_current() -> None:
    script = ROOT / "ci" / "from_torchpipe.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_cell_of_the_migration_page_is_empty() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(rows) > 119
    assert [row for row in rows if not all(cell.strip() for cell in row.strip("|").split("|"))] == []
