"""Networks that other programs have trained: read from their files, as runs of this one."""
