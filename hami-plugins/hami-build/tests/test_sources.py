"""The sources of others come from the user's index or folder, by hash, and only whole and from inside their archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hami_build import (
    cache,
    development,
    index,
    index_server,
    package_index,
    pip_settings,
    project,
    sbom,
    sdist,
    sources,
    steps,
    wheel_file,
    wheels,
)
from hami_build.commands import main
from hami_build.errors import Failure

FILES = {
    "acme-1.0/vendor/parse/include/parse.h": "int parse(void);\n",
    "acme-1.0/vendor/parse/src/parse.c": "// of Ann\n// free\nint parse(void) { return 7; }\n",
    "acme-1.0/vendor/parse/LICENSE": "MIT, Ann\n",
    "acme-1.0/vendor/parse/src/deep/test.c": "int main(void) { return 0; }\n",
    "acme-1.0/setup.py": "raise SystemExit('never run')\n",
}
NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}


@dataclass
class Place:
    """A folder of archives, and a project that names one of them."""

    folder: Path
    project: Path
    table: dict[str, object] = field(default_factory=dict)

    def archive(
        self, files: Mapping[str, str] = FILES, *others: tarfile.TarInfo, name: str = "acme-1.0.tar.gz"
    ) -> Path:
        """Write an archive and name its hash in the table."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as opened:
            for path, text in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(text)
                opened.addfile(member, io.BytesIO(text.encode()))
            for member in others:
                opened.addfile(member)
        self.folder.mkdir(exist_ok=True)
        file = self.folder / name
        file.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
        self.table["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        return file

    def read(self, **changes: object) -> project.Project:
        """Write the project, with changes of its table, and read it."""
        table = {key: value for key, value in {**self.table, **changes}.items() if value is not None}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        text = '[build-system]\nbuild-backend = "x"\n[project]\nname = "acme-inc"\nversion = "1.0"\n'
        self.project.mkdir(exist_ok=True)
        (self.project / "pyproject.toml").write_text(
            "\n".join([text, "[tool.hami-build.sources.parse]", *lines, ""]), "utf-8"
        )
        return project.read(self.project)


def without_pip(*command: object, **options: object) -> str:
    """Stand for pip in an environment that has none; with pip, reading its settings takes half a second."""
    raise Failure("No module named pip")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose archive is found by PIP_FIND_LINKS, and no other one."""
    monkeypatch.setattr(cache, "_chosen", tmp_path / "cache")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(pip_settings, "run", without_pip)
    found = Place(tmp_path / "links", tmp_path / "project")
    for name, value in {**NOWHERE, "PIP_FIND_LINKS": str(found.folder), "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    found.table = {
        "from": "acme==1.0",
        "folder": "vendor/parse",
        "files": ["include/*.h", "src/*.c"],
        "version": "9.4",
        "license": "MIT",
        "license-files": ["LICENSE", "src/parse.c#L1-L2"],
    }
    found.archive()
    return found


def names_in(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text("utf-8") for file in sorted(folder.rglob("*")) if file.is_file()
    }


def test_the_named_files_and_notices_come_from_the_archive(place: Place) -> None:
    folder = sources.folder_of(place.read())
    assert folder is not None
    assert names_in(folder) == {
        "licenses/parse/LICENSE": "MIT, Ann\n",
        "licenses/parse/parse.c": "// of Ann\n// free\n",
        "parse/VERSION": "9.4",
        "parse/include/parse.h": FILES["acme-1.0/vendor/parse/include/parse.h"],
        "parse/src/parse.c": FILES["acme-1.0/vendor/parse/src/parse.c"],
    }
    assert sources.parts(place.read()) == [sbom.Part("parse", "9.4", "MIT", "pkg:generic/parse@9.4")]


def test_a_project_without_sources_has_no_folder(place: Place) -> None:
    place.read()
    text = (place.project / "pyproject.toml").read_text("utf-8").partition("[tool.")[0]
    (place.project / "pyproject.toml").write_text(text, "utf-8")
    assert sources.folder_of(project.read(place.project)) is None
    assert main(["sources", str(place.project)]) == 1


@pytest.mark.parametrize("page", ["index.json", "index.html"])
def test_an_index_is_read_as_json_and_as_html(place: Place, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also relative addresses and hashes in fragments, which html pages have."""
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    index_folder = place.folder.parent / "index" / index.SIMPLE / "acme"
    index_folder.mkdir(parents=True)
    (index_folder / "acme-1.0.tar.gz").write_bytes((place.folder / "acme-1.0.tar.gz").read_bytes())
    sha = place.table["sha256"]
    file = {"filename": "acme-1.0.tar.gz", "url": "acme-1.0.tar.gz", "hashes": {"sha256": sha}}
    (index_folder / "index.html").write_text(f'<a href="./acme-1.0.tar.gz#sha256={sha}">acme-1.0.tar.gz</a>')
    if page == "index.json":
        (index_folder / "index.html").write_text("no link")
        (index_folder / page).write_text(json.dumps({"files": [file]}))
    with index_server.serving(place.folder.parent / "index") as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")  # pip's own setting goes first
        monkeypatch.setenv("PIP_INDEX_URL", address.rstrip("/"))
        assert sources.folder_of(place.read()) is not None


def test_a_folder_of_files_is_an_index_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    (place.folder / "simple").mkdir()
    (place.folder / "acme-1.0.tar.gz").rename(place.folder / "simple" / "acme-1.0.tar.gz")
    (place.folder / "simple").rename(place.folder / "acme")
    monkeypatch.setenv("PIP_INDEX_URL", place.folder.as_uri())
    assert sources.folder_of(place.read()) is not None


def test_settings_of_files_are_those_that_pip_prints(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pip")
    (tmp_path / "pip.conf").write_text("[global]\ntimeout = 7\nfind-links = /a\n[download]\nproxy = http://p:1\n")
    monkeypatch.setattr(pip_settings, "run", steps.run)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    found = pip_settings.settings()
    assert (found["timeout"], found["proxy"], found["find-links"]) == ("7", "http://p:1", str(place.folder))


def test_settings_of_uv_serve_where_pip_has_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_FIND_LINKS", "/links")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://a/simple/")
    monkeypatch.setenv("UV_INDEX", "own=https://b/simple")
    found = pip_settings.places(pip_settings.settings(), "Acme_Inc")
    assert found == ["/links", "https://a/simple/acme-inc/", "https://b/simple/acme-inc/"]


def test_another_file_of_that_name_is_refused_with_both_hashes(place: Place) -> None:
    wanted = "0" * 64
    came = place.table["sha256"]
    with pytest.raises(Failure) as raised:
        sources.folder_of(place.read(sha256=wanted))
    first, second, third = str(raised.value).splitlines()
    assert first == f"the source of parse cannot be had: wanted acme-1.0.tar.gz with SHA-256 {wanted}"
    assert second == f"  {(place.folder / 'acme-1.0.tar.gz').as_uri()} has SHA-256 {came}"
    assert "PIP_FIND_LINKS=FOLDER" in third
    assert not list(cache.folder().rglob("acme-1.0.tar.gz"))


def test_a_right_file_in_a_later_place_serves(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "acme-1.0.tar.gz").write_bytes(b"damaged")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'absent'} {tmp_path / 'wrong'} {place.folder}")
    assert sources.folder_of(place.read()) is not None


