"""Text models for HAMi: backends before and after an engine, and packaged pipelines."""

__all__: list[str] = []
