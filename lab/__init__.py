"""A student's kernel in the place of one operation: checked, timed beside the library, trained."""
