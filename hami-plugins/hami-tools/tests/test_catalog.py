"""The catalogue: `hami search`, `hami show`, and files that are not a catalogue."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import hami
import pytest
import tiny_wheels
from conftest import Site
from fake_site import write_plugin
from hami import packages
from hami.packages import load_local, policy

from hami_tools.packages import catalog, fetch

GENERATOR = Path(__file__).parents[3] / "ci" / "catalog.py"
PLUGIN = {
    "name": "acme-cv",
    "version": "1.2.0",
    "summary": "Image backends of Acme.",
    "backends": {
        "AcmeResize": {"summary": "Resize an image.", "params": [{"text": "width: int"}, {"text": "height: int"}]},
        "AcmeCrop": {},
    },
    "platforms": ["manylinux_2_17_x86_64"],
    "abi": {"min": "1.0", "built": "1.1"},
    "requires": ["hami-core>=2.0"],
}
ACME = {"format": 1, "plugins": [PLUGIN, {"name": "acme-ocr", "pipelines": ["read"]}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acme.json"
    path.write_text(json.dumps(ACME))
    return path


def test_a_catalogue_is_made_from_wheels(tmp_path: Path, hami_command: Any) -> None:
    pytest.importorskip("hami_build")
    wheels, file = tmp_path / "wheels", tmp_path / "catalogue" / "catalog.json"
    command = [sys.executable, "-m", "hami_build", "catalog", wheels, "--to", file.parent]
    for version in ("1.9.0", "1.10.0"):
        tiny_wheels.plugin(wheels, "acme-one", version)
    native = tiny_wheels.plugin(wheels, "acme-two", tag="py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64")
    tiny_wheels.empty(wheels, "numpy", "2.0")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    one, two = catalog.load(str(file)).plugins.values()
    assert (one.name, one.version) == ("acme-one", "1.10.0")
    assert one.backends == {"AcmeOne": {"summary": "Returns the name and version of its plugin.", "params": []}}
    assert [release["version"] for release in one.releases] == ["1.9.0", "1.10.0"]
    assert two.platforms == ["manylinux2014_aarch64", "manylinux_2_17_aarch64"]
    digest = hashlib.sha256(native.read_bytes()).hexdigest()
    assert two.releases == [{"version": "1.0.0", "files": [{"name": native.name, "sha256": digest}]}]
    native.write_bytes(native.read_bytes()[:50])
    damaged = subprocess.run(command, capture_output=True, text=True)
    assert damaged.stderr.startswith(f"error: {native} is not a complete wheel")
    assert "  newest     1.10.0" in hami_command("show", "AcmeOne", HAMI_CATALOG=str(file)).stdout


@pytest.mark.parametrize(
    ("word", "plugins"),
    [("resize an", ["acme-cv"]), ("ACME", ["acme-cv", "acme-ocr"]), ("read", ["acme-ocr"]), ("AcmeCrop", ["acme-cv"])],
)
def test_search_finds_names_and_descriptions(hami_command: Any, file: Path, word: str, plugins: list[str]) -> None:
    done = hami_command("search", word, "--catalog", str(file), "--json")
    assert [plugin["name"] for plugin in json.loads(done.stdout)] == plugins


def test_search_lists_the_backends_that_match(hami_command: Any, file: Path) -> None:
    done = hami_command("search", "crop", HAMI_CATALOG=str(file))
    assert done.stdout.splitlines() == ["plugin   installed      provides", "acme-cv  not installed  AcmeCrop"]
    none = hami_command("search", "AcmeKrop", HAMI_CATALOG=str(file))
    assert none.returncode == 1
    assert none.stdout.startswith('nothing in the catalogue matches "AcmeKrop"; did you mean AcmeCrop')


@pytest.mark.parametrize("name", ["acme-cv", "Acme_CV", "AcmeResize"])
def test_show_describes_a_plugin(hami_command: Any, file: Path, name: str) -> None:
    done = hami_command("show", name, HAMI_CATALOG=str(file))
    assert done.stdout.splitlines() == [
        "acme-cv  Image backends of Acme.",
        "  newest      1.2.0",
        "  installed   no: pip install acme-cv",
        "  platforms   manylinux_2_17_x86_64",
        "  plugin ABI  1.0 to 1.1",
        "  requires    hami-core>=2.0",
        "backends",
        "  AcmeResize  Resize an image.  (width: int, height: int)",
        "  AcmeCrop",
    ]


def test_show_of_an_unknown_name_suggests_one(hami_command: Any) -> None:
    done = hami_command("show", "hami-onx")
    assert done.returncode == 1
    assert done.stderr.startswith('error: the catalogue has no plugin or backend "hami-onx"; did you mean hami-onnx')


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (json.dumps(ACME)[:-20], "it is not complete JSON"),
        ("", "it is not complete JSON"),
        ("[" * 100_000, "it is not complete JSON"),
        ("[]", 'expected an object with a list "plugins"'),
        ('{"format": 1, "plugins": [7]}', "plugins[0] is not an object"),
        ('{"format": 1, "plugins": [{"name": "Acme_CV"}]}', "the name of plugins[0] is not canonical: 'Acme_CV'"),
        ('{"format": 1, "plugins": [{"name": "../a"}]}', "the name of plugins[0] is not canonical: '../a'"),
        ('{"format": 1, "plugins": [{"name": "a"}, {"name": "a"}]}', "plugins[1] has the name of another plugin, a"),
        (
            '{"format": 1, "plugins": [{"name": "a", "backends": []}]}',
            '"backends" of plugins[0] is not of the JSON type',
        ),
        ('{"format": 1, "plugins": [{"name": "a", "backends": {"A": 1}}]}', "something else than objects"),
        ('{"format": 1, "plugins": [{"name": "a", "platforms": [1]}]}', 'a list, or an "abi", with something else'),
        ('{"format": 1, "plugins": [{"name": "a", "abi": {"min": 1}}]}', "with something else than texts"),
        ('{"format": 1, "plugins": [{"name": "a", "backends": {"A": {"params": 3}}}]}', '"params" of a backend of'),
        ('{"format": 1, "plugins": [{"name": "a", "backends": {"A": {"params": null}}}]}', "is not a list"),
    ],
)
def test_a_file_that_is_not_a_catalogue_is_an_error(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "catalog.json"
    file.write_text(content)
    with pytest.raises(hami.PluginError) as caught:
        catalog.load(str(file))
    assert str(caught.value).startswith(f"the catalogue {file} is damaged: ")
    assert problem in str(caught.value)
    assert packages.load_local({"HAMI_CATALOG": str(file)}).source == str(packages.SNAPSHOT)


def test_the_example_of_the_reference_is_a_catalogue() -> None:
    page = (GENERATOR.parents[1] / "hami-core" / "docs" / "reference" / "catalog.md").read_text("utf-8")
    example = page.partition("```text\n")[2].partition("```")[0]
    (plugin,) = packages.parse_catalog(example.encode(), "catalog.md").plugins.values()
    assert sorted(key for key, value in plugin._asdict().items() if not value) == [
        "commands",
        "devices",
        "models",
        "pipelines",
    ]


def test_a_later_format_asks_for_a_newer_core(tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    file.write_text('{"format": 2, "plugins": []}')
    with pytest.raises(
        hami.PluginError, match=r"has the format 2, this hami-core reads 1: pip install --upgrade hami-core"
    ):
        catalog.load(str(file))


def test_a_missing_file_is_an_error_of_search_only(hami_command: Any) -> None:
    done = hami_command("search", "onnx", HAMI_CATALOG="/nonexistent/catalog.json")
    assert "cannot read the catalogue /nonexistent/catalog.json: No such file or directory" in done.stderr
    assert done.returncode == 1
    assert hami_command("run", "Identity", "--text", "a", HAMI_CATALOG="/nonexistent/catalog.json").stdout == "a\n"


class Handler(BaseHTTPRequestHandler):
    """Serves a catalogue, and at /cut only a part of it."""

    def do_GET(self) -> None:
        text = json.dumps(ACME).encode()
        self.send_response(200 if self.path in ("/", "/cut") else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[: 10 if self.path == "/cut" else None])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_catalogue_is_read_from_an_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert list(catalog.load(f"{address}/").plugins) == ["acme-cv", "acme-ocr"]
    with pytest.raises(hami.PluginError, match=r"is damaged: .* bytes of it are missing"):
        catalog.load(f"{address}/cut")
    with pytest.raises(hami.PluginError, match=re.escape(f"cannot read the catalogue {address}/none: ")):
        catalog.load(f"{address}/none")


def test_a_server_that_never_ends_its_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part comes within the timeout of the connection, so only the time for the whole answer ends it."""
    done = Event()

    class Dripping(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            while not done.wait(0.01):
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    return

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetch, "TOTAL_S", 0.2)
    with HTTPServer(("127.0.0.1", 0), Dripping) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(hami.PluginError, match=r"it did not end within 0\.2 s"):
                catalog.load(f"http://127.0.0.1:{server.server_port}/")
        finally:
            done.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_catalogue_that_never_ends_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "catalog.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(hami.PluginError, match=f"cannot read the catalogue {path}: it is not a regular file"):
        catalog.load(str(path))


