"""Rules that turn gradients into new parameters, for which parameters, at what rate."""
