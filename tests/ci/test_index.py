"""ci/index writes an index according to PEP 503 and PEP 691, and does not delete other files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hami_build import index, index_server, integrity
from hami_build.commands import main
from hami_build.steps import Failure

METADATA = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Python: >=3.10\n"


def write_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", METADATA.format(name=name, version=version))
    return wheel


def write_source(folder: Path, name: str, version: str = "1.0") -> Path:
    source = folder / f"{name}-{version}.tar.gz"
    text = METADATA.format(name=name, version=version).encode()
    with tarfile.open(source, "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return source


def get(address: str, accept: str = "text/html") -> tuple[str, str]:
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": accept})) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_provenance_beside_a_file_is_served(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "dist", "acme")
    plain = write_wheel(tmp_path / "dist", "acme", "2.0")
    (tmp_path / "dist" / f"{wheel.name}.provenance").write_text('{"version": 1}')
    index.write([wheel, plain], tmp_path / "index")
    with index_server.serving(tmp_path / "index") as address:
        page = json.loads(get(f"{address}acme/", index_server.JSON)[1])
        served = {file["filename"]: file.get("provenance") for file in page["files"]}
        assert served == {wheel.name: f"../../files/{wheel.name}.provenance", plain.name: None}
        attributes = re.findall(r'data-provenance="([^"]*)"', get(f"{address}acme/")[1])
        assert attributes == [served[wheel.name]]
        assert get(f"{address}acme/{served[wheel.name]}")[1] == '{"version": 1}'


def test_page_of_a_project_has_hash_metadata_and_python(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "dist", "Acme_Shout.x")
    index.write([wheel], tmp_path / "index")
    page = (tmp_path / "index" / "simple" / "acme-shout-x" / "index.html").read_text()
    told = digest(METADATA.format(name="Acme_Shout.x", version="1.0").encode())
    assert page.splitlines()[2] == (
        f'<a href="../../files/{wheel.name}#sha256={digest(wheel.read_bytes())}" data-requires-python="&gt;=3.10" '
        f'data-core-metadata="sha256={told}" data-dist-info-metadata="sha256={told}">{wheel.name}</a><br>'
    )
    served = tmp_path / "index" / "files" / f"{wheel.name}.metadata"
    assert digest(served.read_bytes()) == told


def test_json_agrees_with_the_page(tmp_path: Path) -> None:
    wheels = [write_wheel(tmp_path / "dist", "acme", version) for version in ("1.0", "1.1")]
    index.write(wheels, tmp_path / "index")
    told = json.loads((tmp_path / "index" / "simple" / "acme" / "index.json").read_text())
    assert (told["meta"], told["name"]) == ({"api-version": "1.0"}, "acme")
    for wheel, entry in zip(wheels, told["files"], strict=True):
        assert entry["filename"] == wheel.name
        assert entry["hashes"] == {"sha256": digest(wheel.read_bytes())}
        assert entry["requires-python"] == ">=3.10"
        assert "dist-info-metadata" not in entry  # pip 22.3 to 23.0 fail with it
        assert (tmp_path / "index" / "simple" / "acme" / entry["url"]).read_bytes() == wheel.read_bytes()
    listed = json.loads((tmp_path / "index" / "simple" / "index.json").read_text())
    assert listed["projects"] == [{"name": "acme"}]


def test_source_distribution_is_listed_without_metadata(tmp_path: Path) -> None:
    index.write([write_wheel(tmp_path, "acme"), write_source(tmp_path, "acme")], tmp_path / "index")
    files = json.loads((tmp_path / "index" / "simple" / "acme" / "index.json").read_text())["files"]
    assert [(file["filename"], "core-metadata" in file) for file in files] == [
        ("acme-1.0-py3-none-any.whl", True),
        ("acme-1.0.tar.gz", False),
    ]


def test_deleted_files_leave_the_index(tmp_path: Path) -> None:
    wheels = [write_wheel(tmp_path / "dist", name) for name in ("acme_a", "acme_b")]
    index.write(wheels, tmp_path / "index")
    index.write(wheels[1:], tmp_path / "index")
    assert [path.name for path in index.archives_in(tmp_path / "index" / "files")] == [wheels[1].name]
    assert "acme-a" not in (tmp_path / "index" / "simple" / "index.html").read_text()
    assert not (tmp_path / "index.work").exists()


def test_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(Failure, match="contains files that do not belong to an index; give a new or an empty folder"):
        index.write([write_wheel(tmp_path, "acme")], tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive"])
def test_invalid_wheel_is_named(tmp_path: Path, content: bytes) -> None:
    index.write([write_wheel(tmp_path, "acme")], tmp_path / "index")
    broken = tmp_path / "acme-2.0-py3-none-any.whl"
    broken.write_bytes(content)
    with pytest.raises(Failure, match=f"{re.escape(str(broken))} does not contain the metadata of a wheel"):
        index.write([broken], tmp_path / "index")
    assert (tmp_path / "index" / "files" / "acme-1.0-py3-none-any.whl").is_file()  # the old index is untouched


def test_server_answers_with_html_or_with_json(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "acme")
    index.write([wheel], tmp_path / "index")
    with index_server.serving(tmp_path / "index") as address:
        kind, text = get(f"{address}acme/")
        assert kind == "text/html"
        assert wheel.name in text
        kind, text = get(f"{address}acme/", f"{index_server.JSON}, text/html;q=0.1")
        assert kind == index_server.JSON
        assert json.loads(text)["name"] == "acme"
        kind, text = get(f"{address.removesuffix('simple/')}files/{wheel.name}.metadata")
        assert (kind, text) == ("application/octet-stream", METADATA.format(name="acme", version="1.0"))


def test_page_for_find_links_lists_every_file(tmp_path: Path) -> None:
    wheels = [write_wheel(tmp_path / "dist", name) for name in ("acme_a", "acme_b")]
    index.write(wheels, tmp_path / "index")
    page = (tmp_path / "index" / "index.html").read_text()
    links = re.findall(r'href="([^#"]+)#sha256=(\w+)"', page)
    assert links == [(f"files/{wheel.name}", digest(wheel.read_bytes())) for wheel in wheels]


@pytest.mark.parametrize(
    ("file", "name", "version"),
    [
        ("acme-1.0-py3-none-any.whl", "/tmp/outside", "1.0"),
        ("acme-1.0-py3-none-any.whl", "../../outside", "1.0"),
        ("acme-1.0-py3-none-any.whl", "<script>alert(1)</script>", "1.0"),
        ("acme-1.0-py3-none-any.whl", "hami-onnx", "1.0"),
        ("acme-1.0-py3-none-any.whl", "", "1.0"),
        ("acme-1.0-py3-none-any.whl", "acme", "2.0"),
        ("acme-1.0-py3-none-any.whl", "acme", "one"),
        ("acme-1.0.tar.gz", "../outside", "1.0"),
        ("acme-1.0.tar.gz", "hami-onnx", "1.0"),
    ],
)
def test_metadata_of_another_project_than_the_file_name_are_refused(
    tmp_path: Path, file: str, name: str, version: str
) -> None:
    path = (write_wheel if file.endswith(".whl") else write_source)(tmp_path, "acme")
    text = METADATA.format(name=name, version=version).encode()
    if file.endswith(".whl"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("acme-1.0.dist-info/METADATA", text)
    else:
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo("acme-1.0/PKG-INFO")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    with pytest.raises(Failure, match=f"{re.escape(str(path))} is not what its name says: its metadata say"):
        index.write([path], tmp_path / "index")
    assert sorted(each.name for each in tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["evil-1.0"], "its metadata are in 'evil-1.0.dist-info', its file name says acme 1.0"),
        (["acme-2.0"], "its file name says acme 1.0"),
        (["acme"], "its file name says acme 1.0"),
        (["acme-1.0", "acme-1.0.0"], "has metadata more than once"),
    ],
)
def test_a_folder_of_metadata_that_installers_refuse_is_refused(
    tmp_path: Path, folders: list[str], message: str
) -> None:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for folder in folders:
            archive.writestr(f"{folder}.dist-info/RECORD", "")
        archive.writestr(f"{folders[0]}.dist-info/METADATA", METADATA.format(name="acme", version="1.0"))
    with pytest.raises(Failure, match=message):
        index.read(path)


@pytest.mark.parametrize("folder", ["Acme_Shout-1.0", "acme.shout-1.0.0"])
def test_a_folder_of_metadata_may_write_the_name_and_version_in_another_way(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "acme_shout-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{folder}.dist-info/METADATA", METADATA.format(name="acme-shout", version="1.0"))
    assert index.read(path).project == "acme-shout"


@pytest.mark.parametrize("text", ['"><b>any', "any\x1b[31m", "any\n", "any\u202e", "a ny", "any%2e%2e", "1\x1b-any"])
def test_a_file_name_with_other_characters_than_names_and_tags_have_is_refused(tmp_path: Path, text: str) -> None:
    path = write_wheel(tmp_path / "dist", "acme").rename(tmp_path / "dist" / f"acme-1.0-py3-none-{text}.whl")
    with pytest.raises(Failure, match=r"is not what its name says: .* has other characters than letters, digits and"):
        index.write([path], tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    "text",
    [">=3.10\x1b[31m", ">=3.10\n  more", "===\x1b[31m", "===\u202e3.10", "banana", ">=3.10\0", ">=3.*", ">=3.10\xff"],
)
@pytest.mark.parametrize("write", [write_wheel, write_source])
def test_a_python_that_is_not_a_specifier_is_refused(
    tmp_path: Path, write: Callable[..., Path], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "METADATA", METADATA.replace(">=3.10", text))
    path = write(tmp_path, "acme")
    with pytest.raises(Failure, match="is not what its name says: its metadata say Requires-Python: "):
        index.write([path], tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("field", ["Name: hami-onnx", "Version: 2.0", "Requires-Python: <3"])
def test_a_field_that_two_readers_could_read_in_two_ways_is_refused(
    tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "METADATA", f"{METADATA}{field}\n")
    path = write_wheel(tmp_path, "acme")
    with pytest.raises(Failure, match=f"its metadata have {field.partition(':')[0]} more than once"):
        index.write([path], tmp_path / "index")


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_a_file_with_a_damaged_byte_is_refused_or_read(kind: str, tmp_path: Path) -> None:
    """Never another error: each byte of the file is changed in turn, and the file ends there."""
    write = write_wheel if kind == "whl" else write_source
    file = write(tmp_path, "acme")
    whole = file.read_bytes()
    refused = 0
    for at, byte in enumerate(whole):
        for content in (whole[:at], *(whole[:at] + bytes([byte ^ mask]) + whole[at + 1 :] for mask in (1, 0x63))):
            file.write_bytes(content)
            try:
                index.read(file)
            except Failure:
                refused += 1
            integrity.check(file)
    assert refused > len(whole)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    """In place of the metadata of a source distribution."""
    source = tmp_path / "acme-1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        member = tarfile.TarInfo("acme-1.0/PKG-INFO")
        member.type, member.linkname = tarfile.SYMTYPE, "PKG-INFO"
        archive.addfile(member)
    with pytest.raises(Failure, match="does not contain the metadata"):
        index.read(source)


def test_a_wheel_with_the_metadata_of_two_projects_is_refused(tmp_path: Path) -> None:
    """Installers do not agree on the folder that counts."""
    wheel = write_wheel(tmp_path, "acme")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("other-2.0.dist-info/METADATA", METADATA.format(name="other", version="2.0"))
    with pytest.raises(Failure, match=r"metadata more than once: acme-1\.0\.dist-info, other-2\.0"):
        index.read(wheel)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_that_has_its_metadata_twice_is_refused(tmp_path: Path) -> None:
    """One installer would read the first ones, and another the last ones."""
    text = METADATA.format(name="acme", version="1.0")
    wheel, source = write_wheel(tmp_path, "acme"), tmp_path / "acme-1.0.tar.gz"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("acme-1.0.dist-info/METADATA", f"{text}Requires-Dist: other\n")
    with tarfile.open(source, "w:gz") as tar:
        for content in (text, f"{text}Requires-Dist: other\n"):
            member = tarfile.TarInfo("acme-1.0/PKG-INFO")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    for path in (wheel, source):
        with pytest.raises(Failure, match="has metadata more than once"):
            index.read(path)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Unless they are the same: the index has one file of a name."""
    first, second = (write_wheel(tmp_path / folder, "acme") for folder in "ab")
    assert len(index.write([first, first, second], tmp_path / "index")) == 1
    with zipfile.ZipFile(second, "a") as archive:
        archive.writestr("acme/more.py", "")
    with pytest.raises(Failure, match="have one name and different contents"):
        index.write([first, second], tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["a file", "a header", "many files"])
