"""What learns: features strictly before a time, networks, the training loop, and the tasks.

`models` and `tasks` need torch. It may import from `core`, `events`, `engine`, `store`,
`evaluation` and the native module.
"""
