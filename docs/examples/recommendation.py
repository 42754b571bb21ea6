"""Recommend films to a user by a wide and deep model: `python recommendation.py USER`."""

import argparse
import json
from pathlib import Path

import numpy as np

from cluster_serving.client import InputQueue

BEST = 5


def main() -> None:
    """Print the five films that the user likes best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("user", type=int, help="number of the user, 0 to 999")
    user = parser.parse_args().user
    tables = json.loads(Path("recommendation/tables.json").read_text())
    films, age, genres = tables["films"], tables["ages"][user], tables["genres"]
    # A record for each film: three inputs of the model, each a number. The node makes batches of them.
    records = (
        {"user": user, "film": film, "age_and_genre": age * len(genres) + genre} for film, genre in enumerate(films)
    )
    with InputQueue(name="recommendation") as queue:
        scores = np.array(list(queue.predict_many(records)))
    print(f"User {user}, who likes {genres[tables['tastes'][user]]}:")
    for film in np.argsort(-scores)[:BEST]:
        print(f"film {film:3}, {genres[films[film]]}, {scores[film]:.2f}")


if __name__ == "__main__":
    main()
