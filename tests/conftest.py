"""Settings of every test; being here also puts `small_run` on the path of the tests below."""

import os

# The tests' models are so small that a second thread only waits for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")
