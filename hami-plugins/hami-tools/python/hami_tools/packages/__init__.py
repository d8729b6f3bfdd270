"""The packages of plugins: their installation, the catalogue, and the proof of where they come from."""
