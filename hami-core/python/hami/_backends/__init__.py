"""Backends in Python: their base class, their description for the core, and their registration."""
