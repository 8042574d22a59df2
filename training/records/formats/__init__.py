"""The files of a training and of its networks: what their bytes mean, written and read again."""
