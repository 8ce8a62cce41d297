"""The paper's tables with our own numbers: measured, stored, printed and drawn.

May import from every package but `cli`, which alone imports it.
"""
