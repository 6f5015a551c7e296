"""Saving that is whole or not at all: checksummed files, the store of checkpoints, the lock on a run."""
