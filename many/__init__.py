"""Several runs as one: ensembles, comparisons, seeds, folds, sweeps."""
