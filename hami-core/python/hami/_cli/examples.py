"""The examples in the help of each command."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        'hami run "S[Identity,Identity]" --data "[1, 2]" --json',
        "hami run ocr page.png --stats --trace run.pftrace",
    ),
    "check": ("hami check pages.toml --set instance_num=2",),
    "graph": (
        'hami graph "S[Identity,Identity]" --format html --output pipeline.html',
        "hami graph pages.toml --input page.png --stats result.json",
        "hami graph --live 1234 --format html --output now.html",
    ),
    "top": ("hami top 1234", "hami top 1234 --once --json"),
    "bench": (
        "hami bench pages.toml --input images/ --clients 1,8,64 --seconds 5 --slo 50ms --output result.json",
        "hami bench pages.toml --input images/ --compare faster.toml --clients 8",
        "hami bench pages.toml --input images/ --scenario server --slo 50ms --html result.html",
        "hami bench ocr --input pages/ --trace run.pftrace --plot loads.png --html result.html",
    ),
    "trace": ("hami trace convert run.pftrace --chrome run.json",),
    "tune": ("hami tune pages.toml --input images/ --slo 50ms --output tuned.toml",),
    "show-config": ("hami show-config pages.toml --set instance_num=2",),
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
