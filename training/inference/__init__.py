"""A trained network: read again, evaluated on a test set, and asked about pictures."""
