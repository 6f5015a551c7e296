"""Learning dynamics: a fixed set of answers, how likely the model finds them as it learns, and what that tells."""
