"""Work side by side: the cores of one process, and the processes of one run."""
