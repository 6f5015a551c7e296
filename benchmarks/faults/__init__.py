"""What the system survives: the table of faults, its mutations, and fuzzing."""