def test_without_network_a_second_project_builds_from_the_cache(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sources.folder_of(place.read())
    (place.folder / "acme-1.0.tar.gz").unlink()
    assert (
        sources.folder_of(place.read(files=["include/parse.h"])) is not None
    )  # the archive is kept, not only files of it


def test_without_network_and_cache_the_error_names_every_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "acme-1.0.tar.gz").unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://ann:se@cret@127.0.0.1:9/simple")
    with pytest.raises(Failure) as raised:
        sources.folder_of(place.read())
    lines = str(raised.value).splitlines()
    assert lines[1] == f"  {place.folder} does not have it"
    assert lines[2].startswith("  http://127.0.0.1:9/simple/acme/: [Errno 111]")
    assert "cret" not in str(raised.value)


def test_a_damaged_file_in_the_cache_is_fetched_again(place: Place) -> None:
    kept = sources.archive_of(sources.declared(place.read())[0])
    kept.write_bytes(b"damaged")
    assert sources.folder_of(place.read()) is not None


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


Break = Callable[[Place], object]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda place: place.archive({**FILES, "acme-1.0/../../x.c": "x"}),
            r"outside of its folder; nothing was unpacked",
        ),
        (lambda place: place.archive({**FILES, "/etc/x.c": "x"}), r"outside of its folder; nothing was unpacked"),
        (
            lambda place: place.archive(FILES, link("acme-1.0/vendor/parse/src/z.c", "/etc/passwd")),
            r"src/z\.c is a link or a device",
        ),
        (
            lambda place: place.archive(FILES, link("acme-1.0/vendor/parse/src/z.c", "x", tarfile.LNKTYPE)),
            r"src/z\.c is a link or a device",
        ),
        (
            lambda place: place.archive({k: v for k, v in FILES.items() if not k.endswith(".h")}),
            r"has no vendor/parse/include/\*\.h, which \[tool\.hami-build\.sources\.parse\] names",
        ),
        (lambda place: place.table.update(folder="elsewhere"), r"has no elsewhere/include/\*\.h"),
        (lambda place: place.table.update({"license-files": ["LICENSE#L5-L9"]}), r"LICENSE#L5-L9 has no text"),
        (
            lambda place: (
                place.archive({**FILES, "acme-1.0/vendor/parse/LICENSE/a.c": "x"})
                and place.table.update(files=["LICENSE", "LICENSE/a.c"])
            ),
            r"has a file and a folder LICENSE",
        ),
    ],
    ids=[
        "parent folder",
        "absolute path",
        "symbolic link",
        "hard link",
        "missing file",
        "missing folder",
        "missing lines",
        "file and folder",
    ],
)
def test_an_archive_that_is_not_as_named_leaves_nothing(place: Place, break_it: Break, message: str) -> None:
    break_it(place)
    with pytest.raises(Failure, match=message):
        sources.folder_of(place.read())
    assert [path.name for path in (cache.folder() / sources.FOLDER).iterdir()] == ["archives"]


