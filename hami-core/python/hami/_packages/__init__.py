"""Installs, removes and downloads plugins with the installer of the environment, pip or uv."""
