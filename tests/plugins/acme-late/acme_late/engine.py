"""A backend that needs what is not there."""

import acme_engine_runtime  # noqa: F401
