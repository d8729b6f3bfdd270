"""A plugin that loads, one of whose backends does not."""
