"""Foundations: errors, durable files, progress, workers, the wording of counts.

Nothing here knows about graphs, and nothing here imports from another package.
"""