def test_a_file_that_is_not_an_archive_is_an_error_of_one_line(place: Place) -> None:
    (place.folder / "acme-1.0.tar.gz").write_bytes(b"text")
    place.table["sha256"] = hashlib.sha256(b"text").hexdigest()
    with pytest.raises(Failure, match=r"acme-1\.0\.tar\.gz cannot be read: not a gzip file; remove it and try again$"):
        sources.folder_of(place.read())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"from": "acme>=1.0"}, r"from must name one version, such as acme==1\.0, got 'acme>=1\.0'"),
        ({"from": "acme==1.*"}, r"from must name one version"),
        ({"from": "a b"}, r"from must name one version"),
        ({"sha256": "abc"}, r"sha256 must be 64 hexadecimal digits, got 'abc'"),
        ({"files": "src"}, r"files must be a list of texts, got 'src'"),
        ({"version": 1}, r"version must be a text, got 1"),
        ({"sha512": "x"}, r'has "sha512"; it needs files, from, license, sha256, version, and may have folder'),
        ({"license": None}, r'lacks "license"'),
        ({"files": []}, r"files and license-files are paths in the folder of the source, got no files"),
        ({"files": ["../a.c"]}, r"files and license-files are paths .*, got '\.\./a\.c'"),
        ({"license-files": ["/etc/passwd#L1-L9"]}, r"files and license-files are paths .*, got '/etc/passwd'"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_the_key(place: Place, changes: dict[str, object], message: str) -> None:
    with pytest.raises(Failure, match=rf"pyproject\.toml: \[tool\.hami-build\.sources\.parse\]:? {message}"):
        sources.declared(place.read(**changes))


def test_sources_that_are_no_tables_are_an_error(place: Place) -> None:
    found = place.read()
    found.table["tool"]["hami-build"]["sources"] = ["acme"]
    with pytest.raises(Failure, match=r"\[tool\.hami-build\.sources\] must have a table for each source"):
        sources.declared(found)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PIP_RETRIES", "many", r"retries must be a number of at least 0, got many"),
        ("PIP_FIND_LINKS", "~no-such-user/x", r"~no-such-user/x: Could not determine home directory"),
    ],
)
def test_a_setting_of_pip_without_a_meaning_is_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    (place.folder / "acme-1.0.tar.gz").unlink()
    for name, given in {**NOWHERE, "PIP_NO_INDEX": "0", variable: value}.items():
        monkeypatch.setenv(name, given)
    with pytest.raises(Failure, match=message):
        sources.folder_of(place.read())


def test_an_optional_source_is_left_out_only_when_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "acme-1.0.tar.gz").unlink()
    optional = {"optional": "text is parsed by Python"}
    with pytest.raises(Failure, match=r"with HAMI_WITHOUT_SOURCES=parse, text is parsed by Python$"):
        sources.folder_of(place.read(**optional))
    monkeypatch.setenv(sources.WITHOUT, "parse")
    assert sources.declared(place.read(**optional)) == []
    with pytest.raises(Failure, match="names parse, which acme-inc needs"):
        sources.declared(place.read())


