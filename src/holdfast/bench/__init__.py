"""Speed, measured: `holdfast bench`. Ratios inside one run, medians with their spread, one table and one JSON each."""
