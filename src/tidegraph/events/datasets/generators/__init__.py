"""Generated streams of any size, with tails, rhythm, communities and drift like real ones.

Small ones are returned in memory. Large ones are written to a directory in bounded memory, from
which `tidegraph.load_dataset` reads them. Every random number is a function of the seed, its
purpose and its row, so a stream does not depend on how the work was divided.
"""

from tidegraph.events.datasets.generators.communities import generate_communities
from tidegraph.events.datasets.generators.gdelt import generate_gdelt_like
from tidegraph.events.datasets.generators.mag import generate_mag_features, generate_mag_like

__all__ = [
    "generate_communities",
    "generate_gdelt_like",
    "generate_mag_features",
    "generate_mag_like",
]
