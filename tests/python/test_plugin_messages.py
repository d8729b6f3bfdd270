"""The complete error messages about names of backends. The core adds the expression; here it is absent."""

from __future__ import annotations

import re
from typing import Any

import hami
import pytest
from conftest import Site
from fake_site import write_metadata, write_plugin
from hami import _core
from hami._plugins import messages


def test_the_error_for_a_first_party_name_names_its_package(site: Site) -> None:
    with pytest.raises(hami.BackendNotFound) as caught:
        site.plugins().find("TensorrtTensor")
    assert caught.value.headline == 'backend "TensorrtTensor" not found'
    assert caught.value.hint == "it is provided by hami-trt, which is not installed: pip install hami-trt"


def test_near_names_are_suggested(site: Site) -> None:
    write_plugin(site.folder, "hami-image", "0.1.0", "ResizeMat")
    with pytest.raises(hami.BackendNotFound) as caught:
        site.plugins().find("ResizeMt")
    # The core decides which names are similar; the best match comes first.
    assert re.fullmatch(
        r'backend "ResizeMt" not found; did you mean ResizeMat(, \w+)*( or \w+)?\?  \(list all: hami backends\)',
        str(caught.value),
    )


def test_without_a_similar_name_the_error_explains_how_to_list_backends(site: Site) -> None:
    with pytest.raises(hami.BackendNotFound) as caught:
        site.plugins().find("Qwertyuiop")
    assert str(caught.value) == (
        'backend "Qwertyuiop" not found  (list all: hami backends)\n'
        "  to use a class of your own, import its module first; on the command line: --import FILE"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [("letterboxmat", "LetterBoxMat (hami-image)"), ("identity", "Identity (hami-core)"), ("s", "S (hami-core)")],
)
def test_names_are_case_sensitive(site: Site, name: str, meant: str) -> None:
    with pytest.raises(hami.BackendNotFound) as caught:
        site.plugins().find(name)
    assert str(caught.value) == f'backend "{name}" not found; names are case-sensitive: {meant}'


def test_the_error_for_a_backend_of_a_failed_plugin_contains_the_reason(site: Site) -> None:
    write_plugin(site.folder, "hami-trt", "0.3.1", "TensorrtTensor")
    (site.folder / "hami_trt_plugin.py").write_text("import tensorrt_of_tests")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("TensorrtTensor")
    assert str(caught.value) == (
        'backend "TensorrtTensor" is provided by hami-trt 0.3.1, which failed to load: '
        "No module named 'tensorrt_of_tests'"
    )
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_failed_plugin_is_reported_once(site: Site, hami_command: Any) -> None:
    """The number of its backends in the expression does not matter."""
    for name, backends in {"acme-one": ("One", "Uno"), "acme-two": ("Two", "Dos")}.items():
        write_plugin(site.folder, name, "1.0", *backends)
        (site.folder / f"{name.replace('-', '_')}_plugin.py").write_text("import engine_of_tests")
    done = hami_command("check", "S[One,Two,Uno,Dos]", site=site.folder)
    assert [line for line in done.stdout.splitlines() if line.startswith("backend")] == [
        "backend \"One\" is provided by acme-one 1.0, which failed to load: No module named 'engine_of_tests'",
        "backend \"Two\" is provided by acme-two 1.0, which failed to load: No module named 'engine_of_tests'",
    ]


def test_the_error_for_a_backend_that_failed_to_load_contains_the_reason(site: Site) -> None:
    site.install("acme-late")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("AcmeLate")
    assert str(caught.value) == (
        'backend "AcmeLate" is provided by acme-late 0.4.0, which failed to load: '
        "No module named 'acme_engine_runtime'"
    )
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_declared_backend_that_is_not_registered_makes_the_plugin_unusable(site: Site) -> None:
    site.install("acme-promise")
    for name in ("AcmeKept", "AcmeNever"):
        with pytest.raises(hami.PluginError) as caught:
            site.plugins().find(name)
        assert str(caught.value) == (
            f'backend "{name}" is provided by acme-promise 0.2.0, which failed to load: '
            'its metadata declares "AcmeNever", which acme_promise does not register'
        )


