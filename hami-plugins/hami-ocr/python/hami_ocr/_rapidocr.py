"""Everything that touches the insides of the rapidocr package, which are no promise: its models and its processing.

The text must be what RapidOCR()(image) reads. So each step here calls rapidocr's own function; only the order of the
steps and the sessions are ours (hami_onnx: one per model and process, one budget of threads).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import hami
import numpy as np
from hami_onnx.session import open_session

try:
    import rapidocr.main as rapid
    from omegaconf import OmegaConf
    from rapidocr.ch_ppocr_cls import TextClassifier
    from rapidocr.ch_ppocr_det import TextDetector
    from rapidocr.ch_ppocr_rec import TextRecognizer
    from rapidocr.inference_engine.base import FileInfo, InferSession
    from rapidocr.utils.load_image import LoadImage
    from rapidocr.utils.parse_parameters import ParseParams
    from rapidocr.utils.process_img import (
        ResizeImgError,
        apply_vertical_padding,
        get_rotate_crop_image,
        map_boxes_to_original,
        resize_image_within_bounds,
    )
except ImportError as error:
    raise hami.PluginError(f"hami-ocr does not know this rapidocr {version('rapidocr')}: {error}") from error


class Found(NamedTuple):
    """What a detector found: `boxes` (n x 4 x 2) in `image`, the page as prepared, and `page_boxes` in the page."""

    image: np.ndarray
    boxes: np.ndarray
    page_boxes: np.ndarray


class Line(NamedTuple):
    """One line, cut out and turned level; `ratio` is the width to height that it is padded to when it is read."""

    image: np.ndarray
    ratio: float


@cache
def _settings() -> Any:
    return ParseParams.load(rapid.DEFAULT_CFG_PATH)


def text_score() -> float:
    """Return the score below which rapidocr drops a line."""
    return float(_settings().Global.text_score)


def _model_file(section: Any) -> Path:
    keys = ("engine_type", "ocr_version", "task_type", "lang_type", "model_type")
    info = InferSession.get_model_url(FileInfo(**{key: section[key] for key in keys}))
    return rapid.root_dir / "models" / Path(info["model_dir"]).name


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep rapidocr from telling on stderr which engine it uses."""
    logger = logging.getLogger("RapidOCR")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _stage(kind: Any, name: str, owner: str, threads: int, provider: str, **settings: Any) -> Any:
    """Construct one of rapidocr's stages on a session of ours."""
    section = OmegaConf.create(OmegaConf.to_container(_settings()[name]), flags={"allow_objects": True})
    for key, value in settings.items():
        if value is not None:
            section[key] = value
    path = _model_file(section)
    if not path.is_file():
        raise hami.ConfigError(
            f"{owner}: rapidocr {version('rapidocr')} was installed without its model {path.name} "
            f"(looked for {path}); nothing is downloaded at run time: pip install --force-reinstall rapidocr"
        )
    section.session = open_session(path, threads=threads, provider=provider, backend=owner)
    with _quietly():
        return kind(section)


