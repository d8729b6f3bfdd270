"""Write the photographs of the work `jpeg`, from the photographs in scikit-image and scikit-learn.

    python tests/bench/peers/make_images.py DATA

Photographs that ship as JPEG are copied; the others are encoded at quality 90.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import cv2
import skimage
import sklearn


def main() -> None:
    folder = Path(sys.argv[1]) / "jpeg"
    folder.mkdir(parents=True, exist_ok=True)
    of_skimage = Path(skimage.__file__).parent / "data"
    of_sklearn = Path(sklearn.__file__).parent / "datasets" / "images"
    for photograph in [of_sklearn / "china.jpg", of_sklearn / "flower.jpg", of_skimage / "rocket.jpg"]:
        shutil.copyfile(photograph, folder / photograph.name)
    for name in ["chelsea", "coffee", "astronaut", "motorcycle_left", "motorcycle_right"]:
        pixels = cv2.imread(str(of_skimage / f"{name}.png"), cv2.IMREAD_COLOR)
        cv2.imwrite(str(folder / f"{name}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])
    for file in sorted(folder.iterdir()):
        height, width = cv2.imread(str(file)).shape[:2]
        print(f"{file}  {width} x {height}  {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
