"""How fast a step is, alone and against others: ratios inside one run, medians with their spread."""
