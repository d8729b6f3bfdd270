"""Bundles: one file that runs, and a typed error for every other file."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hami
import pytest
import tiny_wheels
from hami.cli import main
from hami.packages import BackendInfo

from hami_tools.bundle import build, contents, resolution, sealing
from hami_tools.bundle.boot import folders, layout
from hami_tools.bundle.boot.layout import BundleError
from hami_tools.packages.installers import Pip, Sources
from hami_tools.whole_file import written_whole

PIPE = '[words]\nbackend = "S[Identity,Identity]"\n'
HERE = {"python": folders.this_machine()[0], "machine": os.uname().machine, "glibc": [2, 17]}


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path / "unpacked"))
    monkeypatch.chdir(tmp_path)
    for name in ("HAMI_BUNDLE_KEY", "HAMI_BUNDLE_KEY_COMMAND"):
        monkeypatch.delenv(name, raising=False)


def make(*options: str, output: str = "app.hami", pipe: str = PIPE) -> Path:
    """Write a bundle without packages, with two samples."""
    Path("pipe.toml").write_text(pipe)
    samples = ["--text", "hello", "--data", '{"scores": [1, 2.5]}']
    assert main(["bundle", "pipe.toml", "-o", output, "--no-packages", *samples, *options]) == 0
    return Path(output)


def write(path: Path, files: Mapping[str, bytes], seal: Mapping[str, str] | None = None, **facts: Any) -> Path:
    """Write a bundle with any content."""
    entries = [build._of_bytes(name, content) for name, content in files.items()]
    build._write(path, facts, entries, None)
    return path


def of_wheels(path: Path, wheels: list[Path], unpacked: int = 1 << 20, **target: Any) -> layout.Bundle:
    """Write and open a bundle with packages for this Python."""
    files = {f"wheels/{wheel.name}": wheel.read_bytes() for wheel in wheels}
    targets = [{**HERE, **target, "wheels": list(files)}]
    write(path, {**boot(), **files}, targets=targets, unpacked=dict.fromkeys(files, unpacked))
    bundle = layout.open_bundle(str(path))
    layout.verify(bundle)
    return bundle


def boot() -> dict[str, bytes]:
    return {entry.member.name: b"".join(entry.parts()) for entry in build._boot()}


# ---- a bundle works ----


def test_a_bundle_is_a_source_of_every_command_and_of_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    make()
    capsys.readouterr()
    assert main(["run", "app.hami", "--text", "hi"]) == 0
    assert capsys.readouterr().out == "hi\n"
    assert main(["check", "app.hami", "--set", "max=4"]) == 0
    assert capsys.readouterr().out == "app.hami: no problems, 1 node\n"
    with hami.pipe("app.hami") as pipe:
        assert pipe({"data": 1})["result"] == 1
        assert pipe.stats()["words"].completed == 3  # the two samples ran before


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    first = make().read_bytes()
    os.utime("pipe.toml", (1, 1))
    assert make(output="again.hami").read_bytes() == first


def test_zip_tools_read_a_bundle() -> None:
    with zipfile.ZipFile(make()) as archive:
        assert archive.testzip() is None
        assert archive.read("config/pipe.toml") == PIPE.encode()


def test_headers_of_more_than_4_gib_are_those_of_zip(tmp_path: Path) -> None:
    members = [layout.Member("large", (1 << 32) + 5, 0, ""), layout.Member("ü", 3, zlib.crc32(bytes(3)), "")]
    local, end = layout.headers(members)
    path = tmp_path / "large.zip"
    with path.open("wb") as out:  # with holes: nothing is written in the members
        out.write(layout.PREFIX)
        for member, header in zip(members, local, strict=True):
            out.write(header)
            out.seek(member.size, os.SEEK_CUR)
        out.write(end)
    with zipfile.ZipFile(path) as archive:
        assert [(info.filename, info.file_size) for info in archive.infolist()] == [("large", (1 << 32) + 5), ("ü", 3)]
        assert archive.read("ü") == bytes(3)


def test_models_from_other_folders_and_inside_expressions_are_taken(tmp_path: Path, site: Any) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "net.bin").write_bytes(b"weights")
    (tmp_path / "near" / "models").mkdir(parents=True)
    (tmp_path / "near" / "models" / "net.bin").write_bytes(b"other")
    wheel = tiny_wheels.plugin(tmp_path / "wheels", "acme-read")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site.folder)
    plugin = site.folder / "acme_read" / "plugin.py"
    plugin.write_text(
        plugin.read_text().replace("    def forward", "    model: hami.types.FilePath\n\n    def forward")
    )
    plugin.write_text(plugin.read_text().replace('"acme-read 1.0.0"', "self.model.read_bytes()"))
    (tmp_path / "near" / "pipe.toml").write_text(
        f'[a]\nbackend = "AcmeRead"\nmodel = "{tmp_path}/far/net.bin"\nnext = "b"\n'
        "[b]\nbackend = \"S[AcmeRead(model='models/net.bin')]\"\n"
    )
    code = f"import sys; sys.path[:0] = [{str(site.folder)!r}]; from hami.cli import main; sys.exit(main(sys.argv[1:]))"

    def run(*words: str) -> str:
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True).stdout

    run("bundle", "near/pipe.toml", "-o", "app.hami", "--no-packages", "--text", "x")
    shutil.rmtree("near")
    shutil.rmtree("far")
    assert run("run", "app.hami", "--text", "x") == "5 bytes\n"
    names = layout.open_bundle("app.hami").members
    assert {"config/models/net.bin", "config/models/_net.bin"} <= names.keys()
    with zipfile.ZipFile("app.hami") as archive:
        assert b'[a]\n"model" = "models/_net.bin"' in archive.read("config/bundle.toml")


def test_a_backend_of_a_program_cannot_be_in_a_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    @hami.register
    class OfThisProgram(hami.Backend):
        def forward(self, batch: Any) -> None:
            """Do nothing."""

    with pytest.raises(AssertionError):
        make(pipe='[a]\nbackend = "OfThisProgram"\n')
    assert "make a plugin of it: hami new-plugin NAME" in capsys.readouterr().err
    assert not list(Path().glob("*.hami"))


def test_a_file_that_a_plugin_provides_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the library of ONNX Runtime, which OnnxTensor gives to the OnnxModel inside it."""
    library = tmp_path / "engine.so"
    library.touch()
    param = {"name": "engine", "type": "library", "default": str(library)}
    infos = {
        "Outer": BackendInfo("Outer", "acme-x", params=[param]),
        "Inner": BackendInfo("Inner", "acme-x", params=[{**param, "type": "path", "default": None}]),
    }
    monkeypatch.setattr(hami, "backends", lambda: infos)
    used = [("a", {"class": name, "distribution": "acme-x", "params": {"engine": str(library)}}) for name in infos]
    assert contents._paths(used) == []
    assert contents._paths(used[1:]) == [("a", str(library))]


