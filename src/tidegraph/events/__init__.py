"""Events and where they come from: batches, streams, tables, formats, data sets, descriptions.

Imports from `core` only.
"""
