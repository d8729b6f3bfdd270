"""Shared code of the commands in ci/. `bootstrap` needs only the standard library, most of the rest an environment."""
