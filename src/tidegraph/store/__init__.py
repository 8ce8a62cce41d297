"""The state of then: trajectories on disk, written, read back by node and time, and sharded.

It may import from `core`, `events`, `engine` and the native module.
"""
