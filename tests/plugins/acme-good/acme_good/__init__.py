"""A plugin that uses every feature of Python plugins."""