# ---- answers ----


def rewritten(path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> Path:
    """Write a bundle again with a change of its members or its manifest, and the right hashes."""
    bundle = layout.open_bundle(str(path))
    files = {name: bundle.read(name) for name in bundle.members}
    facts = {name: value for name, value in bundle.facts.items() if name != "members"}
    change(files, facts)
    path.unlink()
    return write(path, files, **facts)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"answer": "hello"', b'"answer": "hallo"', "'hallo' and 'hello'"),
        (b"2.5\n", b"2.6\n", "numbers differ by up to 0.1, and at most 0.0026 is allowed"),
        (b'"answer": "hello"', b'"answer": null', "'None' and 'hello'"),
    ],
)
def test_another_answer_is_refused_before_the_first_request(old: bytes, new: bytes, problem: str) -> None:
    def change(files: dict[str, bytes], _: dict[str, Any]) -> None:
        text = files["samples/samples.json"]
        head, _, tail = text.rpartition(old)
        files["samples/samples.json"] = head + new + tail

    path = rewritten(make(), change)
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(str(path))
    assert problem in str(caught.value)
    assert "python app.hami verify" in str(caught.value)


def test_small_differences_of_numbers_are_within_the_tolerance() -> None:
    def change(files: dict[str, bytes], _: dict[str, Any]) -> None:
        head, _, tail = files["samples/samples.json"].rpartition(b"2.5\n")
        files["samples/samples.json"] = head + b"2.501\n" + tail

    with hami.pipe(str(rewritten(make(), change))):
        pass


# ---- changed files ----


def test_a_changed_bit_anywhere_is_refused_with_the_name_of_the_member(tmp_path: Path) -> None:
    path = make()
    content = path.read_bytes()
    bundle = layout.open_bundle(str(path))
    at = bundle.offsets
    where = {name: range(at[name], at[name] + member.size) for name, member in bundle.members.items()}
    copy = tmp_path / "copy.hami"
    for at in [*range(0, len(content), 211), *range(len(content) - 800, len(content), 7)]:
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        copy.write_bytes(changed)
        with pytest.raises(BundleError) as caught:
            layout.verify(layout.open_bundle(str(copy)))
        for name, places in where.items():
            if at in places:
                assert f"was changed after it was made: {name} differs" in str(caught.value)


