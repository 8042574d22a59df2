"""Trained networks as files for other programs: a format a file, and servers of answers."""
