"""Settings, features strictly before a time, networks, the training loop, and the two tasks.

`models`, `training` and `tasks` need torch; `settings` and `presets` import neither torch nor
NumPy. It may import from `core`, `events`, `engine`, `store`, `evaluation` and the native module.
"""
