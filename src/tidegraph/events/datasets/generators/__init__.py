"""Generated streams of any size, with tails, rhythm, communities and drift like real ones.

Small ones are returned in memory. Large ones are written to a directory in bounded memory, from
which `tidegraph.load_dataset` reads them. Every random number is a function of the seed, its
purpose and its row, so a stream does not depend on how the work was divided.
"""
