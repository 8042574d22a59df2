"""What the commands report: summaries, explanations, data, machines, runs, as objects and text."""
