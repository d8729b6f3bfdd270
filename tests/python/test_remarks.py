"""Backend.remark: sentences of backends in Pipe.remarks() and in the error about `max`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import pytest


@hami.register("TestRemarking")
class Remarking(hami.Backend):
    text: str = "the model takes one image at a time"
    max = 1

    def init(self, options):
        self.remark(self.text)

    def forward(self, batch):
        for item in batch:
            self.remark(f"seen {item['data']}")
            item["result"] = item["data"]


def test_a_pipe_shows_each_remark_once_although_every_instance_makes_it():
    with hami.pipe({"node": {"backend": "TestRemarking", "instance_num": 3}}) as pipe:
        assert pipe.remarks()[0] == "node: the model takes one image at a time"
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: pipe({"data": number % 2}), range(40)))
        remarks = [sentence for sentence in pipe.remarks() if sentence.startswith("node: seen")]
        assert sorted(remarks) == ["node: seen 0", "node: seen 1"]


def test_a_node_keeps_at_most_32_remarks():
    with hami.pipe({"node": {"backend": "TestRemarking"}}) as pipe:
        pipe([{"data": number} for number in range(100)])
        assert sum(sentence.startswith("node: ") for sentence in pipe.remarks()) <= 32


def test_an_error_about_max_repeats_what_the_backend_says():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"node": {"backend": "TestRemarking", "max": 8, "text": "rows influence each other"}})
    assert str(error.value).splitlines()[:2] == [
        'max is 8; the backend of node "node" takes at most 1',
        "rows influence each other",
    ]


def test_an_error_about_request_size_repeats_why_the_backend_takes_one_item():
    node = {"backend": "TestRemarking", "text": "rows influence each other"}
    with hami.pipe({"node": node}) as pipe, pytest.raises(hami.RequestError) as error:
        pipe({"data": 1, "request_size": 2})
    assert str(error.value).splitlines()[:2] == [
        'request_size is 2; node "node" takes at most 1',
        "rows influence each other",
    ]


def test_a_backend_without_a_pipe_cannot_remark():
    with pytest.raises(hami.ConfigError, match=r"Remarking.remark works from `init` on"):
        Remarking().remark("text")