def test_a_page_that_is_not_of_an_index_is_named(place: Place) -> None:
    page = place.folder / "page"
    page.mkdir()
    with index_server.serving(place.folder) as address:
        base = address.removesuffix(f"{index.SIMPLE}/")
        (page / "index.json").write_text('{"files": [1]}')
        with pytest.raises(package_index.Unreachable, match="not one of a package index"):
            package_index.sdists(f"{base}page/", "acme", "1.0", {})
        with pytest.raises(package_index.Unreachable, match="it does not exist"):
            package_index.read(f"{base}absent", {})


def test_a_password_does_not_follow_a_redirection() -> None:
    request = package_index._request("https://ann:s%40c@a.example/simple/", "*/*")
    assert request.full_url == "https://a.example/simple/"
    assert "Authorization" not in request.headers
    assert request.unredirected_hdrs["Authorization"] == "Basic YW5uOnNAYw=="


BACKEND = """\
import tarfile

def build_sdist(folder, settings):
    with tarfile.open(f"{folder}/acme_inc-1.0.tar.gz", "w:gz") as made:
        made.add(".", "acme_inc-1.0")
"""


def test_the_source_distribution_has_the_sources(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A build from it needs neither a network nor the cache."""
    folder = place.read().folder
    (folder / "x.py").write_text(BACKEND, "utf-8")
    made = sdist.build(folder, tmp_path / "dist")
    assert not (folder / sources.FOLDER).exists()
    with tarfile.open(made) as opened:
        assert {name for name in opened.getnames() if "/sources/" in name} >= {"acme_inc-1.0/sources/parse/src/parse.c"}
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 lacks it
        opened.extractall(tmp_path / "unpacked")
    (place.folder / "acme-1.0.tar.gz").unlink()
    monkeypatch.setattr(cache, "_chosen", tmp_path / "other-cache")
    unpacked = tmp_path / "unpacked" / "acme_inc-1.0"
    assert sources.folder_of(project.read(unpacked)) == unpacked / sources.FOLDER


CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(acme_inc LANGUAGES C CXX)
find_package(hami CONFIG REQUIRED)
hami_sources()
hami_add_plugin(acme src/acme.cpp "${hami_SOURCES}/parse/src/parse.c")
install(TARGETS acme DESTINATION acme_inc)
"""


def test_cmake_compiles_the_sources_and_installs_the_notices(
    place: Place, native_project: Path, tmp_path: Path
) -> None:
    (native_project / "CMakeLists.txt").write_text(CMAKE, "utf-8")
    text = (native_project / "pyproject.toml").read_text("utf-8")
    place.project = native_project
    declaration = place.read().folder.joinpath("pyproject.toml").read_text("utf-8").partition("[tool.")[2]
    (native_project / "pyproject.toml").write_text(f"{text}\n[tool.{declaration}", "utf-8")
    notices = ["-DSKBUILD_METADATA_DIR=acme_inc-1.0.dist-info"]  # as scikit-build-core names it
    stage = development.compile_project(
        project.read(native_project), tmp_path / "work", wheels.installed_cmake_dir(), notices
    )
    assert sorted(str(file.relative_to(stage)) for file in stage.rglob("*") if file.is_file()) == [
        "acme_inc-1.0.dist-info/licenses/parse/LICENSE",
        "acme_inc-1.0.dist-info/licenses/parse/parse.c",
        "acme_inc/acme.so",
    ]


def test_a_finished_wheel_names_all_notices_and_parts(place: Place, tmp_path: Path) -> None:
    raw = {
        "acme_inc-1.0.dist-info/METADATA": (
            b"Metadata-Version: 2.4\nName: acme-inc\nVersion: 1.0\nLicense-File: LICENSE\n\nText\n\nof two parts\n"
        ),
        "acme_inc-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "acme_inc-1.0.dist-info/licenses/LICENSE": b"x",
        "acme_inc-1.0.dist-info/licenses/parse/LICENSE": b"MIT, Ann",
        "acme_inc/__init__.py": b"",
    }
    wheel = wheel_file.write(raw, tmp_path / "acme_inc-1.0-py3-none-any.whl")
    files = wheel_file.read(wheel_file.finish(wheel, tmp_path / "dist", ["any"], sources.parts(place.read())))
    found = wheel_file.metadata(files)
    assert found.get_all("License-File") == ["LICENSE", "parse/LICENSE"]
    assert found.get_payload() == "Text\n\nof two parts\n"
    bill = files["acme_inc-1.0.dist-info/sboms/acme-inc.cdx.json"].decode()
    assert sbom.summary(bill) == ("acme-inc 1.0", ["parse 9.4"])
