"""Programs that run in a peer's environment, each in a process of its own: `python -m benchmarks.trl.drivers.NAME JOB`.

There the source of this checkout is on the path, but not what Holdfast needs, so they import little of it.
"""
