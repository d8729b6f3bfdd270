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
    "install": ("hami install hami-onnx",),
    "uninstall": ("hami uninstall hami-onnx --dry-run",),
    "search": ("hami search onnx",),
    "show": ("hami show hami-onnx",),
    "download": ("hami download hami-onnx --to wheels/",),
    "lock": ("hami lock --to pylock.toml",),
    "sync": ("hami sync pylock.toml",),
    "doctor": ("hami doctor --json",),
    "info": ("hami info --json",),
    "new-plugin": ("hami new-plugin acme-resize --cpp", "hami new-plugin acme-best --pipeline"),
    "version": ("hami version",),
}
