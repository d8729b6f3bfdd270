"""The folder of the hook with which PyInstaller packs a program that uses HAMi."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folders of hooks; PyInstaller calls it, as the entry point of the group `pyinstaller40` says."""
    return [str(Path(__file__).parent)]
