"""The library that the tests build into this package."""
