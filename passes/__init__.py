"""What a run adds to a plain step: each concern is a function of a section or of the layers."""
