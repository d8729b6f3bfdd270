"""The files for operators name metrics that the server has, and the programs that read them accept them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from server_process import free_port

DEPLOY = Path(__file__).parent.parent / "deploy"
METRIC = re.compile(r"\bhami_[a-z_]+")
RULES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'hami_serve_model_ready{{job="a", instance="b", model="m", version="1"}}'
        values: 0x20
      - series: 'hami_serve_requests_total{{job="a", model="m", outcome="failure"}}'
        values: 0+10x20
      - series: 'hami_serve_requests_total{{job="a", model="m", outcome="success"}}'
        values: 0+90x20
    alert_rule_test:
      - alertname: HamiModelNotReady
        eval_time: 10m
        exp_alerts:
          - exp_labels: {{severity: critical, job: a, instance: b, model: m, version: "1"}}
            exp_annotations: {{summary: Model m version 1 on b is not ready}}
      - alertname: HamiRequestsFail
        eval_time: 16m
        exp_alerts:
          - exp_labels: {{severity: warning, job: a, model: m}}
            exp_annotations: {{summary: More than 5 % of the requests for m fail (10%)}}
      - alertname: HamiOverloaded
        eval_time: 16m
        exp_alerts: []
"""


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name} (Debian: apt install {package})")
    return found


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_the_metrics_of_a_file_are_those_of_the_server(start, file):
    server = start({"echo": "Identity"})
    assert server.post("/echo", b"[1]", {"Content-Type": "application/json"})[0] == 200
    _, text = server.get("/metrics")
    given = {*METRIC.findall(text.decode()), "hami_serve_worker_up"}  # which a server with several workers has
    named = set(METRIC.findall((DEPLOY / file).read_text("utf-8")))
    assert named
    assert named - given == set()


def test_labels_of_the_dashboard_are_those_of_its_metrics(start):
    server = start({"echo": "Identity"})
    server.post("/echo", b"[1]", {"Content-Type": "application/json"})
    text = server.get("/metrics")[1].decode()
    panels = json.loads((DEPLOY / "dashboard.json").read_text("utf-8"))["panels"]
    of_prometheus = {"job", "instance"}
    for target in (target for panel in panels for target in panel["targets"]):
        (name, *_) = METRIC.findall(target["expr"])
        labels = set(re.findall(r'(\w+)="', re.search(rf"^{name}\{{(.*?)\}}", text, re.MULTILINE)[1])) | of_prometheus
        used = {each for found in re.findall(r"by \((.*?)\)", target["expr"]) for each in found.split(", ")}
        assert used <= labels, target
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= used, target


def test_the_alert_rules_are_valid_and_fire(tmp_path):
    promtool = program("promtool", "prometheus")
    rules = DEPLOY / "alerts.yaml"
    (tmp_path / "test.yaml").write_text(RULES.format(rules=rules))
    for command in (["check", "rules", rules], ["test", "rules", tmp_path / "test.yaml"]):
        done = subprocess.run([promtool, *map(str, command)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_metrics_of_a_server(start, tmp_path):
    prometheus = program("prometheus", "prometheus")
    server = start({"echo": "Identity"})
    assert server.post("/echo", b"[1]", {"Content-Type": "application/json"})[0] == 200
    port = free_port()
    scrape = f"{{job_name: hami, scrape_interval: 1s, static_configs: [{{targets: ['{server.url}']}}]}}"
    (tmp_path / "prometheus.yml").write_text(f"rule_files: [{DEPLOY / 'alerts.yaml'}]\nscrape_configs: [{scrape}]\n")
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    options += [f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen([prometheus, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert asked(port, 'hami_serve_requests_total{model="echo",outcome="success",job="hami"}') == "1"
        finally:
            process.kill()


def asked(port: int, query: str) -> str:
    """Return the value of a query as soon as Prometheus has one."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.request.quote(query)}"
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:  # it starts
            found = []
        if found:
            return found[0]["value"][1]
        threading.Event().wait(0.1)
    raise AssertionError("Prometheus has no value")


def test_systemd_accepts_the_unit(tmp_path):
    analyze = program("systemd-analyze", "systemd")
    text = (DEPLOY / "hami-serve.service").read_text("utf-8")
    command = re.search(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    executable = Path(sys.executable).with_name("hami")
    (tmp_path / "hami-serve.service").write_text(text.replace(command[1], str(executable)))
    file = str(tmp_path / "hami-serve.service")
    done = subprocess.run([analyze, "verify", file], capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in done.stderr.splitlines() if "hami-serve" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_command_of_the_unit_is_one_that_hami_takes():
    import argparse

    from hami_serve.commands import add_serve

    text = (DEPLOY / "hami-serve.service").read_text("utf-8")
    words = re.search(r"^ExecStart=\S+ (.*)$", text, re.MULTILINE)[1].split()
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    given = parser.parse_args(words)
    stop = float(re.search(r"^TimeoutStopSec=(\d+)s$", text, re.MULTILINE)[1])
    assert stop > given.drain + 10  # after which a worker is killed


def test_logrotate_accepts_its_file(tmp_path):
    logrotate = program("logrotate", "logrotate")
    file = tmp_path / "hami"
    file.write_text((DEPLOY / "logrotate.conf").read_text("utf-8"))
    file.chmod(0o644)
    command = [logrotate, "--debug", "--state", str(tmp_path / "state"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
