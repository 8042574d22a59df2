"""What the commands tell: summaries, explanations, data, machines, runs, as objects and as text."""
