"""`hami lock` and `hami sync`, with an index of tiny wheels in a folder: no network."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hami
import pytest
import tiny_wheels
from fake_site import tomllib
from packaging.pylock import Pylock
from tiny_index import PACKAGES, UV, HamiEnvironment, acme_index, write_index

from hami_tools.packages import installers, lock

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed")


@pytest.fixture
def index(tmp_path: Path) -> str:
    return acme_index(tmp_path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def private_index(index: str, tmp_path: Path) -> Iterator[str]:
    """Return the address of the index over TLS, for which clients need the file ca.pem."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout"
    (tmp_path / "names").write_text("subjectAltName = DNS:localhost\nbasicConstraints = CA:FALSE\n")
    for command in (
        f"{new} ca.key -x509 -out ca.pem -days 2 -subj /CN=Private",
        f"{new} key -out request -subj /CN=localhost",
        "openssl x509 -req -in request -CA ca.pem -CAkey ca.key -set_serial 1 -extfile names -out cert",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        address = f"https://localhost:{server.server_port}"
        for page in (tmp_path / "simple").glob("*/index.html"):
            page.write_text(page.read_text().replace(tmp_path.as_uri(), address))
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        yield f"{address}/simple"
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("tool", ["pip", pytest.param("uv", marks=needs_uv)])
def test_a_certificate_that_is_unknown_is_the_reason_and_one_that_is_given_is_used(
    private_index: str, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    if tool == "uv":
        monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    here = HamiEnvironment(tmp_path / "env", *(["pip"] if tool == "pip" else []), *PACKAGES)
    lock_here = ("lock", "--index", private_index, "--to", str(tmp_path / "pylock.toml"))
    quick = {"PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0"}
    done = here.hami(*lock_here, **quick)
    assert done.returncode == 1
    assert f"{tool} could not lock" in done.stderr
    assert "certificate" in done.stderr
    known = {"pip": "PIP_CERT", "uv": "SSL_CERT_FILE"}[tool]
    done = here.hami(*lock_here, **quick, **{known: str(tmp_path / "ca.pem")})
    assert (done.returncode, done.stderr) == (0, "")
    assert [each.name for each in lock.read(tmp_path / "pylock.toml")] == ["hami-core", "hami-tools"]


@pytest.fixture
def locked(tmp_path: Path, index: str) -> Path:
    """Return the lock of an environment with an older version of one plugin."""
    first = HamiEnvironment(tmp_path / "first", "pip", *PACKAGES)
    assert first.hami("install", "acme-two", "acme-one==1.0.0", "--index", index).returncode == 0
    file = tmp_path / "pylock.toml"
    done = first.hami("lock", "--to", str(file), "--index", index)
    assert (done.returncode, done.stderr) == (0, "")
    shown = [line.split() for line in done.stdout.splitlines()[:2]]
    assert shown == [["lock", "acme-one", "1.0.0"], ["lock", "acme-two", "1.0.0"]]
    return file


def test_a_lock_is_a_valid_pylock_with_the_installed_versions(locked: Path, tmp_path: Path) -> None:
    table = tomllib.loads(locked.read_text())
    Pylock.from_dict(table)
    wheel = tmp_path / "wheels" / "acme_one-1.0.0-py3-none-any.whl"
    assert lock.read(locked)[0] == lock.Locked("acme-one", "1.0.0", wheel.as_uri(), lock.read(locked)[0].sha256)
    assert [package["name"] for package in table["packages"]] == ["acme-one", "acme-two", "hami-core", "hami-tools"]


@pytest.mark.parametrize("tool", ["pip", pytest.param("uv", marks=needs_uv)])
def test_another_environment_gets_the_same_files(
    locked: Path, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "uv":
        monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    second = HamiEnvironment(tmp_path / "second", *(["pip"] if tool == "pip" else []), *PACKAGES)
    preview = second.hami("sync", str(locked), "--dry-run")
    assert preview.stdout.splitlines() == [
        "install  acme-one  1.0.0",
        "install  acme-two  1.0.0",
        "nothing was changed",
    ]
    done = second.hami("sync", str(locked))
    assert (done.returncode, done.stderr) == (0, "")
    assert second.hami("run", "AcmeOne", "--data", "1").stdout == "acme-one 1.0.0\n"
    again = second.hami("sync", str(locked))
    assert again.stdout == f"nothing to change: this environment has the 4 packages of {locked}\n"


@pytest.mark.parametrize("tool", ["pip", pytest.param("uv", marks=needs_uv)])
def test_settings_of_installers_change_neither_a_lock_nor_what_it_installs(
    locked: Path, index: str, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    settings = {f"PIP_{name}": str(elsewhere) for name in ("TARGET", "PREFIX", "ROOT", "LOG", "REPORT", "REQUIREMENT")}
    settings |= {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "PIP_VERBOSE": "3", "PIP_DRY_RUN": "1", "PIP_USER": "1"}
    settings |= {"RUST_LOG": "uv=debug", "UV_LOG_CONTEXT": "1"}
    first = HamiEnvironment(tmp_path / "first-again", "pip", *PACKAGES)
    assert first.hami("sync", str(locked)).returncode == 0
    done = first.hami("lock", "--to", str(tmp_path / "again.toml"), "--index", index, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "again.toml").read_text() == locked.read_text()
    if tool == "uv":
        monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    second = HamiEnvironment(tmp_path / "second", *(["pip"] if tool == "pip" else []), *PACKAGES)
    done = second.hami("sync", str(locked), **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(second.site.glob("acme_*.dist-info"))) == 2
    assert not elsewhere.exists()


@needs_uv
@pytest.mark.parametrize("left_out", ["acme-one", "acme-base"])  # a plugin, and what another plugin requires
def test_settings_of_uv_leave_nothing_out_of_a_lock_in_silence(
    left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme_index(tmp_path)
    tiny_wheels.empty(tmp_path / "wheels", "acme-base", "1.0.0")
    tiny_wheels.plugin(tmp_path / "wheels", "acme-three", requires="acme-base")
    index = write_index(tmp_path, sorted((tmp_path / "wheels").glob("*.whl")))
    monkeypatch.setenv("PATH", str(Path(str(UV)).parent))
    without_pip = HamiEnvironment(tmp_path / "second", *PACKAGES)
    assert without_pip.hami("install", "acme-two", "acme-three", "--index", index).returncode == 0
    settings, written = tmp_path / "uv.toml", tmp_path / "again.toml"
    command = ("lock", "--to", str(written), "--index", index)
    settings.write_text('[pip]\nno-deps = true\noutput-file = "elsewhere.txt"\n')
    done = without_pip.hami(*command, UV_CONFIG_FILE=str(settings))
    assert (done.returncode, done.stderr) == (0, "")
    assert {"acme-base", "acme-one", "acme-three", "acme-two"} < {each.name for each in lock.read(written)}
    written.unlink()
    settings.write_text(f'[pip]\nno-emit-package = ["{left_out}"]\nno-annotate = true\n')
    done = without_pip.hami(*command, UV_CONFIG_FILE=str(settings))
    assert (done.returncode, written.exists()) == (1, False)
    assert f"uv left {left_out} out of its resolution; nothing was changed; remove no-emit-package" in done.stderr


def test_files_come_from_a_folder_without_a_network(locked: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (tmp_path / "wheels").rename(moved)
    second = HamiEnvironment(tmp_path / "second", "pip", *PACKAGES)
    assert second.hami("sync", str(locked)).returncode == 1
    assert second.hami("sync", str(locked), "--from", str(moved)).returncode == 0
    assert second.hami("run", "AcmeTwo", "--data", "1").stdout == "acme-two 1.0.0\n"


def test_a_file_with_another_hash_is_refused(locked: Path, tmp_path: Path) -> None:
    tiny_wheels.plugin(tmp_path / "wheels", "acme-one", "1.0.0", requires="hami-core>=0.0.2")  # the same name
    second = HamiEnvironment(tmp_path / "second", "pip", *PACKAGES)
    done = second.hami("sync", str(locked))
    assert done.returncode == 1
    assert "nothing was changed" in done.stderr
    assert "HASH" in done.stderr.upper()
    assert not list(second.site.glob("acme*"))


@needs_uv
def test_uv_writes_the_same_lock_without_pip(locked: Path, index: str, tmp_path: Path) -> None:
    environment = HamiEnvironment(tmp_path / "without-pip", *PACKAGES)
    path = f"{Path(str(UV)).parent}:{os.environ['PATH']}"
    assert environment.hami("sync", str(locked), PATH=path).returncode == 0
    done = environment.hami("lock", "--to", str(tmp_path / "uv.toml"), "--index", index, PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "uv.toml").read_text() == locked.read_text()


@pytest.mark.parametrize("tool", ["pip", pytest.param("uv", marks=needs_uv)])
def test_a_package_that_no_index_has_is_named(locked: Path, tmp_path: Path, tool: str) -> None:
    environment = HamiEnvironment(tmp_path / "second", *(["pip"] if tool == "pip" else []), *PACKAGES)
    settings = {"PATH": f"{Path(str(UV)).parent}:{os.environ['PATH']}"} if tool == "uv" else {}
    assert environment.hami("sync", str(locked), **settings).returncode == 0
    wheels = tmp_path / "wheels"
    (wheels / "acme_one-1.0.0-py3-none-any.whl").unlink()
    newer = write_index(tmp_path / "newer", sorted(wheels.glob("*.whl")))
    done = environment.hami("lock", "--to", str(tmp_path / "new.toml"), "--index", newer, **settings)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no index has acme-one 1.0.0, which is installed here; nothing was written;")
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("acme_one", {"dir_info": {"editable": True}}, "an editable"),
        ("acme_one", {"dir_info": {}}, "an"),
        ("acme_one", {"vcs_info": {"vcs": "git", "commit_id": "0" * 40}}, "an"),
        ("acme_one", {"archive_info": {}}, ""),
        ("packaging", {"dir_info": {"editable": True}}, ""),  # which this index does not have, and no plugin requires
    ],
)
def test_a_package_of_a_folder_is_not_locked_as_the_file_of_an_index_with_its_version(
    locked: Path, index: str, tmp_path: Path, name: str, kind: dict[str, Any], what: str
) -> None:
    environment = HamiEnvironment(tmp_path / "second", "pip", *PACKAGES)
    assert environment.hami("sync", str(locked)).returncode == 0
    (info,) = environment.site.glob(f"{name}-*.dist-info")
    origin = {"url": "file:///src/x", **kind}
    (info / "direct_url.json").write_text(json.dumps(origin))
    done = environment.hami("lock", "--to", str(tmp_path / "new.toml"), "--index", index)
    if not what:
        assert done.returncode == 0
        return
    assert done.returncode == 1
    assert f"error: acme-one is {what} installation of file:///src/x, and a lock has only files; " in done.stderr
    assert not (tmp_path / "new.toml").exists()


PACKAGE = 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "acme-one"\nversion = "1.0"\n'
HASH = "0" * 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("packages = [", "is not a lock that hami reads"),
        (".".join("a" * 50_000) + " = 1", "a key must have fewer than 100 dots"),
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = 0x" + "f" * 5000, "is not a lock that hami reads"),
        ('lock-version = "2.0"\ncreated-by = "x"\npackages = []', "2.0"),
        (PACKAGE, "is not a lock that hami reads"),
        (
            f'{PACKAGE}wheels = [{{name = "acme_one-1.0-py3-none-any.whl", url = "https://x/a b --index-url=y", '
            f'hashes = {{sha256 = "{HASH}"}}}}]',
            "acme-one has a space",
        ),
        (
            f'{PACKAGE}wheels = [{{name = "acme_one-1.0-py3-none-any.whl", url = "https://x/a", '
            'hashes = {sha256 = "abc"}}]',
            "is not a canonical name with a sha256 hash",
        ),
    ],
)
def test_a_file_that_is_not_a_lock_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "pylock.toml"
    file.write_text(text)
    with pytest.raises(hami.PluginError) as caught:
        lock.read(file)
    assert str(caught.value).startswith(str(file))
    assert problem in str(caught.value)
    with pytest.raises(hami.PluginError, match=r"cannot read .*none.toml: No such file or directory; write it with"):
        lock.read(tmp_path / "none.toml")


LOCK = """\
lock-version = "1.0"
created-by = "test"
{more}

[[packages]]
name = "acme-one"
version = "1.0.0"
wheels = [{{name = "acme_one-1.0.0-py3-none-any.whl", url = "{url}", hashes = {{sha256 = "{hash}"}}}}]
"""
ADDRESS = "https://packages.example/acme_one-1.0.0-py3-none-any.whl"


def write_lock(folder: Path, more: str = "", url: str = ADDRESS) -> Path:
    file = folder / "pylock.toml"
    file.write_text(LOCK.format(more=more, url=url, hash="0" * 64))
    return file


def test_an_address_cannot_have_a_variable_of_this_machine(tmp_path: Path) -> None:
    file = write_lock(tmp_path, url="https://packages.example/${HOME}/acme_one-1.0.0-py3-none-any.whl")
    with pytest.raises(hami.PluginError, match="the address of acme-one has"):
        lock.read(file)


def test_an_address_that_is_none_is_an_error(tmp_path: Path) -> None:
    file = write_lock(tmp_path, url="https://[packages/acme_one-1.0.0-py3-none-any.whl")
    with pytest.raises(hami.PluginError, match="is not a lock that hami reads: Invalid IPv6 URL"):
        lock.read(file)


@pytest.mark.parametrize(
    "url",
    [
        *("git+https://h/x.git@main", "git+ext::sh%20-c%20id", "ftp://h/a.whl", "/etc/passwd", "-r/etc/passwd"),
        *(
            "https:///a.whl",
            "https://h/",
            "https://h/a.exe",
            "https://h/a.whl;python_version<'3'",
            "file:///etc/passwd",
        ),
        *("https://h/a.whl#subdirectory=..", "acme_one-1.0.0-py3-none-any.whl"),
    ],
)
def test_an_address_that_is_not_of_an_archive_is_an_error(tmp_path: Path, url: str) -> None:
    """Before an installer runs, which would start git, or read another file."""
    with pytest.raises(hami.PluginError, match=r"the address of acme-one is .*, expected that of a wheel or a source"):
        lock.read(write_lock(tmp_path, url=url))


@pytest.mark.parametrize("marker", ["python_version ~= 'abc'", "'a' < 'b'", "os_name > ", "("])
def test_an_environment_that_cannot_be_compared_is_an_error(tmp_path: Path, marker: str) -> None:
    file = write_lock(tmp_path, more=f'environments = ["{marker}"]')
    with pytest.raises(hami.PluginError):
        lock.read(file)


def test_a_lock_that_is_nested_without_end_is_an_error(tmp_path: Path) -> None:
    file = write_lock(tmp_path, more="x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(hami.PluginError, match="is not a lock that hami reads"):
        lock.read(file)


def test_no_line_for_an_installer_has_a_variable() -> None:
    with (
        pytest.raises(hami.PluginError, match=r"acme-one has .* in its version or address"),
        installers._lines(["acme-one @ https://packages.example/${HOME}/x.whl"]),
    ):
        pass


@pytest.mark.parametrize(
    "more",
    [
        "environments = [\"sys_platform == 'linux' and platform_machine == 'sparc' and python_version == '3.99'\"]",
        "environments = [\"python_version == '3.99'\"]",
        "environments = [\"python_full_version >= '3.99'\"]",
        'requires-python = ">=3.99"',
    ],
)
def test_a_lock_for_another_environment_is_refused(tmp_path: Path, more: str) -> None:
    with pytest.raises(hami.PluginError, match="is for another environment than this one"):
        lock.read(write_lock(tmp_path, more))


def test_a_package_for_another_environment_is_left_out(tmp_path: Path) -> None:
    """As uv and pip write those that only another system needs."""
    file = write_lock(tmp_path)
    text = file.read_text()
    start = text.index("[[packages]]")
    head, package = text[:start], text[start:]
    packages = [
        package.replace("acme-one", f"acme-{name}")
        .replace("acme_one", f"acme_{name}")
        .replace("version =", f'marker = "{marker}"\nversion =', 1)
        for name, marker in [("win", "sys_platform == 'win32'"), ("here", "sys_platform == 'linux'")]
    ]
    file.write_text("\n".join([head, *packages]))
    assert [each.name for each in lock.read(file)] == ["acme-here"]
    file.write_text("\n".join([head, packages[0].replace("sys_platform", "sys_banana")]))
    with pytest.raises(hami.PluginError, match="sys_banana"):
        lock.read(file)


@pytest.mark.parametrize("more", ["", 'requires-python = ">=3.10"', "environments = [\"python_version >= '3.10'\"]"])
def test_a_lock_for_this_environment_is_read(tmp_path: Path, more: str) -> None:
    assert [each.name for each in lock.read(write_lock(tmp_path, more))] == ["acme-one"]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_lock_that_never_ends_is_an_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "pylock.toml"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(hami.PluginError, match="it is not a regular file"):
        lock.read(file)


def test_a_dependency_that_the_folder_has_in_another_version_is_named(tmp_path: Path) -> None:
    tiny_wheels.plugin(tmp_path, "acme-one", requires="acme-two")
    tiny_wheels.empty(tmp_path, "acme-two", "2.0")
    with pytest.raises(hami.PluginError) as caught:
        installers.Pip().resolve(["acme-one==1.0.0"], ["acme-two==1.0"], installers.Sources(folder=str(tmp_path)))
    assert str(caught.value).startswith(f"{tmp_path} lacks acme-two 1.0, which is installed here; nothing was written;")
