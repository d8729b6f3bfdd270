"""Upgrades and downgrades in each way of installing work, or `hami doctor` names the problem and its fix."""

from __future__ import annotations

import pytest
from conftest import NEWER, OLDER
from machine import Machine

# The command of the guide.
TARGET = '--platform manylinux2014_x86_64 --only-binary=:all: --target $(python3 -c "import site; print(site.{})")'
TO_USER = TARGET.format("getusersitepackages()")
TO_SITE = {"user": TO_USER, "system": TARGET.format("getsitepackages()[0]")}


def version(machine: Machine) -> str:
    return machine.run("python3 -m hami version").split()[-1]


@pytest.mark.parametrize("scheme", ["", "--user"], ids=["system", "user"])
def test_pip_upgrades_and_downgrades_both_packages(machine: Machine, scheme: str) -> None:
    machine.run(f"pip3 install {scheme} hami-core=={OLDER} acme-one==1.0.0")
    for core, plugin in ((NEWER, "2.0.0"), (OLDER, "1.0.0")):
        machine.run(f"pip3 install {scheme} --upgrade hami-core=={core} acme-one=={plugin}")
        machine.healthy()
        assert version(machine) == core
        assert machine.run("python3 -m hami run AcmeOne --text x") == f"acme-one {plugin}\n"
        assert machine.run("pip3 check") == "No broken requirements found.\n"


@pytest.mark.parametrize("where", TO_SITE)
@pytest.mark.parametrize(("before", "after"), [(OLDER, NEWER), (NEWER, OLDER)], ids=["upgrade", "downgrade"])
def test_doctor_names_old_metadata_that_target_with_upgrade_leaves(
    machine: Machine, before: str, after: str, where: str
) -> None:
    """Installs the core, then a plugin in the same way, then another version of each."""
    old, plugin = ("1.0.0", "2.0.0") if after == NEWER else ("2.0.0", "1.0.0")
    machine.run(f"pip3 install hami-core=={before} {TO_SITE[where]}")
    machine.run(f"pip3 install --no-deps acme-one=={old} {TO_SITE[where]}")
    machine.healthy()
    machine.run(f"pip3 install --upgrade hami-core=={after} {TO_SITE[where]}")
    machine.run(f"pip3 install --no-deps --upgrade acme-one=={plugin} {TO_SITE[where]}")
    assert version(machine) == after  # the installed code is the new version
    assert machine.run("python3 -m hami run AcmeOne --text x") == f"acme-one {plugin}\n"
    site, problems = machine.site(where), machine.problems()
    first, second = sorted([before, after])
    assert problems[1] == (
        f"hami-core has the metadata of 2 versions in {site}: {first}, {second}. "
        f"The files belong to {after}: rm -r {site}/hami_core-{before}.dist-info"
    )
    assert [problem.partition(" has ")[0] for problem in problems] == ["acme-one", "hami-core"]
    for problem in problems:
        machine.run(problem.rpartition(": ")[2])
    machine.healthy()
    assert f"hami-core {after}" in " ".join(machine.run("pip3 list").split())


def test_doctor_reports_a_target_install_without_upgrade_that_changed_nothing(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER} {TO_USER}")
    output = machine.run(f"pip3 install hami-core=={NEWER} {TO_USER}")
    assert "already exists. Specify --upgrade to force replacement." in output
    assert version(machine) == OLDER
    site, (problem,) = machine.site("user"), machine.problems()
    assert problem == (
        f"hami-core has the metadata of 2 versions in {site}: {OLDER}, {NEWER}. "
        f"The files belong to {OLDER}: rm -r {site}/hami_core-{NEWER}.dist-info"
    )
    machine.run(problem.rpartition(": ")[2])
    machine.healthy()


def test_a_second_plugin_in_a_target_keeps_the_first_but_not_its_script(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER} acme-one {TO_USER}")
    scripts = machine.site("user") / "bin"
    assert sorted(path.name for path in scripts.iterdir()) == ["acme-one", "hami", "hami-core"]
    machine.run(f"pip3 install --no-deps --upgrade acme-two {TO_USER}")
    machine.healthy()  # python3 -m hami
    for plugin in ("AcmeOne", "AcmeTwo"):
        assert machine.run(f"python3 -m hami run {plugin} --text x").startswith("acme-")
    assert [path.name for path in scripts.iterdir()] == ["acme-two"]


def test_doctor_reports_a_core_of_the_user_that_hides_that_of_the_system(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER}")
    machine.run(f"pip3 install hami-core=={NEWER} {TO_USER}")
    assert version(machine) == NEWER
    assert machine.problems() == [
        f"hami-core is installed 2 times: {NEWER} in {machine.site('user')} hides {OLDER} in {machine.site('system')}. "
        "pip uninstall hami-core removes the first"
    ]
    machine.run("pip3 uninstall --yes hami-core")
    machine.healthy()
    assert version(machine) == OLDER


def test_pip_rejects_and_doctor_names_a_plugin_that_needs_a_newer_core(machine: Machine) -> None:
    machine.run(f"pip3 install hami-core=={OLDER}")
    assert "No matching distribution found for hami-core>=99" in machine.fails("pip3 install acme-future")
    machine.healthy()
    machine.run("pip3 install --no-deps acme-future")
    assert machine.problems() == [
        f"acme-future 1.0.0 requires hami-core>=99, but {OLDER} is installed: pip install --upgrade 'hami-core>=99'"
    ]
