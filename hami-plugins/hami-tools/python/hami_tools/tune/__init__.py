"""The search of `hami tune` for settings with which a pipeline completes more requests."""
