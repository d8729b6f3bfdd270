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

KEY = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="  # of RFC 8410
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
def test_the_example_of_the_guide_is_a_policy(write_policy: Any) -> None:
    guide = Path(__file__).parents[2] / "hami-core" / "docs" / "howto" / "install-plugins.md"
    write_policy(guide.read_text("utf-8").partition("```toml\n")[2].partition("```")[0])
    assert policy.read() == Policy(
        allow=frozenset({"hami-onnx", "acme-words"}),
        block=frozenset({"acme-old"}),
        catalog="https://packages.example/catalog.json",
        require_grade="silver",
        catalog_key=KEY,
        require_attestation=frozenset({"https://github.com/acme/words"}),
        bundle_keys=(KEY,),
        check_files=True,
    )
    assert policy.fact()["policy"].endswith(
        f"; require_attestation https://github.com/acme/words; bundle_keys {KEY}; check_files true"
    )


@ROOT_ONLY
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("allow = [", "is not TOML"),
        ("allowed = []", "has the unknown key allowed: the keys are allow, block, bundle_keys, catalog"),
        ('allow = "acme-one"', 'has no list of names in allow: write allow = ["hami-onnx"]'),
        ("block = [1]", "has no list of names in block"),
        ("catalog = 1", "has no file or address in catalog"),
        ('require_grade = "best"', "has no grade in require_grade"),
        ('require_grade = "gold"', "has require_grade without catalog"),
        (f'catalog_key = "{KEY}"', "has catalog_key without catalog"),
        ('catalog = "a"\ncatalog_key = "abc"', "has no public key in catalog_key"),
        (f'catalog = "a"\ncatalog_key = "{KEY[:-8]}"', "has no public key in catalog_key"),
        ("bundle_keys = []", "has no list of public keys in bundle_keys"),
        (f'bundle_keys = "{KEY}"', "has no list of public keys in bundle_keys"),
        ('bundle_keys = ["abc"]', "has no list of public keys in bundle_keys"),
        ('check_files = "yes"', "has neither true nor false in check_files"),
        ("require_attestation = []", "has neither true nor a list of repositories in require_attestation"),
        ('require_attestation = "acme"', "has neither true nor a list of repositories in require_attestation"),
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
