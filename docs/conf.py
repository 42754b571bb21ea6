"""The site: the Markdown pages of this folder by Sphinx, MyST and Furo. It needs no network, neither to build nor to read.

The pages are plain Markdown, which also reads well without the site. Four things are made here while Sphinx reads a page:

- `<!-- toctree ... -->`, a comment anywhere else, becomes Sphinx' table of contents.
- Pages that live at the top of the repository (`_ELSEWHERE`) take the place of their links in this folder.
- `<!-- messages -->` becomes the list of all messages of the program.
- Links lead to where their file is in the site.
"""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

from cluster_serving import __version__

project = "Cluster Serving"
release = __version__
extensions = ["myst_parser"]
exclude_patterns = ["generate"]
myst_heading_anchors = 4
highlight_language = "none"
smartquotes = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "Cluster Serving"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False
html_show_search_summary = False  # a browser may not fetch them from files

_DOCS = Path(__file__).parent
_ROOT = _DOCS.parent
sys.path.insert(0, str(_ROOT))
_ELSEWHERE = {
    _DOCS / "changelog.md": _ROOT / "CHANGELOG.md",
    _DOCS / "contributing.md": _ROOT / "CONTRIBUTING.md",
    _DOCS / "understand" / "security.md": _ROOT / "SECURITY.md",
}
_IN_SITE = {source: page for page, source in _ELSEWHERE.items()} | {_ROOT / "README.md": _DOCS / "index.md"}


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    page = _DOCS / f"{name}.md"
    origin = _ELSEWHERE.get(page, page)
    text = origin.read_text(encoding="utf-8")
    text = re.sub(r"<!-- toctree\n(.*?)-->", r"```{toctree}\n\1```", text, flags=re.DOTALL)

    if "<!-- messages -->" in text:
        from docs.generate.messages import messages

        text = text.replace("<!-- messages -->", messages())

    def link(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        if not path or ":" in path:
            return found[0]
        target = Path(os.path.normpath(origin.parent / path))
        return f"]({os.path.relpath(_IN_SITE.get(target, target), page.parent)}{mark}{anchor})"

    source[0] = re.sub(r"\]\(([^)\s]+)\)", link, text)


def setup(app: Sphinx) -> None:
    """Have each page mended when it is read."""
    app.connect("source-read", _read)
