"""Shows how far the build of an engine is."""