def test_a_bundle_that_is_cut_off_or_too_long_is_refused(tmp_path: Path) -> None:
    content = make().read_bytes()
    copy = tmp_path / "copy.hami"
    for size in [*range(0, len(content), 499), len(content) - 1]:
        copy.write_bytes(content[:size])
        with pytest.raises(hami.ConfigError, match=f"copy.hami is cut off: it has {size}( of {len(content)})? bytes"):
            hami.pipe(str(copy))
    copy.write_bytes(content + b"x")
    with pytest.raises(hami.ConfigError, match="the list of members at its end"):
        hami.pipe(str(copy))


def test_a_piece_of_a_large_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PIECE", 1000)
    path = write(tmp_path / "large.hami", {"config/net.bin": os.urandom(4321)})
    bundle = layout.open_bundle(str(path))
    assert len(bundle.members["config/net.bin"].pieces) == 5
    layout.verify(bundle)
    with path.open("r+b") as file:
        file.seek(bundle.offsets["config/net.bin"] + 4000)
        file.write(b"1234567")
    with pytest.raises(BundleError, match=r"config/net.bin differs"):
        layout.verify(bundle)
    with pytest.raises(BundleError, match=r"config/net.bin differs"):
        bundle.read("config/net.bin")


def test_a_bundle_takes_the_place_of_a_file_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.hami")
    (tmp_path / "folder.hami").mkdir()
    Path("app.toml").write_text(PIPE)
    for name in ("pipe.hami", "folder.hami", ""):
        assert main(["bundle", "app.toml", "-o", name, "--no-packages"]) == 1
        assert capsys.readouterr().err.startswith(f'error: cannot write "{name}": it is not a regular file')
    assert main(["bundle", "app.toml", "-o", "none/app.hami", "--no-packages"]) == 1
    instead = "; give the name of a file that can be written\n"
    assert capsys.readouterr().err == f'error: cannot write "none/app.hami": No such file or directory{instead}'
    assert main(["bundle", "app.toml", "-o", "app.toml/app.hami", "--no-packages"]) == 1
    assert capsys.readouterr().err == f'error: cannot write "app.toml/app.hami": Not a directory{instead}'
    assert main(["bundle", "app.toml", "-o", "x" * 256, "--no-packages"]) == 1
    assert capsys.readouterr().err == f'error: cannot write "{"x" * 256}": File name too long{instead}'
    assert Path("pipe.hami").is_fifo()


def test_a_file_that_is_written_whole_keeps_its_mode_and_has_any_name(tmp_path: Path) -> None:
    for name in ("file", "x" * 255):
        with written_whole(name) as new:
            new.write_text("old")
        assert Path(name).read_text() == "old"
    Path("file").chmod(0o600)
    with written_whole("file") as first, written_whole("file") as second:
        assert first != second
        second.write_text("second")
        first.write_text("first")
    assert Path("file").read_text() == "first"
    assert Path("file").stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "x" * 255]


def test_a_link_to_a_pipe_is_not_a_regular_file() -> None:
    reader, writer = os.pipe()
    try:
        with (
            pytest.raises(hami.ConfigError, match="it is not a regular file"),
            written_whole(f"/proc/self/fd/{writer}"),
        ):
            pass
    finally:
        os.close(reader)
        os.close(writer)


def test_a_link_keeps_its_place_when_a_bundle_is_written_again() -> None:
    make(output="real.hami")
    before = Path("real.hami").stat().st_ino
    Path("app.hami").symlink_to("real.hami")
    make()
    assert Path("app.hami").is_symlink()
    assert Path("real.hami").stat().st_ino != before
    hami.pipe("app.hami").close()


