"""How time and memory grow with the store, the run and the step."""
