"""Bundles: one file with a configuration, its models, the packages that run it, and answers that it must give."""
