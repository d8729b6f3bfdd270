"""Delivery, Webhook and LivePage: a sink that blocks or fails costs the others nothing, and a browser shows frames."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import cv2
import numpy as np
import pytest
from browsers import browser as browser  # a fixture
from small_models import picture

from hami_vision import Detections
from hami_vision.delivery import Delivery
from hami_vision.live_page import LivePage
from hami_vision.sources import Frame
from hami_vision.webhook import Webhook

WAIT = 20  # seconds, until a test fails
FOUND = Detections([[8, 8, 24, 24]], [0.5], [0], names=["<b>red</b>"])


def frame(index: int = 0, source: str = "camera") -> Frame:
    return Frame(source, index, picture(("red", 8, 8)), index / 10, None)


def test_every_sink_gets_the_results_in_order_and_is_closed():
    class Sink:
        def __init__(self):
            self.seen, self.closed = [], 0

        def __call__(self, frame, result):
            self.seen.append((frame.index, result))

        def close(self):
            self.closed += 1

    sinks = {"a": Sink(), "b": Sink()}
    with Delivery(sinks, lossless=("a", "b")) as delivery:
        for i in range(30):
            delivery.send(frame(i), i)
    assert [(each.seen, each.closed) for each in sinks.values()] == [([(i, i) for i in range(30)], 1)] * 2
    assert [state.taken for state in delivery.states().values()] == [30, 30]
    with pytest.raises(ValueError, match="the delivery is closed"):
        delivery.send(frame(), 0)
    with pytest.raises(ValueError, match="lossless names sinks that are not given: c"):
        Delivery(sinks, lossless=("c",))


@pytest.mark.parametrize("lossless", [(), ("stuck",)])
def test_a_sink_that_blocks_does_not_stop_the_others(lossless, monkeypatch):
    monkeypatch.setattr("hami_vision.delivery._CLOSE_TIMEOUT", 0.2)
    hold, taken, seen = threading.Event(), threading.Semaphore(0), []

    def good(frame, result):
        seen.append(result)
        taken.release()

    sinks = {"stuck": lambda *_: hold.wait(WAIT), "good": good}
    delivery = Delivery(sinks, lossless=(*lossless, "good"), timeout=0.05)
    for i in range(30):
        delivery.send(frame(i), i)
        assert taken.acquire(timeout=WAIT)  # on a busy machine, it may take longer than the timeout
    delivery.close()
    hold.set()
    assert seen == list(range(30))
    state = delivery.states()["stuck"]
    assert state.dropped >= 30 - 1 - 8
    assert state.reason == "still busy when it was closed"


@pytest.mark.parametrize("by", ["__call__", "close"])
def test_two_sinks_that_close_the_delivery_do_not_wait_for_each_other(by):
    together = threading.Barrier(2)

    class Sink:
        def __call__(self, *_):
            if by == "__call__":
                self.close_all()

        def close(self):
            if by == "close":
                self.close_all()

        def close_all(self):
            together.wait(WAIT)
            delivery.close()

    with Delivery({"a": Sink(), "b": Sink()}) as delivery:
        delivery.send(frame(), 0)
    assert [(state.taken, state.failed) for state in delivery.states().values()] == [(1, 0)] * 2


def test_a_lossless_sink_that_is_only_slow_gets_everything():
    seen, slow = [], threading.Semaphore(0)

    def sink(frame, result):
        assert slow.acquire(timeout=WAIT)
        seen.append(result)

    with Delivery({"file": sink}, lossless=("file",), timeout=WAIT) as delivery:
        for i in range(40):
            slow.release()
            delivery.send(frame(i), i)
    assert seen == list(range(40))


@pytest.mark.parametrize("timeout", [1e12, 1e300, float("inf")])
def test_a_lossless_sink_may_have_any_time(timeout):
    hold, seen = threading.Event(), []

    def sink(frame, result):
        hold.wait(WAIT)
        seen.append(result)
        hold.set()

    with Delivery({"slow": sink}, lossless=("slow",), timeout=timeout) as delivery:
        timer = threading.Timer(0.05, hold.set)
        timer.start()
        for i in range(20):
            delivery.send(frame(i), i)
    timer.join(WAIT)
    assert seen == list(range(20))


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_time_that_is_not_one_is_refused(timeout):
    with pytest.raises(ValueError, match=f"timeout must be at least 0, got {timeout}"):
        Delivery({}, timeout=timeout)


def test_a_sender_that_waits_for_a_sink_ends_when_the_delivery_is_closed(monkeypatch):
    monkeypatch.setattr("hami_vision.delivery._CLOSE_TIMEOUT", 0.2)
    hold, waits, raised = threading.Event(), threading.Event(), []
    delivery = Delivery({"stuck": lambda *_: hold.wait(WAIT)}, lossless=("stuck",), timeout=WAIT)
    changed = delivery._lanes["stuck"]._changed
    wait_for = changed.wait_for

    def wait_for_space(*arguments):  # with the lock, which `close` needs, until it waits
        if len(delivery._lanes["stuck"]._waiting) == 8:
            waits.set()
        return wait_for(*arguments)

    monkeypatch.setattr(changed, "wait_for", wait_for_space)

    def send() -> None:
        try:
            for i in itertools.count():
                delivery.send(frame(i), i)
        except ValueError as error:
            raised.append(str(error))

    sender = threading.Thread(target=send)
    sender.start()
    assert waits.wait(WAIT)
    delivery.close()
    sender.join(WAIT / 4)
    assert raised == ["the delivery is closed"]
    hold.set()


def test_a_sink_that_raises_is_counted_and_gets_the_next_result():
    def sink(frame, result):
        if result % 2:
            raise OSError(28, "No space left on device")

    class Unclosable:
        def __call__(self, *_):
            pass

        def close(self):
            raise SystemExit("never")

    with Delivery({"disk": sink, "odd": Unclosable()}, lossless=("disk", "odd")) as delivery:
        for i in range(10):
            delivery.send(frame(i), i)
    states = delivery.states()
    assert (states["disk"].taken, states["disk"].failed) == (5, 5)
    assert states["disk"].reason == "OSError: [Errno 28] No space left on device"
    assert (states["odd"].failed, states["odd"].reason) == (1, "SystemExit: never")


@pytest.fixture
def receiver():
    """A server that keeps what is posted, and answers 503 to /broken and a redirect to /away."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.headers, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response({"/broken": 503, "/away": 302}.get(self.path, 204))
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_posts_json(receiver):
    url, got = receiver
    hook = Webhook(url + "/in", headers={"Authorization": "Bearer key"}, only_if=lambda frame, _: frame.index < 1)
    hook(frame(), {"detections": FOUND, "objects": 1, "ratio": np.float32("nan")})
    hook(frame(1), None)
    ((headers, body),) = got
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer key")
    assert body["result"]["detections"][0]["box"] == [8, 8, 24, 24]
    assert (body["source"], body["frame"], body["time"], body["result"]["ratio"]) == ("camera", 0, 0.0, None)


