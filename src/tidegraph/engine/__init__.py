"""The state of now: propagation over a graph that changes.

`Propagator` and its settings, the reference it is tested against, compact graphs and passes over
them, explanations, and the check of the promise. May import from `core`, `events` and the native
module.
"""
