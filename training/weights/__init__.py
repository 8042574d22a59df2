"""The weights that a training starts with: read from a run or a file, matched by name and shape."""
