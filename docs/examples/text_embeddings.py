"""Find the paragraphs that answer a question, by embeddings of a text encoder: `python text_embeddings.py 'QUESTION'`."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from cluster_serving.client import InputQueue

BEST = 3


def main() -> None:
    """Print the nearest paragraphs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    question = parser.parse_args().question
    tokenizer: Any = Tokenizer.from_file("texts/tokenizer.json")

    def record(text: str) -> dict[str, Any]:
        """Return ids and mask int64 [words]. Rows of any length: `padding` of the job fills up the shorter ones of a batch."""
        ids = np.array(tokenizer.encode(text).ids)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    texts = Path("texts/texts.txt").read_text().splitlines()
    with InputQueue(name="texts") as queue:
        embeddings: list[Any] = list(queue.predict_many(map(record, texts)))
        wanted = queue.predict(record(question))
    nearness = np.stack(embeddings) @ wanted
    for place in np.argsort(-nearness)[:BEST]:
        print(f"{nearness[place]:.2f}  {texts[place][:100]}")


if __name__ == "__main__":
    main()
