"""hami backends, plugins and doctor: lists, descriptions and problems."""

from __future__ import annotations

import json
import os
import re

import hami
from conftest import Run, Site
from fake_site import write_plugin


def test_backends_lists_names_and_owners(hami_command: Run, site: Site) -> None:
    site.install("acme-good", "acme-broken")
    done = hami_command("backends", site=site.folder)
    assert (done.returncode, done.stderr) == (0, "")
    owners = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    assert owners["AcmeAdd"] == "acme-good"
    assert owners["AcmeEngine"] == "acme-broken"
    assert owners["Identity"] == "hami-core"
    texts = {line.split()[0]: " ".join(line.split()[2:]) for line in done.stdout.splitlines()}
    assert texts["AcmeEcho"] == "Gives back its data."  # read from the source; the plugin is not loaded
    assert texts["AcmeAdd"] == "(for a description run: hami backends AcmeAdd)"  # its class has another name
    listed = json.loads(hami_command("backends", "--json", site=site.folder).stdout)
    assert {
        "name": "AcmeAdd",
        "owner": "acme-good",
        **dict.fromkeys(("doc", "params", "brackets", "thread", "non_blocking", "lightweight", "range", "aliases")),
    } in listed


def test_backends_describes_brackets_traits_doc_and_parameters(hami_command: Run) -> None:
    assert hami_command("backends", "HasKey").stdout == (
        "HasKey[backend, backend?]"
        "  (hami-core, thread concurrent, non-blocking, lightweight, "
        "range as the item with the smallest declared `max` above 1)\n"
        "  Runs its first item on requests that have the key, its second on the others.\n"
        "  Without a second item, `result` is `data` for these.\n"
        "  key: str  the key that decides\n"
    )
    assert hami_command("backends", "DI").stdout == (
        "DI[backend, …]  (hami-core, thread concurrent, lightweight, range as its first item, also Aspect and Block)\n"
        "  Injects each item into the one before it and runs the first.\n"
    )


def test_backends_shows_whether_another_instance_costs_nearly_nothing(hami_command: Run) -> None:
    for name, lightweight in {"Identity": True, "BackgroundThread": False}.items():
        [info] = json.loads(hami_command("backends", name, "--json").stdout)
        assert info["lightweight"] is lightweight
        assert ("lightweight" in hami_command("backends", name).stdout.splitlines()[0]) is lightweight


def test_backends_accepts_aliases(hami_command: Run) -> None:
    for alias, name in {"S": "Sequential", "Aspect": "DI", "ModelLoadder": "ModelLoader"}.items():
        assert [info["name"] for info in json.loads(hami_command("backends", alias, "--json").stdout)] == [name]


def test_backends_accepts_names_and_patterns(hami_command: Run, site: Site) -> None:
    site.install("acme-good")
    done = hami_command("backends", "AcmeAdd", site=site.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "AcmeAdd  (acme-good, thread dedicated)\n  Adds `step` to a number.\n  step: int = 1\n"
    assert hami_command("backends", "acme-good::AcmeAdd", site=site.folder).stdout == done.stdout
    done = hami_command("backends", "acme-good::Identity", site=site.folder)
    assert done.returncode == 1
    assert done.stderr.startswith('error: backend "Identity" not found in acme-good\n  backends of acme-good: Acme')
    done = hami_command("backends", "Acme*", "--json", site=site.folder)
    assert [info["name"] for info in json.loads(done.stdout)] == ["AcmeAdd", "AcmeEcho"]
    done = hami_command("backends", "AcmeEcko", site=site.folder)
    assert done.returncode == 1
    assert done.stderr.startswith('error: backend "AcmeEcko" not found; did you mean AcmeEcho')


def test_plugins_lists_states_and_fails_if_a_plugin_failed_to_load(hami_command: Run, site: Site) -> None:
    site.install("acme-good", "acme-broken", "acme-native")
    done = hami_command("plugins", site=site.folder, HAMI_PLUGINS="good,broken,native")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[1:4] for line in done.stdout.splitlines()}
    assert rows["plugin"] == ["package", "version", "abi"]
    assert rows["good"] == ["acme-good", "1.2.0", "not"]
    assert "pipeline acme-twice from acme-good\n" in done.stdout
    done = hami_command("plugins", "--load", "--json", site=site.folder, HAMI_PLUGINS="good,broken,native")
    assert done.returncode == 1
    states = {record["plugin"]: record["state"] for record in json.loads(done.stdout)}
    assert (states["good"], states["broken"], states["native"]) == ("ok", "failed", "failed")
    done = hami_command("plugins", "--load", site=site.folder, HAMI_PLUGINS="good,broken,native")
    assert done.returncode == 1
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert re.fullmatch(
        r"broken +acme-broken +0\.3\.1 +failed +\d+ ms +No module named 'acme_engine_runtime'", rows["broken"]
    )
    assert rows["native"].endswith("/libacme_native.so: cannot open shared object file: No such file or directory")


