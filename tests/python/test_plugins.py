"""Plugin look-up by name: which plugins are loaded, and the records of their states."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from subprocess import CompletedProcess

import hami
import pytest
from conftest import Site
from fake_site import write_metadata, write_plugin, write_record
from hami._plugins.records import BackendInfo

ABSENT = "cannot open shared object file: No such file or directory"


def test_listing_imports_nothing(site: Site) -> None:
    site.install("acme-good", "acme-broken", "acme-exits")
    plugins = site.plugins()
    info = plugins.backends()["AcmeAdd"]
    assert info == BackendInfo("AcmeAdd", "acme-good")  # nothing that only the class defines
    assert [(record.plugin, record.state, record.seconds) for record in plugins.records()] == [
        ("broken", "not loaded", None),
        ("exits", "not loaded", None),
        ("good", "not loaded", None),
    ]
    assert not {"acme_good", "acme_broken", "acme_exits"} & set(sys.modules)


def test_looking_up_a_name_loads_only_its_plugin(site: Site) -> None:
    site.install("acme-good", "acme-broken", "acme-late")
    plugins = site.plugins()
    found = plugins.find("AcmeEcho")
    assert (found.name, found.owner, found.doc) == ("AcmeEcho", "acme-good", "Gives back its data.")
    assert "acme_good.plugin" in sys.modules
    assert not {"acme_good.backends", "acme_late", "acme_broken"} & set(sys.modules)
    assert plugins.find("AcmeEcho") is found


def test_a_lazy_class_is_imported_when_it_is_used(site: Site) -> None:
    site.install("acme-good")
    plugins = site.plugins()
    assert plugins.find("AcmeAdd").params[0]["name"] == "step"
    assert "acme_good.backends" in sys.modules
    assert plugins.backends()["AcmeAdd"].doc == "Adds `step` to a number."


def test_a_plugin_may_register_a_generated_backend(
    site: Site, hami_command: Callable[..., CompletedProcess[str]]
) -> None:
    site.install("acme-good")
    write_metadata(
        site.folder, "acme-pair", "1.0", {"hami.backends": {"AcmePair": "acme_pair"}, "hami": {"pair": "acme_pair"}}
    )
    (site.folder / "acme_pair.py").write_text(
        "import pluggy\n"
        "@pluggy.HookimplMarker('hami')\n"
        "def hami_register(registry):\n"
        "    registry.generate('AcmePair', 'S[AcmeAdd(step=1),acme-good::AcmeAdd]', step=10)\n"
    )
    found = site.plugins().find("AcmePair")
    assert (found.owner, found.doc) == ("acme-pair", "Stands for S[AcmeAdd(step=1),acme-good::AcmeAdd].")
    done = hami_command("run", "AcmePair", "--data", "100", site=site.folder)
    assert (done.stdout, done.stderr) == ("111\n", "")


def test_a_name_absent_from_metadata_is_found_through_the_hook(site: Site) -> None:
    site.install("acme-good", "acme-late")
    plugins = site.plugins()
    assert plugins.find("AcmeExtra").owner == "acme-good"
    assert {record.distribution: record.state for record in plugins.records()} == {"acme-good": "ok", "acme-late": "ok"}


def test_a_name_declared_in_metadata_has_precedence_over_a_registered_one(site: Site) -> None:
    site.install("acme-good")
    write_plugin(site.folder, "acme-owner", "1.0", "AcmeExtra")
    plugins = site.plugins()
    assert plugins.find("AcmeExtra", "acme-good").owner == "acme-good"
    assert plugins.find("AcmeExtra").owner == "acme-owner"
    assert plugins.backends()["AcmeExtra"].owner == "acme-owner"


def test_a_name_can_be_qualified_with_its_package(site: Site) -> None:
    site.install("acme-good", "acme-cv")
    plugins = site.plugins()
    assert plugins.find("AcmeAdd", "acme-cv").doc == "Adds a hundred."
    assert plugins.find("AcmeAdd", "Acme_Good").doc == "Adds `step` to a number."
    assert plugins.find("AcmeAdd", "", {"AcmeAdd": "acme-cv"}).owner == "acme-cv"
    assert plugins.find("AcmeExtra", "acme-good").owner == "acme-good"
    assert plugins.find("Identity", "hami-core").owner == "hami-core"
    assert plugins.find("S", "hami-core").name == "Sequential"


def test_a_broken_plugin_does_not_hide_others(site: Site) -> None:
    site.install(
        "acme-broken", "acme-exits", "acme-raises", "acme-promise", "acme-unmarked", "acme-native", "acme-good"
    )
    plugins = site.plugins()
    records = {record.distribution: (record.state, record.error) for record in plugins.records(load=True)}
    assert records == {
        "acme-broken": ("failed", "No module named 'acme_engine_runtime'"),
        "acme-exits": ("failed", "it called sys.exit(3)"),
        "acme-good": ("ok", None),
        "acme-native": ("failed", f"{site.folder}/libacme_native.so: {ABSENT}"),
        "acme-promise": ("failed", 'its metadata declares "AcmeNever", which acme_promise does not register'),
        "acme-raises": ("failed", "ValueError: no anvil"),
        "acme-unmarked": (
            "failed",
            'its metadata declares "AcmeUnmarked", which acme_unmarked does not register; '
            'its hami_register lacks the decorator @pluggy.HookimplMarker("hami")',
        ),
    }
    assert plugins.find("AcmeEcho").owner == "acme-good"


def test_records_contain_name_version_backends_and_load_time(site: Site) -> None:
    site.install("acme-good")
    (record,) = site.plugins().records(load=True)
    assert record.seconds is not None
    assert record.seconds > 0
    assert record._replace(seconds=None) == (
        "good",
        "acme-good",
        "1.2.0",
        None,
        "ok",
        None,
        None,
        ("AcmeAdd", "AcmeEcho", "AcmeExtra"),
        ("acme-twice",),
        (),
        None,
    )


def test_a_backend_that_fails_to_import_leaves_its_plugin_usable(site: Site) -> None:
    site.install("acme-late")
    plugins = site.plugins()
    with pytest.raises(hami.PluginError):
        plugins.find("AcmeLate")
    assert plugins.find("AcmeEarly").owner == "acme-late"
    (record,) = plugins.records()
    assert (record.state, record.error) == ("failed", "AcmeLate: No module named 'acme_engine_runtime'")


def test_a_reason_shared_by_several_failed_backends_is_reported_once(site: Site) -> None:
    write_plugin(site.folder, "acme-gone", "1.0", "One", "Two", "Three")
    plugins = site.plugins()
    (owner,) = plugins.index().plugins
    owner.failures = {"One": ImportError("no engine"), "Two": ImportError("no engine"), "Three": OSError("no disk")}
    assert owner.error == "One, Two: no engine; Three: OSError: no disk"


def test_a_reason_shared_by_all_backends_is_reported_without_their_names(site: Site) -> None:
    write_plugin(site.folder, "acme-gone", "1.0", "One", "Two")
    module = site.folder / "acme_gone_plugin.py"
    module.write_text(module.read_text().replace("acme_gone_plugin:Echo", "acme_engine_runtime:Echo"))
    (record,) = site.plugins().records(load=True)
    assert (record.state, record.error) == ("failed", "No module named 'acme_engine_runtime'")


def test_loading_a_failed_backend_is_retried(site: Site) -> None:
    site.install("acme-late")
    plugins = site.plugins()
    with pytest.raises(hami.PluginError):
        plugins.find("AcmeLate")
    (site.folder / "acme_engine_runtime.py").write_text("")
    (site.folder / "acme_late" / "engine.py").write_text(
        "import acme_engine_runtime\nfrom acme_late.early import Early as Engine\n"
    )
    import importlib

    importlib.invalidate_caches()
    assert plugins.find("AcmeLate").owner == "acme-late"
    assert [(record.state, record.error) for record in plugins.records()] == [("ok", None)]


def test_a_plugin_installed_later_is_found(site: Site) -> None:
    site.install("acme-late")
    plugins = site.plugins()
    early = plugins.find("AcmeEarly")
    with pytest.raises(hami.BackendNotFound):
        plugins.find("AcmeEcho")
    site.install("acme-good")
    assert plugins.find("AcmeEcho").owner == "acme-good"
    assert plugins.find("AcmeEarly") is early


def test_the_first_of_two_packages_with_one_name_is_used(site: Site) -> None:
    newer = site.folder.parent / "newer"
    newer.mkdir()
    write_plugin(newer, "acme-twin", "2.0", "AcmeNew")
    write_plugin(site.folder, "acme_twin", "1.0", "AcmeOld")
    sys.path.insert(0, str(newer))  # the list that the fixture replaced
    plugins = site.plugins()
    assert [record.version for record in plugins.records()] == ["2.0"]
    assert "AcmeOld" not in plugins.backends()
    assert plugins.find("AcmeNew").owner == "acme-twin"


def test_a_package_without_plugins_hides_an_older_version_with_plugins(site: Site) -> None:
    newer = site.folder.parent / "newer"
    write_metadata(newer, "acme-twin", "2.0")
    write_plugin(site.folder, "acme-twin", "1.0", "AcmeOld")
    sys.path.insert(0, str(newer))  # the list that the fixture replaced
    assert site.plugins().records() == []


@pytest.mark.parametrize("version", ["0.9", "1.1"])
def test_metadata_of_another_version_in_the_same_folder_do_not_hide_a_plugin(site: Site, version: str) -> None:
    """`pip install --target --upgrade` leaves the metadata of the previous version."""
    write_plugin(site.folder, "acme-doubled", "1.0", "AcmeDoubled")
    write_metadata(site.folder, "acme-doubled", version)
    plugins = site.plugins()
    assert [(record.distribution, record.version) for record in plugins.records()] == [("acme-doubled", "1.0")]
    assert plugins.find("AcmeDoubled").owner == "acme-doubled"


def test_metadata_whose_files_are_gone_do_not_hide_a_plugin(site: Site) -> None:
    gone = site.folder.parent / "gone"
    info = write_metadata(gone, "acme-moved", "2.0")
    (gone / "acme_moved.py").touch()
    write_record(gone, info, "acme_moved.py")
    (gone / "acme_moved.py").unlink()
    write_plugin(site.folder, "acme-moved", "1.0", "AcmeMoved")
    sys.path.insert(0, str(gone))  # the list that the fixture replaced
    plugins = site.plugins()
    assert [record.version for record in plugins.records()] == ["1.0"]
    assert plugins.find("AcmeMoved").owner == "acme-moved"


def test_damaged_metadata_are_reported_and_do_not_affect_other_plugins(site: Site) -> None:
    site.install("acme-good")
    (site.folder / "empty-1.0.dist-info").mkdir()
    bare = site.folder / "bare-1.0.dist-info"
    bare.mkdir()
    (bare / "entry_points.txt").write_text("[hami.backends]\nBare = bare.plugin\n")
    torn = write_metadata(site.folder, "acme-torn", "1.0")
    (torn / "entry_points.txt").write_bytes(b"[hami.backends]\nTorn = \xff\xfe\n")
    senseless = write_metadata(site.folder, "acme-senseless", "1.0")
    (senseless / "entry_points.txt").write_text("hami hami\n[hami\n= =")
    half = write_metadata(site.folder, "acme-half", "1.0")
    (half / "entry_points.txt").write_text("[hami.backends]\nHalf\n")
    gone = write_metadata(site.folder, "acme-gone", "1.0", {"hami.backends": {"Gone": "acme_gone"}})
    plugins = site.plugins()
    records = plugins.records()
    assert [record.distribution for record in records if record.state == "not loaded"] == ["acme-gone", "acme-good"]
    errors = {record.distribution: record.error for record in records if record.state == "failed"}
    assert errors == {
        name: f"its metadata in {folder} is damaged: {reason}; remove it, or reinstall {name}"
        for name, folder, reason in (
            ("bare", bare, "it has no METADATA with a name"),
            ("acme-torn", torn, "its entry_points.txt is not UTF-8 text"),
            ("acme-half", half, "its entry_points.txt is not a list of entry points"),
        )
    }
    assert plugins.find("AcmeEcho").owner == "acme-good"
    with pytest.raises(hami.PluginError) as caught:
        plugins.find("Gone")
    assert gone.exists()
    assert str(caught.value) == (
        "backend \"Gone\" is provided by acme-gone 1.0, which failed to load: No module named 'acme_gone'"
    )


def test_an_entry_point_may_have_extras(site: Site) -> None:
    info = write_plugin(site.folder, "acme-fast", "1.0", "AcmeFast")
    file = info / "entry_points.txt"
    file.write_text(file.read_text().replace("acme_fast_plugin", "acme_fast_plugin [gpu,cpu]"))
    assert site.plugins().find("AcmeFast").owner == "acme-fast"


def test_metadata_without_the_pluggy_group_uses_the_distribution_as_plugin_name(site: Site) -> None:
    write_plugin(site.folder, "acme-half", "1.0", "AcmeHalf")
    file = site.folder / "acme_half-1.0.dist-info" / "entry_points.txt"
    file.write_text("[hami.backends]\nAcmeHalf = acme_half_plugin\n")
    plugins = site.plugins()
    assert [record.plugin for record in plugins.records()] == ["acme-half"]
    assert plugins.find("AcmeHalf").owner == "acme-half"


@pytest.mark.parametrize(
    ("setting", "disabled"),
    [
        (None, set()),
        ("good,late", {"cv"}),
        (" good , cv ", {"late"}),
        ("", {"good", "late", "cv"}),
        ("no:cv", {"cv"}),
        ("no:cv,late", {"cv", "late"}),
        ("no:cv,no:late", {"cv", "late"}),
        ("no:", set()),
        ("good,late,no:late", {"late", "cv"}),
    ],
)
def test_the_setting_enables_or_disables_plugins(site: Site, setting: str | None, disabled: set[str]) -> None:
    site.install("acme-good", "acme-late", "acme-cv")
    records = site.plugins(setting).records(load=True)
    assert {record.plugin for record in records if record.state == "disabled"} == disabled
    assert not {f"acme_{name}" for name in disabled} & set(sys.modules)
    assert {record.error for record in records if record.state == "disabled"} <= {f"disabled by HAMI_PLUGINS={setting}"}


def test_a_disabled_plugin_does_not_make_a_name_ambiguous(site: Site) -> None:
    site.install("acme-good", "acme-cv")
    assert site.plugins("no:cv").find("AcmeAdd").owner == "acme-good"
    assert site.plugins("no:cv").backends()["AcmeAdd"].owner == "acme-good"


def test_a_plugin_that_registers_a_name_replaces_a_disabled_owner(site: Site) -> None:
    """For example a library of HAMI_PLUGIN_PATH, which has no metadata."""
    site.install("acme-good")
    write_plugin(site.folder, "acme-owner", "1.0", "AcmeExtra")
    plugins = site.plugins("no:owner")
    assert plugins.find("AcmeExtra").owner == "acme-good"
    assert plugins.backends()["AcmeExtra"].owner == "acme-good"
    with pytest.raises(hami.PluginError, match="is disabled by HAMI_PLUGINS=no:owner,good"):
        site.plugins("no:owner,good").find("AcmeExtra")


def test_a_plugin_does_not_shadow_a_core_name(site: Site) -> None:
    write_plugin(site.folder, "acme-shadow", "1.0", "Identity")
    plugins = site.plugins()
    assert plugins.backends()["Identity"].owner == "hami-core"
    assert plugins.find("Identity", "acme-shadow").owner == "acme-shadow"


def test_a_plugin_does_not_shadow_an_alias_of_the_core(site: Site) -> None:
    write_plugin(site.folder, "acme-shadow", "1.0", "S")
    plugins = site.plugins()
    assert "S" not in plugins.backends()
    assert plugins.names()["S"] == "hami-core"
    assert plugins.find("S", "acme-shadow").owner == "acme-shadow"


def test_a_keyboard_interrupt_while_loading_is_not_swallowed(site: Site) -> None:
    write_plugin(site.folder, "acme-stop", "1.0", "AcmeStop")
    (site.folder / "acme_stop_plugin.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        site.plugins().find("AcmeStop")


def test_many_threads_load_a_plugin_once(site: Site) -> None:
    site.install("acme-good")
    plugins = site.plugins()
    start = threading.Barrier(8)
    found = []

    def look_up() -> None:
        start.wait()
        found.append(plugins.find("AcmeAdd"))

    threads = [threading.Thread(target=look_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(handle) for handle in found}) == 1


def test_a_registry_rejects_invalid_registrations() -> None:
    from hami._plugins.loading import Registry

    registry = Registry("acme-good")
    registry.add("AcmeOnce", "acme:Once")
    for arguments, message in [
        (("AcmeOnce", "acme:Once"), '"AcmeOnce" is registered twice'),
        (
            ("AcmeTwo", "acme.Two"),
            'the second argument of registry.add("AcmeTwo", …) must be "module:Class", got \'acme.Two\'',
        ),
        (
            ("acme-two", "acme:Two"),
            "'acme-two' is not a valid backend name: use letters, digits and _, not starting with a digit",
        ),
        ((dict,), "a backend must be a subclass of hami.Backend, got dict"),
    ]:
        with pytest.raises(hami.PluginError) as caught:
            registry.add(*arguments)
        assert str(caught.value) == message


def test_hami_backends_and_hami_plugins_describe_this_process() -> None:
    assert hami.backends()["Identity"].owner == "hami-core"
    assert all(plugin.state in ("ok", "not loaded", "disabled", "failed", "incompatible") for plugin in hami.plugins())