@pytest.mark.parametrize("command", ["verify", "unpack"])
def test_a_pipe_is_not_a_bundle(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.hami")  # nothing writes to it
    assert main([command, "pipe.hami", *(["new"] if command == "unpack" else [])]) == 1
    assert capsys.readouterr().err == "error: pipe.hami is not a bundle: it is not a regular file\n"


def test_a_folder_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    make()
    capsys.readouterr()
    assert main(["unpack", "app.hami", "pipe.toml/new"]) == 1
    assert capsys.readouterr().err == 'error: cannot unpack into "pipe.toml/new": File exists\n'


def test_another_file_is_not_a_bundle(tmp_path: Path) -> None:
    with zipfile.ZipFile("app.hami", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(hami.ConfigError, match=r"app.hami is not a bundle"):
        hami.pipe("app.hami")
    with pytest.raises(hami.ConfigError, match="does not exist"):
        hami.pipe("none.hami")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["../x"], "leads out of its folder"),
        (["/etc/x"], "leads out of its folder"),
        (["a//x"], "not in its shortest form"),
        (["a\\x"], "a control character or a backslash"),
        (["a\nx"], "a control character or a backslash"),
        (["x" * 1001], "is not a text of 1 to 1000 characters"),
        (["a", "a"], "two members with the name 'a'"),
        ([layout.SEAL], "two members with the name"),
        (["a", "a/b"], "is a file and a folder"),
    ],
)
def test_names_that_lead_elsewhere_or_are_doubled_are_refused(tmp_path: Path, names: list[str], problem: str) -> None:
    build._write(tmp_path / "bad.hami", {}, [build._of_bytes(name, b"x") for name in names], None)
    with pytest.raises(hami.ConfigError, match=problem):
        hami.pipe(str(tmp_path / "bad.hami"))


def test_a_link_or_compression_in_the_list_of_members_is_refused(tmp_path: Path) -> None:
    path = make()
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\1\2", 0, content.rindex(b"config/pipe.toml"))
    content[entry + 38 : entry + 42] = (0o120777 << 16).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(hami.ConfigError, match=r"the list of members at its end, at config/pipe.toml differs"):
        hami.pipe("app.hami")


@pytest.mark.parametrize(
    "manifest",
    [
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"format": 1}',
        b'{"format": 1, "members": [1]}',
        b'{"format": 1, "members": [{"name": "x", "size": 1.0, "crc32": 0, "sha256": ""}]}',
        b'{"format": 1, "members": [{"name": "x", "size": 0, "crc32": 0.0, "sha256": ""}]}',
    ],
)
def test_a_manifest_of_another_form_is_refused(
    tmp_path: Path, manifest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "manifest_of", lambda *_: manifest)
    path = write(tmp_path / "bad.hami", {})
    with pytest.raises(hami.ConfigError, match=r"hami-bundle.json differs"):
        hami.pipe(str(path))


@pytest.mark.parametrize(
    "facts",
    [
        {"targets": [{}]},
        {"targets": 3},
        {"targets": [{**HERE, "wheels": ["wheels/none.whl"]}], "unpacked": {"wheels/none.whl": 1}},
        {"targets": [{**HERE, "wheels": ["config/x"]}], "unpacked": {}},
        {"targets": [{**HERE, "glibc": ["2"], "wheels": []}]},
        {"source": "../../etc/passwd"},
        {"plugins": ["acme-x"]},
        {"samples": "1"},
        {"tolerance": None},
    ],
)
def test_what_a_manifest_says_in_another_form_is_refused(tmp_path: Path, facts: dict[str, Any]) -> None:
    path = write(tmp_path / "bad.hami", {"config/x": b""}, **facts)
    with pytest.raises(BundleError, match=r"hami-bundle.json differs"):
        layout.open_bundle(str(path))


def test_a_bundle_without_a_pipeline_is_unpacked() -> None:
    write(Path("plain.hami"), {"config/x": b"y"})
    assert main(["unpack", "plain.hami", "plain"]) == 0
    assert Path("plain/config/x").read_bytes() == b"y"


def test_unpacked_files_are_verified_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PIECE", 100)
    write(Path("plain.hami"), {"config/a file": os.urandom(321), "config/ü": b"y"})
    assert main(["unpack", "plain.hami", "plain"]) == 0
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    whole = subprocess.run(check, cwd="plain", capture_output=True, text=True, check=True).stdout
    assert whole == "hami-bundle.json: OK\nconfig/a file: OK\nconfig/ü: OK\n"
    Path("plain/config/ü").write_bytes(b"z")
    changed = subprocess.run(check, cwd="plain", capture_output=True, text=True, check=False)
    assert changed.returncode == 1
    assert "config/ü: FAILED" in changed.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[", "JSONDecodeError"),
        (b"[1]", "TypeError"),
        (b"[" * 100_000, "RecursionError"),
        (b'[{"label": "a", "data": 1}]', "KeyError: 'answer'"),
        (b'[{"label": "a", "data": {"$bytes": "../x"}, "answer": 1}]', "leads out of its folder"),
        (b'[{"label": "a", "data": {"$bytes": "none"}, "answer": 1}]', "No such file"),
    ],
)
def test_samples_of_another_form_are_refused(text: bytes, problem: str) -> None:
    path = rewritten(make(), lambda files, _: files.update({"samples/samples.json": text}))
    with pytest.raises(hami.ConfigError, match=r"the samples in app.hami cannot be read: ") as caught:
        hami.pipe(str(path))
    assert problem in str(caught.value)


