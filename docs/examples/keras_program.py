"""A Keras program, moved over: `keras_program.py train`, start the job, `keras_program.py predict`.

The program trained a model and predicted in its own process. Now it saves the model, and any program on any machine predicts.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue

FOLDER = Path("keras-program")


def train() -> None:
    """Train as before, and save. Training needs TensorFlow."""
    import keras

    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (2000, 2)).astype(np.float32)
    inside = (np.linalg.norm(x, axis=1) < 0.7).astype(np.float32)
    model: Any = keras.Sequential([keras.Input((2,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy")
    model.optimizer.learning_rate = 0.02
    model.fit(x, inside, epochs=10, batch_size=100, verbose=0)
    (FOLDER / "model").mkdir(parents=True, exist_ok=True)
    model.save(FOLDER / "model" / "circle.keras")
    np.savez(FOLDER / "points.npz", x=x[:100], predicted=model.predict(x[:100], verbose=0))


def predict() -> None:
    """Predict. Predicting needs the client alone."""
    points = np.load(FOLDER / "points.npz")
    # Before:
    #   model = keras.models.load_model("circle.keras")
    #   answers = model.predict(points["x"])
    with InputQueue(name="circle") as queue:
        answers: list[Any] = list(queue.predict_many(points["x"]))
    print(
        f"100 points, largest difference from model.predict: {np.abs(np.stack(answers) - points['predicted']).max():.0e}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["train", "predict"])
    (train if parser.parse_args().step == "train" else predict)()
