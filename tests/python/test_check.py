"""hami check reports all problems of a file in one run, each with a caret, the node, the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run, Site

TEN = """\
requires = ["acme-none>=1"]
entrypiont = 1

[decode]
backend = "S[Identity,Log(hello]"
next = "resize"

[resize]
backend = "S[Identity,Loog(x)]"
next = "detekt"

[detect]
backend = "Sleep(tme=3ms)"
max = "four"
next = "join"

[other]
backend = "Log"
next = "join"
colour = "red"

[join]
backend = "Log('${nme}')"
"""

REPORT = """\
unknown top-level key "entrypiont"; did you mean "entrypoint"?
  in  entrypiont = 1   (ten.toml:2)
      ^^^^^^^^^^
  write a node as a table, [node], and a key for all nodes into [global]

requires acme-none>=1, which is not installed: pip install "acme-none>=1"
  in  requires = ["acme-none>=1"]   (ten.toml:1)
                  ^^^^^^^^^^^^^^

neither node "join" nor [global] has a key "nme"
  in  backend = "Log('${nme}')"   (node "join", ten.toml:23)
                      ^^^^^^

"(" is never closed
  in  S[Identity,Log(hello]   (node "decode", ten.toml:5)
                    ^
  expected ")" before "]"

backend "Loog" not found; did you mean Log?  (list all: hami backends)
  in  S[Identity,Loog(x)]   (node "resize", ten.toml:9)
                 ^^^^

unknown parameter "tme" for Sleep; did you mean "time"?  (accepts: time: duration)
  in  Sleep(tme=3ms)   (node "detect", ten.toml:13)
            ^^^

parameter "max" of InstanceDispatcher takes int of at least 1 or "auto", got "four"
  in  max = "four"   (node "detect", ten.toml:14)
      ^^^

parameter "message" of Log is missing
  in  Log   (node "other", ten.toml:18)
      ^^^
  give  message = …  in the node, or write Log(message=…)  (accepts: message: str)

nothing uses the key "colour"
  in  colour = "red"   (node "other", ten.toml:20)
      ^^^^^^
  the keys here are accept_skipped, admission, aging, backend, batching, batching_timeout, filter, init_timeout, \
instance_num, map, max, max_queue_size, max_wait, memory_limit, message, min, next, node_entrypoint, on_batch_error, \
on_full, or, otherwise, request_cost, reserve, shared_device, timeout

node "detekt" does not exist; did you mean detect?
  in  next = "detekt"   (node "resize", ten.toml:10)
      ^^^^

node "join" has 2 predecessors and no map
  in  [join]   (node "join", ten.toml:22)
      ^^^^^^
  say where each key comes from: map = "detect[result:data], …"

11 problems in ten.toml
"""


def test_one_run_reports_all_mistakes_of_a_file(hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "ten.toml").write_text(TEN)
    done = hami_command("check", "ten.toml", HAMI_PLUGINS="")
    assert (done.returncode, done.stdout, done.stderr) == (1, REPORT, "")


def test_the_same_file_without_mistakes_has_no_problems(hami_command: Run, tmp_path: Path) -> None:
    text = TEN.replace('"acme-none>=1"', '"hami-core"').replace("entrypiont = 1\n", "").replace("(hello]", "(hello)]")
    text = text.replace("Loog", "Log").replace("detekt", "detect").replace("tme=", "time=").replace('"four"', "4")
    text = text.replace('colour = "red"', 'message = "red"').replace("nme", "node_name")
    (tmp_path / "fixed.toml").write_text(text + 'map = "detect[result:data],other[result:more]"\n')
    done = hami_command("check", "fixed.toml", HAMI_PLUGINS="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fixed.toml: no problems, 5 nodes\n", "")


def test_problems_between_nodes_are_reported(hami_command: Run, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(
        '[a]\nbackend = "S[Forward[node.c],StateFul[b.2]]"\nnext = "b"\n'
        'instance_num = 2\n[b]\nbackend = "Identity"\ninstance_num = 2\n'
    )
    done = hami_command("check", "two.toml", HAMI_PLUGINS="")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == [
        'StateFul is part of the backend of node "a", which has several instances',
        '  in  S[Forward[node.c],StateFul[b.2]]   (node "a", two.toml:2)',
        "                        ^^^^^^^^",
    ]
    assert done.stdout.endswith("""
instance "node.c" not found; did you mean node.a or node.b?
  in  S[Forward[node.c],StateFul[b.2]]   (node "a", two.toml:2)
                ^^^^^^

instance "b.2" not found; did you mean b.0 or b.1?
  in  S[Forward[node.c],StateFul[b.2]]   (node "a", two.toml:2)
                                 ^^^

3 problems in two.toml
""")


def test_keys_of_a_node_with_an_unknown_backend_are_not_checked(hami_command: Run, tmp_path: Path) -> None:
    """They may be parameters of that backend."""
    (tmp_path / "one.toml").write_text('[global]\nroot = "x"\n[a]\nbackend = "S[Loog,Log(x)]"\ncolour = 1\n')
    done = hami_command("check", "one.toml", HAMI_PLUGINS="")
    assert done.stdout.startswith('backend "Loog" not found')
    assert done.stdout.endswith("\n\n1 problem in one.toml\n")


def test_a_branch_that_model_loader_skips_does_not_hide_problems_elsewhere(hami_command: Run, site: Site) -> None:
    site.install("acme-broken")
    text = "S[ModelLoader[(.onnx)Identity,(.trt)AcmeEngine],AcmeEngine]"
    settings = {"site": site.folder, "HAMI_PLUGINS": "broken"}
    done = hami_command("check", text, "--set", "model=a.onnx", **settings)
    assert done.returncode == 1
    assert "No module named 'acme_engine_runtime'" in done.stdout
    assert done.stdout.endswith(f"\n\n1 problem in {text}\n")
    done = hami_command("run", text, "--set", "model=a.onnx", "--text", "x", **settings)
    assert done.returncode == 1
    assert "No module named 'acme_engine_runtime'" in done.stderr


@pytest.mark.parametrize("key", ["max", "min"])
@pytest.mark.parametrize("given", [0, -3])
def test_limits_below_one_are_reported_with_their_position(hami_command: Run, key: str, given: int) -> None:
    done = hami_command("check", "Identity", "--set", f"{key}={given}", HAMI_PLUGINS="")
    expected = 'int of at least 1 or "auto"' if key == "max" else "int of at least 1"
    assert done.returncode == 1
    assert done.stdout.startswith(
        f'parameter "{key}" of InstanceDispatcher takes {expected}, got "{given}"\n  in  {key} = "{given}"'
    )