def test_a_native_plugin_that_needs_a_newer_core_is_incompatible(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"needs hami ABI 1.4; hami-core {hami.__version__} serves 1.1: pip install -U hami-core"

    def load_library(path: bytes, owner: str) -> None:
        raise _core.AbiMismatch(reason)

    monkeypatch.setattr(_core, "load_library", load_library)
    site.install("acme-native")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("AcmeNative")
    assert str(caught.value) == f'backend "AcmeNative" is provided by acme-native 0.9.0, which {reason}'


def test_the_error_for_a_native_plugin_without_its_library_names_the_file(site: Site) -> None:
    site.install("acme-native")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("AcmeNative")
    assert str(caught.value) == (
        'backend "AcmeNative" is provided by acme-native 0.9.0, which failed to load: '
        f"{site.folder}/libacme_native.so: cannot open shared object file: No such file or directory"
    )


def test_a_name_of_two_plugins_must_be_qualified(site: Site) -> None:
    write_plugin(site.folder, "acme-cv", "2.0.0", "ResizeMat")
    write_plugin(site.folder, "hami-image", "0.1.0", "ResizeMat")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("ResizeMat")
    assert str(caught.value) == (
        'backend "ResizeMat" is provided by hami-image and acme-cv; '
        'write acme-cv::ResizeMat, or set [providers] ResizeMat = "acme-cv"'
    )


def test_the_error_for_a_backend_of_a_disabled_plugin_names_the_setting(site: Site) -> None:
    write_plugin(site.folder, "hami-trt", "0.3.1", "TensorrtTensor")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins("no:trt").find("TensorrtTensor")
    assert str(caught.value) == (
        'backend "TensorrtTensor" is provided by hami-trt, which is disabled by HAMI_PLUGINS=no:trt'
    )


def test_a_plugin_may_give_a_hint_for_a_missing_backend(site: Site) -> None:
    site.install("acme-good", "acme-broken")
    with pytest.raises(hami.BackendNotFound) as caught:
        site.plugins().find("AcmeGold")
    assert caught.value.headline == 'backend "AcmeGold" not found'
    assert caught.value.hint == "it is part of acme-gold, ask sales@acme.example"


def test_a_plugin_may_give_a_hint_for_an_unknown_key(site: Site) -> None:
    site.install("acme-good", "acme-broken")
    plugins = site.plugins()
    assert [plugins.advice_on_key(key) for key in ("metal", "medal")] == ["write alloy", ""]


def test_the_error_for_a_qualified_name_lists_the_backends_of_that_package(site: Site) -> None:
    site.install("acme-good")
    plugins = site.plugins()
    with pytest.raises(hami.BackendNotFound) as caught:
        plugins.find("AcmeEcko", "acme-good")
    assert caught.value.headline == 'backend "AcmeEcko" not found in acme-good; did you mean AcmeEcho?'
    assert caught.value.hint == "backends of acme-good: AcmeAdd, AcmeEcho, AcmeExtra"


def test_the_error_for_an_unknown_package_suggests_what_to_install(site: Site) -> None:
    site.install("acme-good")
    plugins = site.plugins()
    for distribution, headline, hint in [
        (
            "hami-trt",
            'backend "ResizeMat" not found in hami-trt',
            "hami-trt is not installed: pip install hami-trt",
        ),
        (
            "acme-god",
            'backend "ResizeMat" not found in acme-god',
            "no installed package of that name provides backends; did you mean acme-good?",
        ),
    ]:
        with pytest.raises(hami.BackendNotFound) as caught:
            plugins.find("ResizeMat", distribution)
        assert (caught.value.headline, caught.value.hint) == (headline, hint)


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise GeneratorExit"])
def test_a_failing_hook_does_not_hide_the_missing_name(site: Site, end: str) -> None:
    write_plugin(site.folder, "acme-hook", "1.0", "AcmeHook")
    with (site.folder / "acme_hook_plugin.py").open("a") as file:
        file.write(f"import sys\n@pluggy.HookimplMarker('hami')\ndef hami_missing_backend(name):\n    {end}\n")
    with pytest.raises(hami.BackendNotFound, match='backend "Qwertyuiop" not found'):
        site.plugins().find("Qwertyuiop")


class Textless(Exception):
    def __str__(self) -> str:
        raise LookupError


class Moduleless(Exception):
    __module__ = None  # type: ignore[assignment]


MADE = eval('type("Made", (Exception,), {})', {"__builtins__": {"type": type, "Exception": Exception}})


ADVICE = ImportError("\n\nIMPORTANT: PLEASE READ THIS\nand this")
ADVICE.__cause__ = ImportError("libx.so: cannot open\nsecond line")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ImportError("No module named 'x'"), "No module named 'x'"),
        (ADVICE, "libx.so: cannot open"),
        (OSError("libx.so: cannot open\nsecond line"), "OSError: libx.so: cannot open"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "it called sys.exit(3)"),
        (hami.PluginError("said by hami"), "said by hami"),
        (RuntimeError("x" * 1_000_000), "RuntimeError: " + "x" * 300),
        (Textless(), "Textless"),
        (Moduleless("x"), "Moduleless: x"),
        (MADE("x"), "Made: x"),
    ],
)
def test_exceptions_of_plugins_are_described_in_one_line(error: BaseException, text: str) -> None:
    assert messages.describe_exception(error) == text


def test_errors_for_packaged_pipelines(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from hami import _config
    from hami._plugins import manager

    site.install("acme-good")
    for name in ("acme-a", "acme-b"):
        write_metadata(site.folder, name, "1.0", {"hami.pipelines": {"read": "acme_none:read.toml"}})
    write_metadata(site.folder, "acme-c", "1.0", {"hami.pipelines": {"gone": "acme_good:gone.toml"}})
    monkeypatch.setattr(manager, "installed", site.plugins())
    for source, kind, text in [
        (
            "ocr",
            hami.BackendNotFound,
            'pipeline "ocr" not found\n  it is provided by hami-ocr, which is not installed: pip install hami-ocr',
        ),
        (
            "acme-twise",
            hami.BackendNotFound,
            '"acme-twise" is neither a packaged pipeline nor a backend; did you mean acme-twice?'
            "  (list all: hami backends)\n  packaged pipelines here: acme-twice, gone, read",
        ),
        (
            "read",
            hami.PluginError,
            'pipeline "read" is provided by acme-a and acme-b; write acme-b::read to choose one',
        ),
        (
            "acme-a::read",
            hami.PluginError,
            "pipeline \"read\" is provided by acme-a 1.0, which failed to load: No package named 'acme_none'",
        ),
        (
            "gone",
            hami.PluginError,
            'pipeline "gone" is provided by acme-c 1.0, which failed to load: No such file or directory: '
            f"{site.folder}/acme_good/gone.toml",
        ),
    ]:
        with pytest.raises(kind) as caught:
            _config.load(source)
        assert str(caught.value) == text
