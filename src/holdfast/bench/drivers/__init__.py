"""Programs that do one iteration whenever they are asked to, each in a process of its own.

They run where Holdfast is not installed, so nothing in here imports it, `wire` is plain Python, and a driver is run by
its path.
"""
