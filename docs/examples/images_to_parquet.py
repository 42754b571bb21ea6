"""Classify the images of a folder into a Parquet file, with a progress bar: `python images_to_parquet.py FOLDER FILE`."""

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import track

from cluster_serving.client import InputQueue, Result

SCHEMA = pa.schema({"file": pa.string(), "digit": pa.int8(), "probability": pa.float32(), "error": pa.string()})
ROW_GROUP = 10_000


def main() -> None:
    """Write the file, and print what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of images, and of folders of images")
    parser.add_argument("file", type=Path, help="Parquet file to write")
    options = parser.parse_args()
    paths = sorted(path for path in options.folder.rglob("*") if path.is_file())
    records = ((str(path.relative_to(options.folder)), {"image": str(path)}) for path in paths)
    with InputQueue(name="digits") as queue, pq.ParquetWriter(options.file, SCHEMA) as writer:
        # Any number of images: a few hundred are under way at once, and a row group is in memory.
        results = iter(track(queue.as_completed(records), "classify", total=len(paths)))
        while rows := list(islice(map(row, results), ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    table = pq.read_table(options.file)
    digits = Counter(digit for digit in table["digit"].to_pylist() if digit is not None)
    print(f"{options.file}: {table.num_rows} rows, {table['error'].drop_null().length()} with an error")
    print("  ".join(f"{digit}: {count}" for digit, count in sorted(digits.items())))


def row(result: Result) -> dict[str, object]:
    """Return the row of an image: its class, or the reason for which it has none."""
    if result.error is not None:
        return {"file": result.uri, "error": ": ".join(result.error)}
    ((digit, probability, _),) = result.value
    return {"file": result.uri, "digit": digit, "probability": probability}


if __name__ == "__main__":
    main()
