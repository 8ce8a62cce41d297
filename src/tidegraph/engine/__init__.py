"""The state of now: propagation over a graph that changes, its reference, and what explains it.

Compact graphs, passes over them and the check of the promise live here too. It may import from
`core`, `events` and the native module.
"""
