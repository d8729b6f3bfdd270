"""Measurements of `hami bench`: a pipe under different loads."""