class Detector:
    """Finds the lines of a page, in reading order."""

    def __init__(
        self, owner: str, threads: int, provider: str, box_thresh: float | None, unclip_ratio: float | None
    ) -> None:
        self._owner = owner
        self._stage = _stage(
            TextDetector, "Det", owner, threads, provider, box_thresh=box_thresh, unclip_ratio=unclip_ratio
        )
        self._prepare = self._stage.get_preprocess()
        # normalize() works on each value by itself, so its answers to all 256 bytes are all it can say: a table, which
        # is six times as fast on a page.
        every_byte = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
        self._table = self._prepare.normalize(every_byte).astype(np.float32)

    def __call__(self, page: np.ndarray) -> Found:
        limits = _settings().Global
        try:
            image, ratio_h, ratio_w = resize_image_within_bounds(page, limits.min_side_len, limits.max_side_len)
        except ResizeImgError as error:
            height, width = page.shape[:2]
            raise hami.RequestError(
                f"{self._owner}: the picture is {width} x {height}; rapidocr makes the longer side "
                f"{limits.max_side_len}, and nothing is left of the shorter one; cut it into parts that are less long"
            ) from error
        record = {"preprocess": {"ratio_h": ratio_h, "ratio_w": ratio_w}}
        image, record = apply_vertical_padding(image, record, limits.width_height_ratio, limits.min_height)
        boxes = self._boxes(image)
        page_boxes = map_boxes_to_original(boxes.copy(), record, *page.shape[:2])
        return Found(image, boxes, page_boxes)

    def _boxes(self, image: np.ndarray) -> np.ndarray:
        resized = self._prepare.resize(image)
        if resized is None:
            return np.zeros((0, 4, 2), np.float32)
        scores = self._stage.session(self.tensor(resized))
        boxes, _ = self._stage.postprocess_op(scores, image.shape[:2])
        return self._stage.sorted_boxes(boxes) if len(boxes) else np.zeros((0, 4, 2), np.float32)

    def tensor(self, resized: np.ndarray) -> np.ndarray:
        """Do what rapidocr's normalize, permute and astype do."""
        tensor = np.empty((1, 3, *resized.shape[:2]), np.float32)
        for channel, plane in enumerate(cv2.split(cv2.LUT(resized, self._table))):
            tensor[0, channel] = plane
        return tensor


def as_bgr(picture: np.ndarray) -> np.ndarray:
    """Make a gray picture or one with alpha (BGRA) the BGR that rapidocr makes of such a file."""
    if picture.ndim == 3 and picture.shape[2] == 3:
        return picture
    if picture.ndim == 3 and picture.shape[2] == 4:
        picture = cv2.cvtColor(picture, cv2.COLOR_BGRA2RGBA)  # rapidocr reads files with Pillow, as RGBA
    return LoadImage().convert_img(picture, bytes)


def cut_lines(image: np.ndarray, boxes: np.ndarray) -> list[Line]:
    """Cut the boxes out, and settle what each line is padded to, for the text depends on it.

    rapidocr reads the lines of a page in order of their width, a few at a time, all padded to the widest of them. Here
    they may be read alone or among lines of other pages, padded to the same.
    """
    crops = [get_rotate_crop_image(image, box.copy()) for box in boxes]
    if not crops:
        return []
    section = _settings().Rec
    _, height, width = section.rec_img_shape
    own = [crop.shape[1] / float(crop.shape[0]) for crop in crops]
    order = np.argsort(np.array(own))
    ratios = [0.0] * len(crops)
    for start in range(0, len(crops), section.rec_batch_num):
        together = order[start : start + section.rec_batch_num]
        widest = max(width / height, *(own[index] for index in together))
        for index in together:
            ratios[index] = widest
    return [Line(crop, ratio) for crop, ratio in zip(crops, ratios, strict=True)]


class Orienter:
    """Turns lines that stand on their head."""

    def __init__(self, owner: str, threads: int, provider: str) -> None:
        self._stage = _stage(TextClassifier, "Cls", owner, threads, provider)

    def __call__(self, crops: Sequence[np.ndarray]) -> list[np.ndarray]:
        batch = np.stack([self._stage.resize_norm_img(crop) for crop in crops])
        answers = self._stage.postprocess_op(self._stage.session(batch))
        return [
            cv2.rotate(crop, cv2.ROTATE_180) if "180" in label and score > self._stage.cls_thresh else crop
            for crop, (label, score) in zip(crops, answers, strict=True)
        ]


class Recognizer:
    """Reads lines: text and score of each, the same whatever lines it is read with."""

    def __init__(self, owner: str, threads: int, provider: str) -> None:
        self._stage = _stage(TextRecognizer, "Rec", owner, threads, provider)

    def __call__(self, line: Line) -> tuple[str, float]:
        tensor = self._stage.resize_norm_img(line.image, line.ratio)
        (answer,), _ = self._stage.postprocess_op(self._stage.session(tensor[np.newaxis]))
        text, score = answer
        return text, float(score)