def test_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FORMAT", 2)
    path = write(tmp_path / "later.hami", {})
    monkeypatch.undo()
    with pytest.raises(hami.ConfigError, match="has the format 2, and this program reads 1"):
        hami.pipe(str(path))


def test_a_missing_plugin_is_named(tmp_path: Path) -> None:
    def change(_: dict[str, bytes], facts: dict[str, Any]) -> None:
        facts["plugins"] = {"acme-none": "1.0"}

    with pytest.raises(hami.ConfigError, match=r"needs acme-none 1.0, .* python app.hami run"):
        hami.pipe(str(rewritten(make(), change)))


# ---- signatures and encryption ----


def new_key(name: str = "key.pem") -> str:
    """Write a private key with its public key, and return the latter."""
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem, format, no = to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()
    Path(name).write_bytes(key.private_bytes(pem, format, no))
    Path(f"{name}.pub").write_bytes(key.public_key().public_bytes(pem, to.PublicFormat.SubjectPublicKeyInfo))
    return f"{name}.pub"


def test_a_signature_is_verified_and_another_key_refused(capsys: pytest.CaptureFixture[str]) -> None:
    key, other = new_key(), new_key("other.pem")
    make("--sign", "key.pem")
    assert main(["verify", "app.hami", "--key", key]) == 0
    assert "signed with the key MCowBQYDK2VwAyEA" in capsys.readouterr().out
    assert main(["verify", "app.hami", "--key", other]) == 1
    assert "app.hami is signed with the key MCow" in capsys.readouterr().err
    make(output="unsigned.hami")
    assert main(["verify", "unsigned.hami", "--key", key]) == 1
    assert "unsigned.hami is not signed, and must be by one of MCow" in capsys.readouterr().err
    assert main(["verify", "app.hami", "--key", "pipe.toml"]) == 1
    assert "--key takes the public key" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="a policy file belongs to root")
def test_a_policy_names_the_keys_that_may_sign(write_policy: Any) -> None:
    key, other = (sealing.public_key(new_key(name)) for name in ("key.pem", "other.pem"))
    make("--sign", "key.pem")
    make(output="unsigned.hami")
    path = write_policy(f'bundle_keys = ["{key}"]')
    with hami.pipe("app.hami") as pipe:
        assert pipe({"data": "hello"})["result"] == "hello"
    requires = f"; {path} requires this: ask the administrator of this machine"
    with pytest.raises(hami.ConfigError, match=r"unsigned\.hami is not signed") as caught:
        hami.pipe("unsigned.hami")
    assert str(caught.value).endswith(requires)
    write_policy(f'bundle_keys = ["{other}"]')
    with pytest.raises(hami.ConfigError, match=r"app\.hami is signed with the key MCow") as caught:
        hami.pipe("app.hami")
    assert str(caught.value).endswith(requires)


def test_a_signature_of_another_manifest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    new_key()
    seal = dict(layout.open_bundle(str(make("--sign", "key.pem"))).seal)

    def copied(manifest: bytes, _: Mapping[str, str]) -> bytes:
        return json.dumps({**seal, "sha256": hashlib.sha256(manifest).hexdigest()}).encode()

    monkeypatch.setattr(layout, "seal_of", copied)
    path = rewritten(Path("app.hami"), lambda files, _: files.update({"config/pipe.toml": PIPE.encode() + b"\n"}))
    with pytest.raises(hami.ConfigError, match=r"the signature of app.hami is not valid"):
        hami.pipe(str(path))


KEY, OTHER_KEY = "ab" * 32, "cd" * 32


