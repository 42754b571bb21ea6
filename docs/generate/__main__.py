"""Write the pages: `python -m docs.generate`."""

from pathlib import Path

from docs.generate import pages

for path, text in pages().items():
    (Path(__file__).parents[1] / path).write_text(text, encoding="utf-8")
