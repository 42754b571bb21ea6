"""Make `texts/`: paragraphs of this documentation, a tokenizer that was trained on them, and a model of their meaning.

Words that stand in the same paragraphs get vectors that point the same way (latent semantic analysis). The vector of a text is
the mean of the vectors of its words.
"""

import re
from pathlib import Path

import numpy as np
from onnx_file import save
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

DOCS = Path(__file__).resolve().parents[2]
WORDS, WIDTH, LEAST_LENGTH = 4000, 64, 80
GRAPH = f"""
embed (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, {WIDTH}] embedding) {{
    words = Gather(vectors, input_ids)
    mask = Cast<to = 1>(attention_mask)
    column = Unsqueeze(mask, last)
    kept = Mul(words, column)
    middle = Constant<value_ints = [1]>()
    sum = ReduceSum<keepdims = 0>(kept, middle)
    squares = Mul(sum, sum)
    square = ReduceSum<keepdims = 1>(squares, middle)
    bounded = Max(square, least)
    norm = Sqrt(bounded)
    embedding = Div(sum, norm)
}}
"""


def main() -> None:
    """Make the folder here."""
    texts = list(dict.fromkeys(text for page in sorted(DOCS.rglob("*.md")) for text in paragraphs(page.read_text())))
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106  # a word
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=special))
    counts = np.zeros((len(texts), tokenizer.get_vocab_size()), np.float32)
    for row, encoding in zip(counts, tokenizer.encode_batch(texts), strict=True):
        np.add.at(row, encoding.ids, 1)
    rarity = np.log(len(texts) / np.maximum((counts > 0).sum(axis=0), 1))
    _, _, axes = np.linalg.svd(np.log1p(counts) * rarity, full_matrices=False)
    vectors = (axes[:WIDTH].T * rarity[:, None]).astype(np.float32)
    folder = Path("texts")
    save(folder / "model" / "texts.onnx", GRAPH, vectors=vectors, last=np.array([2]), least=np.array(1e-12, np.float32))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    print(f"texts: {len(texts)} paragraphs, {tokenizer.get_vocab_size()} words")


def paragraphs(page: str) -> list[str]:
    """Return the paragraphs of prose of a page in Markdown, without tables and code, each as a line."""
    prose = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", prose))
    return [block for block in blocks if len(block) >= LEAST_LENGTH and block[0] not in "|#!["]


if __name__ == "__main__":
    main()