def test_encrypted_members_need_their_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")
    monkeypatch.setenv("HAMI_BUNDLE_KEY", KEY)
    make("--encrypt")
    first = Path("app.hami").read_bytes()
    assert b"Identity" not in first
    assert b"hello" not in first
    make("--encrypt")
    assert Path("app.hami").read_bytes() == first
    with hami.pipe("app.hami") as pipe:
        assert pipe({"data": 1})["result"] == 1
    monkeypatch.setenv("HAMI_BUNDLE_KEY", OTHER_KEY)
    with pytest.raises(hami.ConfigError, match=r"HAMI_BUNDLE_KEY is the wrong key for the bundle app.hami, it has"):
        hami.pipe("app.hami")
    monkeypatch.setenv("HAMI_BUNDLE_KEY", "12")
    with pytest.raises(hami.ConfigError, match=r"HAMI_BUNDLE_KEY is not a key for .*64 hexadecimal digits"):
        hami.pipe("app.hami")
    monkeypatch.delenv("HAMI_BUNDLE_KEY")
    with pytest.raises(hami.ConfigError, match=r"the bundle app.hami needs a key: its key has the identity"):
        hami.pipe("app.hami")
    monkeypatch.setenv("HAMI_BUNDLE_KEY_COMMAND", f"echo {KEY}")
    assert main(["unpack", "app.hami", "inside"]) == 0
    assert Path("inside/config/pipe.toml").read_text() == PIPE
    assert Path("inside").stat().st_mode & 0o777 == 0o700  # decrypted, for this user alone
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd="inside", check=True)
    monkeypatch.setenv("HAMI_BUNDLE_KEY_COMMAND", "false")
    with pytest.raises(hami.ConfigError, match="the command of HAMI_BUNDLE_KEY_COMMAND gave no key"):
        hami.pipe("app.hami")


