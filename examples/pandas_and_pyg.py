"""Read a pandas data frame, and convert to PyTorch Geometric and back."""

import pandas as pd

import tidegraph
from tidegraph.events.formats import from_temporal_data, to_temporal_data

frame = pd.DataFrame(
    {
        "buyer": ["u1", "u2", "u1", "u3", "u2"],
        "shop": ["s1", "s1", "s2", "s2", "s1"],
        "time": pd.to_datetime(
            ["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-07", "2024-01-09"]
        ),
    }
)
stream = tidegraph.read(frame, src="buyer", dst="shop", t="time", bipartite=True)
print(stream.nodes, "nodes,", len(stream), "events, times in", stream.unit)

data = to_temporal_data(stream)
print(data)
again = from_temporal_data(data, unit=stream.unit)
assert (again.src == stream.src).all()
assert (again.t == stream.t).all()