def test_plugins_reports_a_name_that_the_core_has(hami_command: Run, site: Site) -> None:
    write_plugin(site.folder, "acme-same", "1.0", "Identity", "AcmeSame")
    done = hami_command("plugins", site=site.folder, HAMI_PLUGINS="same")
    assert done.returncode == 0
    assert '  the core has a backend "Identity" too; write acme-same::Identity for that of acme-same\n' in done.stdout


def test_plugins_reports_all_names_that_the_core_has_in_one_remark(hami_command: Run, site: Site) -> None:
    write_plugin(site.folder, "acme-same", "1.0", "Identity", "AcmeSame", "Reflect")
    done = hami_command("plugins", "--load", site=site.folder, HAMI_PLUGINS="same")
    assert "  the core has Identity and Reflect too; write acme-same::Identity for that of acme-same\n" in done.stdout


def test_plugins_shows_only_the_reason_of_a_plugin_that_failed(hami_command: Run, site: Site) -> None:
    write_plugin(site.folder, "acme-same", "1.0", "Identity", "AcmeSame")
    module = site.folder / "acme_same_plugin.py"
    module.write_text(module.read_text().replace("acme_same_plugin:Echo", "acme_engine_runtime:Echo"))
    done = hami_command("plugins", "--load", site=site.folder, HAMI_PLUGINS="same")
    assert done.returncode == 1
    assert re.fullmatch(
        r"same +acme-same +1\.0 +failed +\d+ ms +No module named 'acme_engine_runtime'", done.stdout.splitlines()[1]
    )


def test_damaged_metadata_is_a_problem(hami_command: Run, site: Site) -> None:
    info = write_plugin(site.folder, "acme-torn", "1.0", "AcmeTorn")
    (info / "METADATA").unlink()
    reason = f"its metadata in {info} is damaged: it has no METADATA with a name; remove it, or reinstall acme_torn"
    done = hami_command("plugins", site=site.folder)
    assert done.returncode == 1
    assert reason in done.stdout
    done = hami_command("doctor", site=site.folder)
    assert done.returncode == 1
    assert f"problem: acme_torn (unknown version) failed to load: {reason}\n" in done.stdout