@pytest.mark.parametrize(("path", "message"), [("/broken", "answered 503"), ("/away", "answered 302")])
def test_a_webhook_that_refuses_fails_and_redirects_are_not_followed(receiver, path, message):
    url, got = receiver
    with pytest.raises(OSError, match=message):
        Webhook(url + path)(frame(), FOUND)
    assert len(got) == 1


def test_a_webhook_without_an_answer_ends():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = Webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.05)
        with pytest.raises(OSError, match="timed out"):
            hook(frame(), FOUND)
    with pytest.raises(ValueError, match="an address of http or https, got file:///etc"):
        Webhook("file:///etc/passwd")


def test_a_password_in_the_address_is_sent_as_basic_authentication_and_is_in_no_message(receiver):
    url, got = receiver
    url = url.replace("://", "://user:s%2Fecret@")
    Webhook(url + "/in")(frame(), FOUND)
    assert got[0][0]["Authorization"] == "Basic dXNlcjpzL2VjcmV0"  # user:s/ecret
    with Delivery({"hook": Webhook(url + "/broken"), "none": Webhook("http://user:s3cret@127.0.0.1/")}) as delivery:
        delivery.send(frame(), FOUND)
    for state in delivery.states().values():
        assert state.failed == 1
        assert "ecret" not in state.reason
        assert "s3cret" not in state.reason


