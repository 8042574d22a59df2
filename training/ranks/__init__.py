"""Training by several processes: every rank computes some of the parts of each batch.

Rank 0 runs the loop and does all that is seen: the run folder, checkpoints, the log, messages. The
others follow: they are told each thing that its session does, and do the same.
"""