def test_plugins_may_add_commands(hami_command: Run, site: Site) -> None:
    site.install("acme-good", "acme-exits")
    done = hami_command("acme", "world", site=site.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello world\n", "")


def test_a_command_whose_name_is_taken_gets_the_name_of_its_plugin(hami_command: Run, site: Site) -> None:
    for name in ("acme-first", "hami-second"):
        write_plugin(site.folder, name, "1.0", "Acme" + name.partition("-")[2].title())
        with (site.folder / f"{name.replace('-', '_')}_plugin.py").open("a") as file:
            file.write(
                "@pluggy.HookimplMarker('hami')\ndef hami_commands(subparsers):\n"
                "    for command in ('pack', 'run'):\n"
                f"        parser = subparsers.add_parser(command, help='{name}')\n"
                f"        parser.set_defaults(run=lambda parsed: print('{name}') or 0)\n"
            )
    for command, owner in (
        ("pack", "acme-first"),
        ("second-pack", "hami-second"),
        ("acme-first-run", "acme-first"),
        ("second-run", "hami-second"),
    ):
        done = hami_command(command, site=site.folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{owner}\n", "")


def test_the_plugin_of_a_packaged_pipeline_adds_options_to_run_and_may_run_it(hami_command: Run, site: Site) -> None:
    info = write_plugin(site.folder, "acme-look", "1.0", "AcmeLook")
    with (info / "entry_points.txt").open("a") as file:
        file.write("\n[hami.pipelines]\nlook = acme_look:look.toml\n")
    with (site.folder / "acme_look_plugin.py").open("a") as file:
        file.write(
            "@pluggy.HookimplMarker('hami')\ndef hami_run_options(parser):\n"
            "    parser.add_argument('--far', action='store_true')\n"
            "    before = parser.get_default('run')\n"
            "    parser.set_defaults(run=lambda parsed: print('far') or 0 if parsed.far else before(parsed))\n"
        )
    for given, printed in (
        (("look", "--far"), "far\n"),
        (("acme-look::look", "--far"), "far\n"),
        (("Identity", "--text", "look"), "look\n"),
    ):
        done = hami_command("run", *given, site=site.folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
    done = hami_command("run", "Identity", "--far", site=site.folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "hami: error: unrecognized arguments: --far")


def test_a_hook_that_exits_is_reported_like_any_other_failure(hami_command: Run, site: Site) -> None:
    write_plugin(site.folder, "acme-hook", "1.0", "AcmeHook")
    with (site.folder / "acme_hook_plugin.py").open("a") as file:
        for hook in ("hami_report()", "hami_problems()", "hami_commands(subparsers)"):
            file.write(f"@pluggy.HookimplMarker('hami')\ndef {hook}:\n    raise SystemExit(3)\n")
    report = json.loads(hami_command("doctor", "--json", site=site.folder).stdout)
    for hook in ("hami_report", "hami_problems"):
        assert f"{hook} of acme-hook 1.0: it called sys.exit(3)" in report["problems"]
    done = hami_command("acme", site=site.folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: commands of acme-hook 1.0: it called sys.exit(3)\nusage: ")


def test_doctor_reports_the_problems_that_plugins_find(hami_command: Run, site: Site) -> None:
    write_plugin(site.folder, "acme-check", "1.0", "AcmeCheck")
    with (site.folder / "acme_check_plugin.py").open("a") as file:
        file.write("@pluggy.HookimplMarker('hami')\ndef hami_problems():\n    return ['no licence:\\nask Acme']\n")
    done = hami_command("doctor", site=site.folder, HAMI_PLUGINS="check")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "problem: no licence: ask Acme")


def test_doctor_names_the_package_that_compares_installed_files(hami_command: Run, site: Site) -> None:
    facts = json.loads(hami_command("doctor", "--json", HAMI_PLUGINS="no:tools").stdout)["facts"]
    assert facts["installed files"] == 'not compared with their hashes; pip install "hami-core[tools]"'
    assert "installed files" not in json.loads(hami_command("doctor", "--json").stdout)["facts"]


def test_doctor_reports_facts_and_problems(hami_command: Run, site: Site) -> None:
    site.install("acme-good")
    done = hami_command("doctor", "--json", site=site.folder, HAMI_PLUGINS="good")
    report = json.loads(done.stdout)
    # A checkout copied over an installation is incomplete, which does not matter here.
    problems = [problem for problem in report["problems"] if " is damaged: " not in problem]
    assert (problems, done.stderr) == ([], "")
    assert done.returncode == (1 if report["problems"] else 0)
    facts = report["facts"]
    assert facts["hami-core"].startswith(f"{hami.__version__}, ")
    assert facts["acme-good 1.2.0"] == "ok"
    assert facts["acme-good: anvils"] == "17"
    assert facts["HAMI_PLUGINS"] == "good"
    assert {"python", "system", "libc", "CPUs"} < set(facts)


def test_doctor_says_whether_a_plugin_has_turned_the_gil_on(hami_command: Run, site: Site) -> None:
    (site.folder / "sitecustomize.py").write_text(
        "import sys\nsys._is_gil_enabled = lambda: 'needs_gil' in sys.modules\n"
    )
    (site.folder / "needs_gil.py").touch()
    write_plugin(site.folder, "acme-check", "1.0", "AcmeCheck")

    def fact() -> str:
        return json.loads(hami_command("doctor", "--json", site=site.folder).stdout)["facts"]["GIL"]

    assert fact() == "off"
    with (site.folder / "acme_check_plugin.py").open("a") as file:
        file.write("import needs_gil\n")
    assert fact() == "on"


def test_doctor_lists_requirements_of_plugins_and_installed_versions(hami_command: Run, site: Site) -> None:
    site.install("acme-good")
    (info,) = site.folder.glob("acme_good-*.dist-info")
    needs = ("hami-core>=0.1", "acme-engine[fast] >=2,<3", "pytest>=8; extra == 'test'")
    with (info / "METADATA").open("a") as file:
        file.writelines(f"Requires-Dist: {need}\n" for need in needs)
    facts = json.loads(hami_command("doctor", "--json", site=site.folder).stdout)["facts"]
    assert facts["acme-good: requires"] == f"hami-core>=0.1 ({hami.__version__}), acme-engine>=2,<3 (not installed)"


def test_doctor_reports_broken_plugins_and_wrong_settings(hami_command: Run, site: Site) -> None:
    site.install("acme-good", "acme-broken")
    settings = {"HAMI_PLUGINS": "good,broken,goood", "HAMI_PLUGIN_PATH": "/opt/plugins"}
    done = hami_command("doctor", "--json", site=site.folder, **settings)
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    assert [problem for problem in problems if not problem.startswith(("acme-good", "hami-core"))] == [
        "acme-broken 0.3.1 failed to load: No module named 'acme_engine_runtime'",
        "HAMI_PLUGINS=good,broken,goood names the plugin goood, which is not installed; did you mean good?",
        "HAMI_PLUGIN_PATH contains /opt/plugins, which is not a folder",
    ]
    done = hami_command("doctor", site=site.folder, HAMI_PLUGINS="good,broken,goood")
    assert done.stdout.endswith("which is not installed; did you mean good?\n")
    done = hami_command("doctor", site=site.folder, HAMI_PLUGINS=os.fsdecode(b"other\xff"))
    assert done.stdout.endswith("HAMI_PLUGINS=other\\xff names the plugin other\\xff, which is not installed\n")