def get(address: str, **headers):
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=WAIT)


def test_the_stream_sends_the_head_of_the_next_picture_with_each_one():
    with LivePage(0) as page:
        page(frame(), FOUND)
        with get(page.address + "frames?source=camera") as stream:
            assert stream.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
            head = b"--frame\r\nContent-Type: image/jpeg\r\n\r\n"
            assert stream.read(len(head)) == head
            for i in range(3):
                received = b""
                while not received.endswith(b"\r\n" + head):  # with no further picture
                    received += stream.read1(1 << 16)
                assert cv2.imdecode(np.frombuffer(received, np.uint8), cv2.IMREAD_COLOR).shape == (64, 64, 3)
                page(frame(i + 1), FOUND)


def test_results_are_server_sent_events():
    with LivePage(0) as page:
        page(frame(), FOUND)
        with get(page.address + "results?source=camera") as stream:
            line = stream.readline()
    assert json.loads(line.removeprefix(b"data: "))["result"][0]["score"] == 0.5


def test_other_names_of_hosts_and_sources_are_refused():
    with LivePage(0) as page:
        for path, headers, status in (
            ("", {"Host": "evil.example:80"}, 403),
            ("frames?source=none", {}, 404),
            ("etc/passwd", {}, 404),
        ):
            with pytest.raises(urllib.error.HTTPError) as raised:
                get(page.address + path, **headers)
            raised.value.close()
            assert raised.value.code == status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_a_page_of_this_machine_answers_under_its_own_names_only(host):
    with LivePage(0, host) as page:
        port = page.address.rstrip("/").rpartition(":")[2]
        for name in (f"{host}:{port}", host, "localhost"):  # browsers leave out port 80
            assert get(page.address, Host=name).status == 200
        for name in ("evil.example", f"evil.example:{port}", ""):
            with pytest.raises(urllib.error.HTTPError, match="403") as raised:
                get(page.address, Host=name)
            raised.value.close()


def test_a_viewer_that_leaves_is_noticed_although_no_frame_comes(monkeypatch):
    monkeypatch.setattr("hami_vision.live_page._WAIT", 0.01)
    with LivePage(0) as page:
        page(frame(), FOUND)
        before = set(threading.enumerate())
        with get(page.address + "frames?source=camera") as stream:
            stream.read(10)
            (viewer,) = set(threading.enumerate()) - before
        viewer.join(WAIT)
        assert not viewer.is_alive()


def test_a_page_whose_port_is_taken_says_so():
    with LivePage(0) as page, pytest.raises(OSError, match="in use"):
        LivePage(int(page.address.rstrip("/").rpartition(":")[2]))


def test_a_browser_shows_the_frames_and_a_keyboard_chooses_the_source(browser):
    with LivePage(0) as live:
        tab = browser.new_page()
        asked, problems = [], []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: problems.append(message.text))
        tab.goto(live.address)
        assert "Waiting for the first frame" in tab.content()
        strange = '"><script>alert(1)</script>'
        live(frame(source=strange), FOUND)
        live(frame(source="yard"), FOUND)
        tab.wait_for_selector("img", timeout=WAIT * 1000)  # visible only with a picture
        assert tab.locator("img").evaluate("element => element.naturalWidth") == 64
        assert tab.locator("a").all_text_contents() == [strange, "yard"]
        tab.keyboard.press("Tab")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/?source=yard", timeout=WAIT * 1000, wait_until="commit")
        tab.wait_for_selector('img[alt="yard, live"]', timeout=WAIT * 1000)
        assert tab.locator("[aria-current]").all_text_contents() == ["yard"]
        assert all(url.startswith(live.address) for url in asked)
        assert problems == []
        program = "url => new Promise(done => new EventSource(url).onmessage = message => done(message.data))"
        assert json.loads(tab.evaluate(program, "/results?source=yard"))["result"][0]["score"] == 0.5
        tab.close()
