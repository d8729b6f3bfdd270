"""Motion: constant-velocity Kalman filters for the boxes of many tracks at once.

The state is the centre, width and height, and the velocity of each. The noise of the four is independent, so that each
has a filter of two numbers, computed in columns. Noise is relative to the height of the box, as in ByteTrack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FRAME = 1 / 30  # seconds: the noise of the papers is for a frame of common videos
_POSITION_NOISE = 1 / 20  # of the height; standard deviation of a measurement
_VELOCITY_NOISE = 1 / 160  # of the height, for a frame
_FIRST_VELOCITY_NOISE = 10 * _VELOCITY_NOISE


def to_centres(boxes: Floats) -> Floats:
    """Return boxes N x 4 (x1, y1, x2, y2) as centre x, centre y, width, height."""
    return np.hstack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]])


def to_corners(centres: Floats) -> Floats:
    """Return the inverse of `to_centres`."""
    return np.hstack([centres[:, :2] - centres[:, 2:] / 2, centres[:, :2] + centres[:, 2:] / 2])


@dataclass
class Motion:
    """The filters of N boxes: positions, velocities per second, and the three numbers of each symmetric covariance."""

    position: Floats  # N x 4
    velocity: Floats  # N x 4
    variance: Floats  # N x 4 x 3: of the position, of both, of the velocity

    @classmethod
    def start(cls, boxes: Floats) -> Motion:
        """Begin with boxes N x 4 at rest."""
        centres = to_centres(boxes)
        height = np.maximum(centres[:, 3:], 1.0)
        variance = np.zeros((len(boxes), 4, 3))
        variance[..., 0] = (2 * _POSITION_NOISE * height) ** 2
        variance[..., 2] = (_FIRST_VELOCITY_NOISE / _FRAME * height) ** 2
        return cls(centres, np.zeros_like(centres), variance)

    def __getitem__(self, rows: NDArray[np.intp]) -> Motion:
        return Motion(self.position[rows], self.velocity[rows], self.variance[rows])

    def append(self, other: Motion) -> Motion:
        pairs = zip(
            (self.position, self.velocity, self.variance),
            (other.position, other.velocity, other.variance),
            strict=True,
        )
        return Motion(*(np.concatenate(pair) for pair in pairs))

    def boxes(self) -> Floats:
        """Return x1, y1, x2, y2; sides are never negative."""
        centres = self.position.copy()
        centres[:, 2:] = np.maximum(centres[:, 2:], 0)
        return to_corners(centres)

    def advance(self, seconds: Floats) -> Motion:
        """Return the prediction after so many seconds, one number for each box."""
        step = np.broadcast_to(seconds, (len(self.position),)).reshape(-1, 1)
        height = np.maximum(self.position[:, 3:], 1.0)
        frames = step / _FRAME
        own, both, speed = np.moveaxis(self.variance, -1, 0)
        variance = np.stack(
            [
                own + 2 * step * both + step**2 * speed + frames * (_POSITION_NOISE * height) ** 2,
                both + step * speed,
                speed + frames * (_VELOCITY_NOISE / _FRAME * height) ** 2,
            ],
            -1,
        )
        return Motion(self.position + step * self.velocity, self.velocity, variance)

    def correct(self, rows: NDArray[np.intp], boxes: Floats) -> None:
        """Take measured boxes for some rows."""
        measured = to_centres(boxes)
        noise = (_POSITION_NOISE * np.maximum(self.position[rows, 3:], 1.0)) ** 2
        own, both, speed = np.moveaxis(self.variance[rows], -1, 0)
        gain_position, gain_velocity = own / (own + noise), both / (own + noise)
        error = measured - self.position[rows]
        self.position[rows] += gain_position * error
        self.velocity[rows] += gain_velocity * error
        self.variance[rows] = np.stack(
            [own * (1 - gain_position), both * (1 - gain_position), speed - gain_velocity * both], -1
        )
