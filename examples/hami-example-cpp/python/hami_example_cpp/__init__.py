"""HamiExampleCpp for HAMi."""
