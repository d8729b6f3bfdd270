"""Configurations of torchpipe as configurations of HAMi."""

from hami_torchpipe.importing.configuration import Imported, import_torchpipe

__all__ = ["Imported", "import_torchpipe"]
