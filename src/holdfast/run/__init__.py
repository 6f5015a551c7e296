"""The online loop and all that makes it a run: its directory, inputs, parts, rounds and export."""
