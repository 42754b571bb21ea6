"""A TensorFlow 1 program, moved over: `tensorflow1_program.py train`, start the job, `tensorflow1_program.py predict`.

The program kept its session open to predict. Now its checkpoint is served as it is.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue

FOLDER = Path("tensorflow1-program")


def train() -> None:
    """Train as before, and save as before. Training needs TensorFlow."""
    import tensorflow.compat.v1 as tf  # pyright: ignore[reportMissingImports]

    tf.disable_eager_execution()
    random = np.random.default_rng(1)
    data = random.uniform(-1, 1, (2000, 3)).astype(np.float32)
    prices = data @ np.array([[2.0], [-1.0], [0.5]], np.float32) + 3
    x = tf.placeholder(tf.float32, (None, 3), "x")
    wanted = tf.placeholder(tf.float32, (None, 1))
    weight, bias = tf.Variable(tf.zeros((3, 1))), tf.Variable(tf.zeros(1))
    price = tf.add(tf.matmul(x, weight), bias, name="price")
    step = tf.train.GradientDescentOptimizer(0.3).minimize(tf.reduce_mean(tf.square(price - wanted)))
    (FOLDER / "model").mkdir(parents=True, exist_ok=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(200):
            session.run(step, {x: data, wanted: prices})
        tf.train.Saver().save(session, str(FOLDER / "model" / "price"))
        np.savez(FOLDER / "rows.npz", x=data[:100], predicted=session.run(price, {x: data[:100]}))


def predict() -> None:
    """Predict. Predicting needs the client alone."""
    rows = np.load(FOLDER / "rows.npz")
    # Before:
    #   saver.restore(session, "model/price")
    #   answers = session.run("price:0", {"x:0": rows["x"]})
    with InputQueue(name="price") as queue:
        answers: list[Any] = list(queue.predict_many({"x": row} for row in rows["x"]))
    print(f"100 rows, largest difference from session.run: {np.abs(np.stack(answers) - rows['predicted']).max():.0e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["train", "predict"])
    (train if parser.parse_args().step == "train" else predict)()
