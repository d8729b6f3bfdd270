"""A plugin that uses everything a Python plugin can."""
