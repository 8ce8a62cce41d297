"""Events and where they come from: batches, streams, tables, formats, data sets, descriptions.

It may import from `core`.
"""
