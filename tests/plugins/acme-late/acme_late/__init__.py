"""A plugin that loads, but one of its backends does not."""
