"""What surrounds the loop: data files, memory, processes, clusters, the reward service."""
