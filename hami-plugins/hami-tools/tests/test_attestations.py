"""Publishers of plugins: attestations in the index, the catalogue and the metadata, and their verification.

`plugins/attestations` has the provenance that PyPI published for the source distribution of pypi-attestations 0.0.19
(Apache-2.0): a real signature of its release workflow, verified offline with the keys that come with sigstore. Wheels,
indexes and catalogues are made here.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import hami
import pytest
import tiny_wheels
from conftest import Run, Site
from fake_site import write_plugin, write_record
from hami.packages import Catalog, parse_catalog
from tiny_index import PACKAGES, HamiEnvironment, write_index

from hami_tools.packages import attestations, catalog, provenance
from hami_tools.packages.attestations import Origin, Publisher, Unverified
from hami_tools.packages.installers import Change, Pip, Sources
from hami_tools.packages.policy_rules import Rules

needs_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
REAL = Path(tiny_wheels.__file__).parent / "attestations" / "pypi_attestations-0.0.19.tar.gz.provenance"
FILE = REAL.name.removesuffix(".provenance")
SHA256 = "9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3"
ORIGIN = Origin(FILE, SHA256, REAL.read_text("utf-8"))
PUBLISHER = Publisher("GitHub", "https://github.com/trailofbits/pypi-attestations", "release.yml")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the keys that sigstore unpacks out of the home of the user, and proxies out of the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def _library() -> None:
    pytest.importorskip("pypi_attestations")


@pytest.mark.usefixtures("_library")
def test_a_valid_attestation_names_repository_and_workflow() -> None:
    assert attestations.publishers(ORIGIN) == [PUBLISHER]
    assert str(PUBLISHER) == "https://github.com/trailofbits/pypi-attestations, release.yml"


def _changed(change: Callable[[dict[str, Any]], object]) -> Origin:
    bundles = json.loads(ORIGIN.provenance)
    change(bundles["attestation_bundles"][0])
    return ORIGIN._replace(provenance=json.dumps(bundles))


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    ("origin", "problem"),
    [
        (ORIGIN._replace(sha256="0" * 64), "subject does not match distribution digest"),
        (ORIGIN._replace(file="acme_one-1.0-py3-none-any.whl"), "subject does not match distribution name"),
        (ORIGIN._replace(provenance=ORIGIN.provenance[:-20]), "Invalid JSON"),
        (_changed(lambda bundle: bundle["publisher"].update(repository="acme/words")), "acme/words"),
        (_changed(lambda bundle: bundle["publisher"].update(workflow="other.yml")), "other.yml"),
        (_changed(lambda bundle: bundle["attestations"][0]["envelope"].update(signature="AAAA")), ""),
    ],
)
def test_an_attestation_of_something_else_is_an_error(origin: Origin, problem: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        attestations.publishers(origin)
    assert str(caught.value).startswith(f"the attestation of {origin.file} is not valid for this file: ")
    assert problem in str(caught.value)


@pytest.mark.usefixtures("_library")
def test_a_publisher_without_an_attestation_is_not_verified() -> None:
    with pytest.raises(Unverified, match="contains no attestation"):
        attestations.publishers(_changed(lambda bundle: bundle["attestations"].clear()))


def test_without_the_library_the_reason_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypi_attestations", None)
    with pytest.raises(Unverified, match=r"has an attestation; to verify it: pip install 'hami-tools\[trust\]'"):
        attestations.publishers(ORIGIN)


@pytest.fixture
def installed(site: Site, hami_command: Run) -> Callable[[Origin | None], dict[str, Any]]:
    """installed(origin): the result of hami verify-plugins for a plugin that was installed from that file."""
    info = write_plugin(site.folder, "pypi-attestations", "0.0.19", "AcmeAttested")

    def result(origin: Origin | None) -> dict[str, Any]:
        (info / attestations.RECORD).unlink(missing_ok=True)
        of_metadata = (f"{info.name}/{path.name}" for path in info.iterdir() if path.name != "RECORD")
        write_record(site.folder, info, "pypi_attestations_plugin.py", *of_metadata)
        if origin:
            attestations.write(info, origin)
        done = hami_command("verify-plugins", "--json", site=site.folder)
        found = next(each for each in json.loads(done.stdout) if each["folder"] == str(site.folder))
        return {"status": done.returncode, **found}

    return result


@pytest.mark.usefixtures("_library")
def test_verify_shows_the_publisher_of_an_installed_plugin(
    installed: Callable[..., dict[str, Any]], hami_command: Run, site: Site
) -> None:
    found = installed(ORIGIN)
    assert (found["publishers"], found["unattested"], found["problem"]) == ([PUBLISHER._asdict()], "", "")
    assert found["files"] == 4  # the module, its metadata, its entry points, and the record of the attestation
    assert f"; published by {PUBLISHER}\n" in hami_command("verify-plugins", site=site.folder).stdout


@pytest.mark.usefixtures("_library")
def test_verify_names_the_file_and_the_remedy_for_an_attestation_of_another_file(
    installed: Callable[..., dict[str, Any]],
) -> None:
    found = installed(ORIGIN._replace(sha256="1" * 64))
    assert found["status"] == 1
    assert found["problem"] == (
        f"the attestation of {FILE} is not valid for this file: subject does not match distribution digest: "
        "hami uninstall pypi-attestations && hami install pypi-attestations"
    )


def test_verify_says_why_nobody_is_known(installed: Callable[..., dict[str, Any]]) -> None:
    assert installed(None)["unattested"] == "its installer did not record the file; hami install does"
    bare = installed(Origin(FILE, SHA256, "", "neither the index nor the catalogue has an attestation of it"))
    assert bare["unattested"] == "neither the index nor the catalogue has an attestation of it"
    other = installed(ORIGIN._replace(file="acme_one-1.0-py3-none-any.whl"))
    assert "is about another file, acme_one-1.0-py3-none-any.whl: hami uninstall" in other["problem"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return tiny_wheels.plugin(tmp_path / "wheels", "acme-one", "1.0.0")


def _change(wheel: Path) -> Change:
    return Change("acme-one", "", "1.0.0", wheel.as_uri(), hashlib.sha256(wheel.read_bytes()).hexdigest())


EMPTY = Catalog("", {})


def _served(wheel: Path, folder: Path, how: str) -> tuple[Sources, Catalog]:
    """Offer the provenance of a wheel in one of the ways that are looked at."""
    beside = wheel.with_name(f"{wheel.name}.provenance")
    beside.write_text(ORIGIN.provenance)
    if how == "folder":
        return Sources((), str(wheel.parent)), EMPTY
    index = write_index(folder, [wheel])
    page = folder / "simple" / "acme-one" / "index.html"
    if how == "html":
        page.write_text(page.read_text().replace("<a ", f'<a data-provenance="{beside.as_uri()}" '))
    elif how == "json":
        page.write_text(json.dumps({"files": [{"filename": wheel.name, "provenance": beside.as_uri()}]}))
    listed = {"name": wheel.name, "sha256": _change(wheel).sha256, "provenance": f"wheels/{beside.name}"}
    entry = {"name": "acme-one", "releases": [{"version": "1.0.0", "files": [listed]}]}
    text = json.dumps({"format": 1, "plugins": [entry]}).encode()
    return Sources([index]), parse_catalog(text, str(folder / "catalog.json")) if how == "catalog" else EMPTY


@pytest.mark.parametrize("how", ["folder", "html", "json", "catalog"])
def test_the_provenance_is_found(wheel: Path, tmp_path: Path, how: str) -> None:
    sources, known = _served(wheel, tmp_path, how)
    found = provenance.checked([_change(wheel)], Pip(), sources, known, Rules())
    assert found == {"acme-one": Origin(wheel.name, _change(wheel).sha256, ORIGIN.provenance)}


def test_a_catalogue_with_another_hash_says_nothing_about_a_file(wheel: Path, tmp_path: Path) -> None:
    sources, known = _served(wheel, tmp_path, "catalog")
    other = _change(wheel)._replace(sha256="0" * 64)
    found = provenance.checked([other], Pip(), sources, known, Rules())["acme-one"]
    assert (found.provenance, found.missing) == (
        "",
        f"neither the index nor the catalogue has an attestation of {wheel.name}",
    )


@pytest.mark.parametrize("source", ["https://packages.example/simple/acme-one/", "https://packages.example/c.json"])
def test_a_server_cannot_name_a_file_of_this_machine(source: str) -> None:
    assert provenance._beside(source, "file:///etc/hostname") == ""
    assert provenance._beside(source, "/x.provenance") == "https://packages.example/x.provenance"
    assert provenance._beside("/srv/catalog.json", "x.provenance") == "/srv/x.provenance"
    assert provenance._beside("/srv/catalog.json", "https://other.example/x") == "https://other.example/x"


def test_the_password_of_an_index_is_sent_to_its_server(wheel: Path) -> None:
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_error(404)

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        index = f"http://me:a%20b@127.0.0.1:{server.server_port}/simple"
        found = provenance.checked([_change(wheel)], Pip(), Sources([index]), EMPTY, Rules())["acme-one"]
        thread.join()
    assert seen == [("/simple/acme-one/", f"Basic {base64.b64encode(b'me:a b').decode()}")]
    assert found.missing.startswith("neither the index nor the catalogue has an attestation")


def test_an_index_that_is_away_is_the_reason(wheel: Path) -> None:
    away = Sources(["http://127.0.0.1:9/simple"])
    found = provenance.checked([_change(wheel)], Pip(), away, EMPTY, Rules())["acme-one"]
    assert found.missing == "its attestation could not be read: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        ("catalog", "subject does not match distribution name"),
        ("nothing", "neither the index nor the catalogue has an attestation of acme_one-1.0.0-py3-none-any.whl"),
        ("no hash", "the installer does not say which file it takes; use pip, and an index with hashes"),
    ],
)
def test_a_policy_refuses_a_plugin_without_a_valid_attestation(
    wheel: Path, tmp_path: Path, offered: str, problem: str
) -> None:
    if offered == "catalog":
        pytest.importorskip("pypi_attestations")
    sources, known = _served(wheel, tmp_path, offered)
    change = _change(wheel)._replace(**({"sha256": ""} if offered == "no hash" else {}))
    with pytest.raises(hami.PluginError) as caught:
        provenance.checked([change], Pip(), sources, known, Rules(require_attestation=frozenset()))
    assert str(caught.value).startswith("acme-one has no verified attestation, which /etc/hami/policy.toml requires: ")
    assert problem in str(caught.value)
    assert str(caught.value).endswith("; ask the administrator of this machine")


def test_a_policy_accepts_only_its_repositories() -> None:
    anyone = Rules(require_attestation=frozenset())
    ours = Rules(require_attestation=frozenset({"https://github.com/acme/words"}))
    catalog.require_publisher(anyone, "acme-one", [PUBLISHER], "")
    catalog.require_publisher(
        ours, "acme-one", [PUBLISHER, PUBLISHER._replace(source="https://github.com/acme/words")], ""
    )
    catalog.require_publisher(Rules(), "acme-one", [], "stranger")
    with pytest.raises(hami.PluginError) as caught:
        catalog.require_publisher(ours, "acme-one", [PUBLISHER], "")
    assert str(caught.value) == (
        f"acme-one is published by {PUBLISHER.source}, and /etc/hami/policy.toml accepts "
        "https://github.com/acme/words; ask the administrator of this machine"
    )


@needs_pip
def test_install_records_the_file_and_uninstall_removes_the_record(wheel: Path, tmp_path: Path) -> None:
    sources, _ = _served(wheel, tmp_path, "html")
    environment = HamiEnvironment(tmp_path / "env", "pip", *PACKAGES)
    done = environment.hami("install", "acme-one", "--index", *sources.indexes)
    assert (done.returncode, done.stderr) == (0, "")
    info = environment.site / "acme_one-1.0.0.dist-info"
    assert attestations.read(info) == Origin(wheel.name, _change(wheel).sha256, ORIGIN.provenance)
    verified = json.loads(environment.hami("verify-plugins", "--json").stdout)
    (own,) = (each for each in verified if each["distribution"] == "acme-one")
    assert (own["missing"], own["changed"]) == ([], [])
    assert "to verify it: pip install 'hami-tools[trust]'" in own["unattested"]
    assert environment.hami("uninstall", "acme-one").returncode == 0
    assert not info.exists()


@needs_pip
def test_the_indexes_of_pip_are_those_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n  https://b.example/simple\n"
        "  https://c.example/simple\n[install]\nindex-url = https://d.example/simple\n"
    )
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    extra = ["https://b.example/simple", "https://c.example/simple"]
    assert Pip().indexes(Sources()) == ["https://d.example/simple", *extra]
    monkeypatch.setenv("PIP_INDEX_URL", "https://e.example/simple")
    assert Pip().indexes(Sources()) == ["https://e.example/simple", *extra]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert Pip().indexes(Sources()) == []
    assert Pip().indexes(Sources(["https://f.example/simple"])) == ["https://f.example/simple"]


@pytest.mark.parametrize("page", ['{"files": 3}', '{"files": [3, null]}', '{"files": ' + "[" * 100_000, "{"])
def test_a_page_of_an_index_in_another_form_names_no_attestation(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a page that no web server sends."""
    monkeypatch.setattr(provenance.fetch, "read", lambda *_arguments, **_options: page.encode())
    change = Change("acme-x", "", "1.0", "https://packages.example/acme_x-1.0-py3-none-any.whl", "0" * 64)
    found = provenance._origin(change, ["https://packages.example/simple"], "", Catalog("none", {}))
    assert found.provenance == ""
    assert "attestation" in found.missing
