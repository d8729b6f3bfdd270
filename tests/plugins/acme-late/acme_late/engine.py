"""A backend that needs a missing module."""

import acme_engine_runtime  # noqa: F401