def test_a_terminal_shows_escape_sequences_of_a_catalogue(hami_command: Any, tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    hostile = {
        "name": "acme-cv",
        "summary": "a\x1b]0;b\x07 c\u202e",
        "backends": {"Acme\x1b[2J": {"summary": "\x1b[1A"}},
    }
    path.write_text(json.dumps({"format": 1, "plugins": [hostile]}))
    for command in (["search", "acme"], ["show", "acme-cv"], ["search", "--json", "acme"]):
        done = hami_command(*command, HAMI_CATALOG=str(path))
        assert done.returncode == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)
    assert "a\\x1b]0;b\\x07 c\\u202e" in hami_command("show", "acme-cv", HAMI_CATALOG=str(path)).stdout


@pytest.fixture
def signed(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a catalogue that is signed with the key in the policy."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    file.with_name("acme.json.sig").write_bytes(key.sign(file.read_bytes()))
    rules = {"catalog": str(file), "catalog_key": base64.b64encode(public).decode()}
    monkeypatch.setattr(policy, "read", lambda: policy.Policy(others=rules))
    return file


def test_a_signed_catalogue_is_read(signed: Path) -> None:
    assert list(catalog.load().plugins) == ["acme-cv", "acme-ocr"]
    assert packages.load_local({}).source == str(packages.SNAPSHOT)  # the core verifies no signatures


def test_an_empty_key_of_the_policy_is_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"catalog": str(file), "catalog_key": ""}
    monkeypatch.setattr(policy, "read", lambda: policy.Policy(others=rules))
    assert packages.load_local({}).source == str(file)


