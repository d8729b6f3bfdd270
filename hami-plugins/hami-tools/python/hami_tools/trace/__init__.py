"""Timelines: the reader of their files, and the conversion for other tools."""
