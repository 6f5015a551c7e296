"""Experiments on worlds whose truth is known: trials, here or over a cluster, and what is made of them."""
