"""Score a table at night in two tasks, as Airflow would run them: `python nightly_batch.py submit|collect DATE`.

`submit` enqueues a record for each row, and ends. `collect` takes the results, whenever it comes, and may be run again: it adds to
the file. The task fails while results are missing.
"""

import argparse
import csv
import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from cluster_serving.client import InputQueue, OutputQueue

JOB, FILMS_OF_EACH = "recommendation", 3
MORNING_S = 6 * 3600  # a record that no node has begun by then is answered DeadlineExceeded, and costs the day nothing


def submit(date: str) -> None:
    """Enqueue a record for each user and film, under a name that is the same when the task is tried again."""
    tables = json.loads(Path("recommendation/tables.json").read_text())
    genres = len(tables["genres"])
    records = (
        (f"{date}/{user}/{film}", {"user": user, "film": film, "age_and_genre": age * genres + tables["films"][film]})
        for user, age in enumerate(tables["ages"])
        for film in range(FILMS_OF_EACH)
    )
    with InputQueue(name=JOB, deadline_s=MORNING_S) as queue:
        count = queue.enqueue_many(records)
    Path(f"{date}.count").write_text(str(count))
    print(f"{count} records submitted")


def collect(date: str) -> None:
    """Add the results to the file, and fail while some are missing."""
    file, errors = Path(f"{date}.csv"), Counter[str]()
    file.touch()
    missing = int(Path(f"{date}.count").read_text()) - len(file.read_text().splitlines())
    with OutputQueue(name=JOB) as output, file.open("a", newline="") as table:
        writer = csv.writer(table)
        for result in islice(output.results(timeout=60), missing):  # ends also when none has come for a minute
            if result.error is not None:
                errors[result.error[0]] += 1
            else:
                writer.writerow([result.uri, f"{result.value:.4f}"])
                missing -= 1
    print(f"{file}: {missing} missing", *(f"{code}: {count}" for code, count in errors.items()))
    if missing:
        sys.exit("see `cluster-serving dead-letters list`; after the mend, `replay --all`, and collect again")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["submit", "collect"])
    parser.add_argument("date")
    options = parser.parse_args()
    (submit if options.task == "submit" else collect)(options.date)