def test_encrypted_files_of_one_name_are_different_files(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")
    monkeypatch.setenv("HAMI_BUNDLE_KEY", KEY)
    Path("base").mkdir()
    Path("base/pipe.toml").write_text(PIPE)
    make("--encrypt", "--include", "base/pipe.toml", pipe='extends = "base/pipe.toml"\n')
    with hami.pipe("app.hami") as pipe:
        assert pipe({"data": 1})["result"] == 1


def test_the_decrypted_files_last_until_the_process_ends_that_opened_them(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")
    program = (
        "import os, pathlib, sys\n"
        "from hami_tools.bundle import opening\n"
        "folder = pathlib.Path(opening.unpacked(opening.open_verified('app.hami')))\n"
        "if not (forked := os.fork()):\n"
        "    sys.exit()\n"  # as a worker of a server does
        "os.waitpid(forked, 0)\n"
        "print(folder, (folder / 'config/pipe.toml').exists())\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAMI_BUNDLE_KEY", KEY)
        make("--encrypt")
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    folder, was_there = run.stdout.split()
    assert was_there == "True"
    assert not Path(folder).exists()


def test_a_system_that_refuses_memory_for_decrypted_files_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")

    def refuse(name: str, flags: int = 0) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setenv("HAMI_BUNDLE_KEY", KEY)
    make("--encrypt")
    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(hami.ConfigError, match="is decrypted into memory only, and this system refuses that"):
        hami.pipe("app.hami")


def test_an_encrypted_member_of_another_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: hami-tools[trust]")
    monkeypatch.setenv("HAMI_BUNDLE_KEY", KEY)
    path = make("--encrypt")
    bundle = layout.open_bundle(str(path))
    swapped = {"config/pipe.toml": "config/bundle.toml", "config/bundle.toml": "config/pipe.toml"}
    entries = []
    for name, member in bundle.members.items():
        content = bundle.read(swapped.get(name, name))
        made = layout.member_of(name, [content], encrypted=member.encrypted)
        entries.append(build._Entry(made, lambda content=content: [content]))
    path.unlink()
    build._write(path, {key: value for key, value in bundle.facts.items() if key != "members"}, entries, None)
    with pytest.raises(hami.ConfigError, match="cannot be decrypted: it was encrypted with another key, or"):
        hami.pipe(str(path))


# ---- packages ----


def wheel_of(folder: Path, files: Mapping[str, bytes], name: str = "acme_x") -> Path:
    info = f"{name}-1.0.dist-info"
    return tiny_wheels.write(folder, name, "1.0", "py3-none-any", {f"{info}/METADATA": b"Name: acme-x\n", **files})


def test_packages_are_unpacked_once_and_again_if_a_file_differs(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path, {"acme_x.py": b"A = 1\n", "acme_x-1.0.data/purelib/more.py": b"B = 2\n"})
    bundle = of_wheels(tmp_path / "app.hami", [wheel])
    site = Path(folders.packages(bundle))
    assert {path.name for path in site.iterdir()} == {"acme_x.py", "more.py", "acme_x-1.0.dist-info"}
    kept = site.stat().st_ino
    (site / "__pycache__").mkdir()
    assert folders.packages(bundle) == str(site)
    assert site.stat().st_ino == kept
    (site / "acme_x.py").write_bytes(b"A = 2\n")
    assert folders.packages(bundle) == str(site)
    assert (site / "acme_x.py").read_bytes() == b"A = 1\n"
    (site / "evil.py").touch()
    folders.packages(bundle)
    assert not (site / "evil.py").exists()
    assert [path.name for path in (tmp_path / "unpacked").iterdir()] == [site.name]


@pytest.mark.parametrize("piece", [30, 100])
def test_a_wheel_is_unpacked_wherever_its_pieces_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(layout, "PIECE", piece)
    content = {f"acme_{number}.py": b"A = %d\n" % number * 99 for number in range(9)}
    site = Path(folders.packages(of_wheels(tmp_path / "app.hami", [wheel_of(tmp_path, content)])))
    assert {name: (site / name).read_bytes() for name in content} == content


@pytest.mark.parametrize("piece", [layout.PIECE, 100])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_bundle_that_changes_after_it_was_verified_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, piece: int
) -> None:
    monkeypatch.setattr(layout, "PIECE", piece)
    good, other = (
        of_wheels(tmp_path / f"{name}.hami", [wheel_of(tmp_path / name, {"acme_x.py": b"A = %d\n" % number})])
        for number, name in enumerate(("app", "other"))
    )
    if in_place:
        Path(good.path).write_bytes(Path(other.path).read_bytes())
    else:
        os.replace(other.path, good.path)
    with pytest.raises(BundleError, match=r"app.hami was changed after it was made: wheels/acme_x-1.0-.* differs"):
        folders.packages(good)
    assert not list((tmp_path / "unpacked").glob("*"))


def test_a_wheel_that_changes_after_its_list_of_hashes_was_read_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, other = (
        of_wheels(tmp_path / f"{name}.hami", [wheel_of(tmp_path / name, {"acme_x.py": b"A = %d\n" % number})])
        for number, name in enumerate(("app", "other"))
    )
    monkeypatch.setattr(folders, "_parent", lambda: os.replace(other.path, good.path) or str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    with pytest.raises(BundleError, match=r"app.hami was changed after it was made: wheels/acme_x-1.0-.* differs"):
        folders.packages(good)
    assert not list((tmp_path / "site").iterdir())


def add(wheel: Path, name: str, content: bytes = b"", mode: int = 0o100644) -> Path:
    """Add a file that RECORD does not list."""
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(info, content)
    return wheel


@pytest.mark.parametrize(
    ("make_wheel", "problem"),
    [
        (lambda folder: wheel_of(folder, {"../evil.py": b""}), "leads out of its folder"),
        (lambda folder: wheel_of(folder, {"/evil.py": b""}), "leads out of its folder"),
        (lambda folder: wheel_of(folder, {"acme_x-1.0.data/purelib/../../evil.py": b""}), "leads out of its folder"),
        (lambda folder: add(wheel_of(folder, {}), "evil.py"), "RECORD does not list evil.py with a hash"),
        (lambda folder: add(wheel_of(folder, {}), "link", b"/etc/passwd", 0o120777), "link is a link"),
        (lambda folder: wheel_of(folder, {"bomb": bytes(1 << 21)}), "more than the 1048576 bytes"),
    ],
)
def test_a_wheel_that_leads_elsewhere_or_is_a_bomb_is_refused(
    tmp_path: Path, make_wheel: Callable[[Path], Path], problem: str
) -> None:
    bundle = of_wheels(tmp_path / "app.hami", [make_wheel(tmp_path)])
    with pytest.raises(BundleError, match=problem):
        folders.packages(bundle)
    assert not list((tmp_path / "unpacked").iterdir())
    assert not (tmp_path / "evil.py").exists()


def test_two_wheels_with_different_files_of_one_name_are_refused(tmp_path: Path) -> None:
    wheels = [wheel_of(tmp_path, {"same.py": name.encode()}, name) for name in ("acme_x", "acme_y")]
    with pytest.raises(BundleError, match=r"acme_x-1.0-.* and acme_y-1.0-.* both contain same.py"):
        folders.packages(of_wheels(tmp_path / "app.hami", wheels))


@pytest.mark.parametrize(
    ("target", "there"),
    [
        ({"machine": "sparc64"}, "on sparc64 with glibc 2.17"),
        ({"python": "cp399"}, "CPython 3.99 on"),
        ({"glibc": [9, 1]}, "with glibc 9.1"),
    ],
)
def test_another_platform_is_refused_with_those_that_the_bundle_has(
    tmp_path: Path, target: dict[str, Any], there: str
) -> None:
    with pytest.raises(BundleError, match=rf"has packages for .*{there}.*, and this is .*hami bundle … --platform"):
        folders.packages(of_wheels(tmp_path / "app.hami", [], **target))


def test_a_full_disk_is_not_the_fault_of_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_up(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    bundle = of_wheels(tmp_path / "app.hami", [wheel_of(tmp_path, {"acme_x.py": b"A = 1\n"})])
    (tmp_path / "unpacked").mkdir(0o700)
    full = "cannot unpack into .*: No space left on device; name a folder with space: HAMI_BUNDLE_DIR=FOLDER"
    with monkeypatch.context() as patch:
        patch.setattr(folders._Wheel, "_write", fill_up)
        with pytest.raises(BundleError, match=full):
            folders.packages(bundle)
    Path(folders.packages(bundle), "acme_x.py").write_bytes(b"A = 2\n")  # which is then unpacked again
    monkeypatch.setattr(folders._Wheel, "_write", fill_up)
    with pytest.raises(BundleError, match=full):
        folders.packages(bundle)


def test_what_a_killed_process_has_unpacked_in_part_is_removed(tmp_path: Path) -> None:
    bundle = of_wheels(tmp_path / "app.hami", [wheel_of(tmp_path, {"acme_x.py": b"A = 1\n"})])
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir(0o700)
    (unpacked / f".{'0a' * 8}-abcd_123" / "part").mkdir(parents=True)
    (unpacked / ".ssh").mkdir()  # of a folder that has other content too
    site = Path(folders.packages(bundle))
    assert {path.name for path in unpacked.iterdir()} == {site.name, ".ssh"}


def test_of_those_that_start_at_the_same_time_one_unpacks(tmp_path: Path) -> None:
    both, filled = threading.Barrier(2), []

    def fill(folder: str) -> None:
        filled.append(folder)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)
        Path(folder, "file").touch()

    def start(_: int) -> str:
        return folders._folder("name", lambda folder: os.path.isfile(os.path.join(folder, "file")), fill)

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(start, range(2))) == {os.path.realpath(tmp_path / "unpacked" / "name")}
    assert len(filled) == 1


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked").chmod(0o777)
    with pytest.raises(BundleError, match="other users can change"):
        folders.packages(of_wheels(tmp_path / "app.hami", []))


START = {
    "hami/__init__.py": b"",
    "hami/cli.py": b"import sys\ndef main(words):\n    print(words, sys.flags.isolated, sys.path[0])\n    return 7\n",
    "hami_tools/__init__.py": b"",
    "hami_tools/bundle/__init__.py": b"",
    "hami_tools/bundle/opening.py": b"verified = set()\n",
}


def test_python_starts_a_bundle_with_its_own_packages_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.hami"
    bundle = of_wheels(path, [wheel_of(tmp_path, START)])
    (tmp_path / "hami.py").write_text("raise SystemExit('of the current folder')")

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(path), *words], capture_output=True, text=True, check=False)

    done = start("run", "page.png")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"['run', '{path}', 'page.png'] 1 {folders.packages(bundle)}\n"
    assert start("--help").stdout.startswith("usage: python app.hami COMMAND")
    content = bytearray(path.read_bytes())
    content[bundle.offsets["wheels/acme_x-1.0-py3-none-any.whl"] + 99] ^= 1
    path.write_bytes(content)
    done = start("run", "page.png")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {path} was changed after it was made: wheels/acme_x-1.0-py3-none-any.whl differs; get the "
        "bundle again, or make it again with hami bundle\n"
    )


def test_only_this_user_can_change_the_folder_of_bundles_with_every_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(folders.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle = layout.open_bundle(str(make()))
    before = os.umask(0)
    try:
        folders.files(bundle)
    finally:
        os.umask(before)
    made = [tmp_path / "cache", tmp_path / "cache" / "hami", tmp_path / "cache" / "hami" / "bundles"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700] * 3


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_a_folder_without_the_installed_version_is_named_with_the_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    tiny_wheels.plugin(wheels, "acme-one", requires="acme-two")
    tiny_wheels.empty(wheels, "acme-two", "2.0")
    monkeypatch.setattr(resolution, "installed_versions", lambda: ["acme-one==1.0.0", "acme-two==1.0"])
    (tmp_path / "out").mkdir()
    python, machine = "3.12", os.uname().machine
    with pytest.raises(hami.PluginError) as caught:
        resolution.resolve(Pip(), ["acme-one==1.0.0"], Sources(folder=str(wheels)), tmp_path / "out", machine, python)
    assert str(caught.value) == (
        f"{wheels} has no acme_two-1.0-*.whl: acme-two 1.0 is installed here, and a bundle has the installed versions; "
        "add the file, or install a version that the folder has"
    )
