"""A package into which the tests build a native library."""
