"""Models of OpenVINO as a HAMi backend; the work is done by the library beside this file."""

__all__: list[str] = []