def test_a_source_that_expands_without_end_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_SOURCE_BYTES", 1 << 20)
    monkeypatch.setattr(index, "MAX_SOURCE_FILES", 100)
    source = write_source(tmp_path, "acme")
    with tarfile.open(source, "w:gz") as tar:
        for number in range(101 if kind == "many files" else 1):
            member = tarfile.TarInfo(f"acme-1.0/{number}")
            member.size = 0 if kind == "many files" else 2 << 20
            member.type = tarfile.XHDTYPE if kind == "a header" else tarfile.REGTYPE
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(Failure, match="leave out those that no build needs"):
        index.read(source)


def test_a_wheel_whose_files_claim_too_much_memory_is_not_read(tmp_path: Path) -> None:
    """A member of zeros takes a thousandth of its size in the archive."""
    wheel = write_wheel(tmp_path, "acme")
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("acme/zeros", b"0")
        archive.getinfo("acme/zeros").file_size = 3 << 30
    assert integrity.check(wheel) == ("archive", False, "cannot be read: its files have more than 2 GiB")


def test_metadata_that_expand_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    text = METADATA.format(name="acme", version="1.0") + "\n" + " " * (5 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("acme-1.0.dist-info/METADATA", text)
    with pytest.raises(Failure, match="have more than 4 MiB"):
        index.write([path], tmp_path / "index")


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acme-1.0-py3-none-any.whl"
    os.mkfifo(path)
    with pytest.raises(Failure, match="is not a regular file"):
        index.read(path)


@pytest.mark.parametrize("command", ["check", "audit"])
def test_the_name_of_a_wheel_sends_no_escape_sequences(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = write_wheel(tmp_path, "acme")
    wheel = wheel.rename(tmp_path / "acme\x1b[31m-1.0-py3-none-any.whl")
    main([command, str(wheel)])
    shown = "".join(capsys.readouterr())
    assert "acme" in shown
    assert "\x1b" not in shown
