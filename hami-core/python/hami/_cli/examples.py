"""The examples in the help of each command."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        'hami run "S[Identity,Identity]" --data "[1, 2]" --json',
        "hami run ocr page.png --stats --trace run.pftrace",
    ),
    "check": ("hami check pages.toml --set instance_num=2",),
    "backends": ("hami backends Identity", 'hami backends "*Tensor"'),
    "plugins": ("hami plugins --load",),
    "show": ("hami show detector.onnx",),
    "doctor": ("hami doctor --json",),
    "version": ("hami version",),
}
