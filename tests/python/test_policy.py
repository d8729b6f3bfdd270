"""The administrator's policy file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Site
from fake_site import write_metadata, write_plugin
from hami._plugins import policy
from hami._plugins.policy import Policy

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="a policy file belongs to root")


def test_without_a_file_every_plugin_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "PATH", tmp_path / "none.toml")
    assert policy.read() == Policy()
    assert policy.fact() == {}


@ROOT_ONLY
def test_a_blocked_plugin_is_disabled_also_if_the_environment_enables_it(site: Site, write_policy: Any) -> None:
    path = write_policy('block = ["Acme_CV", "acme-read"]')
    write_plugin(site.folder, "acme-cv", "1.0", "AcmeResize")
    write_plugin(site.folder, "acme-one", "1.0", "AcmeOne")
    write_metadata(site.folder, "acme-read", "1.0", {"hami.pipelines": {"read": "acme_read:read.toml"}})
    plugins = site.plugins("cv,one")
    assert {record.plugin: record.state for record in plugins.records() if record.plugin in ("cv", "one")} == {
        "cv": "disabled",
        "one": "not loaded",
    }
    with pytest.raises(hami.PluginError) as caught:
        plugins.find("AcmeResize")
    assert str(caught.value).endswith(f"is disabled by {path}, which blocks acme-cv")
    assert plugins.pipelines() == {}
    plugins.find("AcmeOne")


@ROOT_ONLY
def test_only_allowed_plugins_are_used(site: Site, write_policy: Any) -> None:
    path = write_policy('allow = ["acme-one"]')
    write_plugin(site.folder, "acme-two", "1.0", "AcmeTwo")
    with pytest.raises(hami.PluginError, match="does not allow acme-two"):
        site.plugins().find("AcmeTwo")
    assert policy.read().reason_against("hami-core") == ""
    with pytest.raises(hami.PluginError) as caught:
        policy.read().require(["acme-one", "acme-two"])
    assert str(caught.value) == (
        f"acme-two is disabled by {path}, which does not allow acme-two; ask the administrator of this machine"
    )
    assert policy.fact() == {"policy": f"{path}; allow acme-one"}


@ROOT_ONLY
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allow = [", "is not TOML"),
        ("allowed = []", "has the unknown key allowed: the keys are allow, block, bundle_keys, catalog"),
        ('allow = "acme-one"', 'has no list of names in allow: write allow = ["hami-onnx"]'),
        ("block = [1]", "has no list of names in block"),
        ('check_files = "yes"', "has neither true nor false in check_files"),
    ],
)
def test_a_wrong_policy_disables_every_plugin(site: Site, write_policy: Any, text: str, problem: str) -> None:
    write_policy(text)
    write_plugin(site.folder, "acme-one", "1.0", "AcmeOne")
    with pytest.raises(hami.PluginError) as caught:
        site.plugins().find("AcmeOne")
    assert problem in str(caught.value)
    assert problem in policy.fact()["policy"]


@ROOT_ONLY
@pytest.mark.parametrize(("which", "mode"), [("file", 0o664), ("file", 0o646), ("folder", 0o777)])
def test_a_policy_that_users_may_change_is_refused(write_policy: Any, which: str, mode: int) -> None:
    path = write_policy('allow = ["acme-one"]')
    weak = path if which == "file" else path.parent
    weak.chmod(mode)
    assert policy.read().reason_against("acme-one") == (
        f"{path}, which users may change: chown root {weak} && chmod go-w {weak}"
    )


def test_a_policy_of_another_user_is_refused(write_policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_policy("")
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
    assert "which users may change: chown root" in policy.read().problem
