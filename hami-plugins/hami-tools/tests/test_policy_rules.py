"""The keys of the administrator's policy about installations and bundles."""

from __future__ import annotations

import os
from typing import Any

import hami
import pytest
from conftest import ROOT, Site
from fake_site import write_plugin
from hami.packages import policy

from hami_tools.packages import policy_rules
from hami_tools.packages.policy_rules import Rules

KEY = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="  # of RFC 8410
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="a policy file belongs to root")


def test_the_example_of_the_guide_is_a_policy(write_policy: Any) -> None:
    guide = ROOT / "hami-core" / "docs" / "howto" / "install-plugins.md"
    write_policy(guide.read_text("utf-8").partition("```toml\n")[2].partition("```")[0])
    plugins = policy.read()
    assert plugins._replace(others={}) == policy.Policy(
        allow=frozenset({"hami-onnx", "acme-words"}), block=frozenset({"acme-old"}), check_files=True
    )
    assert policy_rules.read() == Rules(
        plugins,
        catalog="https://packages.example/catalog.json",
        require_grade="silver",
        catalog_key=KEY,
        require_attestation=frozenset({"https://github.com/acme/words"}),
        bundle_keys=(KEY,),
    )
    assert policy_rules.problems() == []
    for shown in ("allow acme-words, hami-onnx", f"bundle_keys {KEY}", "check_files true", "require_grade silver"):
        assert f"; {shown}" in policy.fact()["policy"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("catalog = 1", "has no file or address in catalog"),
        ('require_grade = "best"', "has no grade in require_grade"),
        ('require_grade = "gold"', "has require_grade without catalog"),
        (f'catalog_key = "{KEY}"', "has catalog_key without catalog"),
        ('catalog = "a"\ncatalog_key = "abc"', "has no public key in catalog_key"),
        (f'catalog = "a"\ncatalog_key = "{KEY[:-8]}"', "has no public key in catalog_key"),
        ("bundle_keys = []", "has no list of public keys in bundle_keys"),
        (f'bundle_keys = "{KEY}"', "has no list of public keys in bundle_keys"),
        ('bundle_keys = ["abc"]', "has no list of public keys in bundle_keys"),
        ("require_attestation = []", "has neither true nor a list of repositories in require_attestation"),
        ('require_attestation = "acme"', "has neither true nor a list of repositories in require_attestation"),
    ],
)
def test_with_a_wrong_key_nothing_is_installed(write_policy: Any, text: str, problem: str) -> None:
    path = write_policy(text)
    rules = policy_rules.read()
    assert rules == Rules(plugins=rules.plugins)
    with pytest.raises(hami.PluginError, match="ask the administrator") as caught:
        rules.plugins.require(["hami-onnx"])
    assert problem in str(caught.value)
    assert [line.partition(", which ")[0] for line in policy_rules.problems()] == [
        f"nothing is installed, and no bundle is opened, because of {path}"
    ]


def test_installed_plugins_are_used_also_with_a_wrong_key(site: Site, write_policy: Any) -> None:
    write_policy("catalog = 1")
    write_plugin(site.folder, "acme-one", "1.0", "AcmeOne")
    assert site.plugins().find("AcmeOne").owner == "acme-one"


def test_a_policy_that_the_core_refuses_is_reported_once(write_policy: Any) -> None:
    write_policy("allowed = []")
    assert "has the unknown key allowed" in policy_rules.read().plugins.problem
    assert policy_rules.problems() == []
