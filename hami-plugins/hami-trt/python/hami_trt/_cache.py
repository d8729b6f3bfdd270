"""Finds the engine of a recipe or builds it, once however many ask."""
