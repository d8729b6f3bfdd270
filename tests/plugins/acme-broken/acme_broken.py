"""A plugin whose entry module needs what is not there."""

import acme_engine_runtime  # noqa: F401
