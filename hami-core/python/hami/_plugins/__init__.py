"""Installed plugins: which there are, how one is loaded, and what is said when it cannot be."""
