"""HamiExamplePython for HAMi."""
