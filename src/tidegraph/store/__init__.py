"""Trajectories on disk: how states are recorded, stored, sharded, and queried by node and time.

May import from `core`, `events`, `engine` and the native module.
"""
