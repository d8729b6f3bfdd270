"""Registers the backends of this package. They, and OpenCV with them, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("CountHeads", "hami_vision.count_heads:CountHeads")
    registry.add("CountObjects", "hami_vision.count_objects:CountObjects")
    registry.add("DecodeDetections", "hami_vision.decode_detections:DecodeDetections")
    registry.add("LetterBoxInput", "hami_vision.letter_box_input:LetterBoxInput")
    registry.add("TrackObjects", "hami_vision.track_objects:TrackObjects")


@hookimpl
def hami_show_file(path: str) -> dict[str, str] | None:
    if not path.endswith(".onnx"):
        return None
    from hami_vision.show import head_of_model

    return head_of_model(path)


@hookimpl
def hami_run_options(parser: Any) -> None:
    """Add options for sources and sinks; what they need is imported when they are used."""
    from hami.cli import whole

    parser.add_argument("--save", metavar="DIR", help="write annotated videos or pictures, and labels, to this folder")
    parser.add_argument("--show", action="store_true", help="show the frames in a browser, at http://127.0.0.1:PORT/")
    parser.add_argument("--port", type=whole(0, 65535), default=8088, metavar="PORT", help="of --show; 8088")
    parser.add_argument("--sample", action="store_true", help="a small video and model that are in this package")
    before = parser.get_default("run")

    def run(arguments: Any) -> int:
        from hami_vision.run_command import run

        return run(arguments, before)

    parser.set_defaults(run=run)
