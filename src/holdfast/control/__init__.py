"""What steers a run: KL controllers and the KL account, learning rates, and when to refresh the ensemble."""
