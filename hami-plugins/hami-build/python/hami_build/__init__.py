"""Builds, checks and publishes plugins of HAMi. The command is `hami-build`."""
