"""The reward: the ensemble, its training and refreshing, the gate, and scores made into rewards."""