def _cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _changed(file: Path) -> None:
    file.write_text(file.read_text().replace("acme-cv", "acme-cw"))


def _of_another_key(file: Path) -> None:
    file.with_name("acme.json.sig").write_bytes(b"\1" * 64)


def _cut_off_signature(file: Path) -> None:
    file.with_name("acme.json.sig").write_bytes(b"\1" * 20)


@pytest.mark.parametrize("damage", [_cut_off, _changed, _of_another_key, _cut_off_signature])
def test_a_catalogue_that_the_owner_of_the_key_did_not_sign_is_refused(
    signed: Path, damage: Callable[[Path], None]
) -> None:
    damage(signed)
    with pytest.raises(hami.PluginError) as caught:
        catalog.load()
    assert str(caught.value) == (
        f"the catalogue {signed} is not what the owner of the key in the policy signed: it is cut off, was changed, or "
        f"{signed}.sig belongs to another one; get both again, or ask the administrator of this machine"
    )
    assert packages.load_local({}).source == str(packages.SNAPSHOT)


def test_a_catalogue_that_nobody_signed_is_refused(signed: Path) -> None:
    signed.with_name("acme.json.sig").unlink()
    with pytest.raises(hami.PluginError) as caught:
        catalog.load()
    assert str(caught.value).startswith(f"cannot read the signature of the catalogue {signed}.sig: No such file")


def test_a_signature_that_cannot_be_verified_here_is_an_error(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cryptography", "cryptography.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(hami.PluginError, match=r"for which cryptography is missing: pip install 'hami-tools\[trust\]'"):
        catalog.load()


def test_the_documented_command_signs_a_catalogue(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    page = (GENERATOR.parents[1] / "hami-core" / "docs" / "reference" / "catalog.md").read_text("utf-8")
    commands = re.findall(r"^openssl .*$", page, re.M)
    file.rename(file.with_name("catalog.json"))
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=file.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    key = done.stdout.splitlines()[1]
    rules = {"catalog": str(file.with_name("catalog.json")), "catalog_key": key}
    monkeypatch.setattr(policy, "read", lambda: policy.Policy(others=rules))
    assert list(catalog.load().plugins) == ["acme-cv", "acme-ocr"]


def test_an_installed_plugin_that_no_catalogue_lists_is_found(hami_command: Any, site: Site, file: Path) -> None:
    write_plugin(site.folder, "acme-own", "0.3", "AcmeOwn")
    done = hami_command("search", "acme-own", site=site.folder, HAMI_CATALOG=str(file))
    assert done.stdout.splitlines()[1:] == ["acme-own  0.3        AcmeOwn"]
    assert "AcmeOwn" in hami_command("search", "AcmeOwn", site=site.folder).stdout
    done = hami_command("show", "AcmeOwn", site=site.folder)
    assert "  installed  0.3" in done.stdout
    assert "  catalogue  not in it; this is what its metadata say" in done.stdout
    everything = json.loads(hami_command("search", "--json", site=site.folder).stdout)
    assert [each["name"] for each in everything if each["name"] not in load_local().plugins] == ["acme-own"]
