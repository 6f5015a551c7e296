"""The guard for a trainer that cannot take a callback: the same review, over HTTP."""
