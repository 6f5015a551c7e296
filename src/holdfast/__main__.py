"""`python -m holdfast`; several processes are started by `torchrun --nproc-per-node 8 -m holdfast run`."""

from __future__ import annotations

import sys

from holdfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
