"""Numbers and progress: the registry of metrics, the tracker, the sinks."""
