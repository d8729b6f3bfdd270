"""What a bundle contains to start itself. It needs the standard library alone, and is copied into every bundle."""
