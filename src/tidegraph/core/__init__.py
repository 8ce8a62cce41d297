"""What every part stands on: errors, durable files, progress, workers.

Nothing here knows of graphs. It imports from no other package.
"""
