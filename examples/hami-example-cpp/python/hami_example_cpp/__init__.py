"""A HAMi plugin with the backend HamiExampleCpp."""
