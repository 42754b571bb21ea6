"""Make `recommendation/`: a wide and deep model that knows which films users like, and the tables of users and films.

The wide part learns what people of an age like, a weight for each pair of age and genre. The deep part learns what one user likes,
from embeddings of user and film. `--users N` trains for the first N of 1,000 users.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx_file import save

USERS, FILMS, AGES = 1000, 200, 8
GENRES = ("comedy", "drama", "horror", "western", "science fiction")
RATINGS, STEPS, BATCH, WIDTH, HIDDEN = 60_000, 300, 2000, 8, 16
GRAPH = """
wide_and_deep (int64[batch] user, int64[batch] film, int64[batch] age_and_genre) => (float[batch] probability) {
    wide_part = Gather(wide, age_and_genre)
    of_user = Gather(users, user)
    of_film = Gather(films, film)
    product = Mul(of_user, of_film)
    both = Concat<axis = 1>(of_user, of_film, product)
    hidden = Gemm(both, first, first_bias)
    active = Relu(hidden)
    deep_part = MatMul(active, second)
    score = Add(wide_part, deep_part)
    probability = Sigmoid(score)
}
"""

Ids = NDArray[np.int64]  # (ratings,)
Weights = dict[str, NDArray[np.float32]]


def main() -> None:
    """Make the folder here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=USERS, help="train for the first N users", metavar="N")
    known = parser.parse_args().users
    random = np.random.default_rng(1)
    genre, age = random.integers(len(GENRES), size=FILMS), random.integers(AGES, size=USERS)
    taste = np.where(random.random(USERS) < 0.8, age % len(GENRES), random.integers(len(GENRES), size=USERS))
    user, film = random.integers(known, size=RATINGS), random.integers(FILMS, size=RATINGS)
    likes = random.random(RATINGS) < np.where(taste[user] == genre[film], 0.9, 0.1)
    model = trained(random, (user, film, age[user] * len(GENRES) + genre[film]), likes)
    save(Path("recommendation/model/wide_and_deep.onnx"), GRAPH, **model)
    tables = {"genres": GENRES, "films": genre.tolist(), "ages": age.tolist(), "tastes": taste.tolist()}
    Path("recommendation/tables.json").write_text(json.dumps(tables))
    print(f"recommendation/model: knows {known} users and {FILMS} films")


def trained(random: np.random.Generator, columns: tuple[Ids, Ids, Ids], likes: NDArray[np.bool_]) -> Weights:
    """Return the weights after some steps of Adam."""
    shapes = {"wide": (AGES * len(GENRES),), "users": (columns[0].max() + 1, WIDTH), "films": (FILMS, WIDTH)}
    shapes |= {"first": (3 * WIDTH, HIDDEN), "first_bias": (HIDDEN,), "second": (HIDDEN,)}
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    means, squares = ({name: np.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    for step in range(1, STEPS + 1):
        rows = random.integers(len(likes), size=BATCH)
        user, film, age_and_genre = (column[rows] for column in columns)
        for name, slope in slopes(weights, user, film, age_and_genre, likes[rows]).items():
            means[name] += 0.1 * (slope - means[name])
            squares[name] += 0.01 * (slope**2 - squares[name])
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.99**step)
            weights[name] -= 0.02 * mean / (np.sqrt(square) + 1e-6)
    return weights


def slopes(weights: Weights, user: Ids, film: Ids, age_and_genre: Ids, likes: NDArray[np.bool_]) -> Weights:
    """Return the slope of the cross entropy at each weight."""
    of_user, of_film = weights["users"][user], weights["films"][film]
    both = np.concatenate((of_user, of_film, of_user * of_film), axis=1)
    active = np.maximum(both @ weights["first"] + weights["first_bias"], 0)
    score = weights["wide"][age_and_genre] + active @ weights["second"]
    at_score = (1 / (1 + np.exp(-score)) - likes) / np.float32(len(likes))
    at_hidden = np.outer(at_score, weights["second"]) * (active > 0)
    at_user, at_film, at_product = np.split(at_hidden @ weights["first"].T, 3, axis=1)
    found = {name: np.zeros_like(weights[name]) for name in ("wide", "users", "films")}
    np.add.at(found["wide"], age_and_genre, at_score)
    np.add.at(found["users"], user, at_user + at_product * of_film)
    np.add.at(found["films"], film, at_film + at_product * of_user)
    layers: dict[str, Any] = {
        "first": both.T @ at_hidden,
        "first_bias": at_hidden.sum(axis=0),
        "second": active.T @ at_score,
    }
    return found | layers


if __name__ == "__main__":
    main()
