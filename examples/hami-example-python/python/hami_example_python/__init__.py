"""A HAMi plugin with the backend HamiExamplePython."""
