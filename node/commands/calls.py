"""Calls of a model to paste: curl and Python with the names, dtypes and shapes of its inputs."""

import base64
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any
from urllib.parse import quote

import numpy as np

from cluster_serving.client.keys import DEFAULT_JOB
from cluster_serving.client.redis_settings import DEFAULT_PORT, RedisSettings
from cluster_serving.client.tensor_spec import TensorSpec

_WIDTH = 78
_FREE = 8  # size of a free dimension
_FREE_PIXELS = 224  # height and width of an image for a model that takes any
_FEW_PIXELS = 8  # and for a model that takes one size: the node resizes
_PART = 60  # characters of base64 in a line of Python
_MOST_WRITTEN = 24  # numbers that are written one by one
_ITEM = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|[^"])+?(?:(?<=[,":])[ ]|$)""")  # strings whole, up to a place to break


@dataclass(frozen=True)
class _Value:
    """Example of an input.

    Attributes:
        json: the value as JSON. Empty: too long to be written.
        lists: Python expression of the same lists.
        python: Python expression for the client.
    """

    json: str
    lists: str
    python: str


def curl(url: str, job: str, values: Sequence[tuple[str, _Value]], *, whole: bool, keyed: bool = False) -> str:
    """Return a call of curl, in lines of at most 78 columns where that is possible.

    Args:
        url: URL of the frontend.
        job: name of the job.
        values: name of each input and its example.
        whole: whether a record is a call of the model by itself.
        keyed: whether the call has an API key, which the variable API_KEY of the shell holds.
    """
    address = shlex.quote(f"{url}/v1/models/{quote(job, safe='')}:predict")
    address += ' \\\n  -H "X-API-Key: $API_KEY"' if keyed else ""
    opening, closing = ('{"inputs": ', "}") if whole else ('{"instances": [', "]}")
    if all(value.json for _, value in values):
        fields = ", ".join(f"{json.dumps(name)}: {value.json}" for name, value in values)
        parts = _folded(f"{opening}{{{fields}}}{closing}", _WIDTH - 3)
        lines = [part[at : at + _WIDTH - 3] for part in parts for at in range(0, len(part), _WIDTH - 3)]
        body = "\\\n".join(map(_quoted, lines))
        return f"curl {address} -d \\\n{body}"
    fields = ", ".join(f"{_literal(name)}: {value.lists}" for name, value in values)
    program = "\n".join(_folded(f"print(json.dumps({opening}{{{fields}}}{closing}))", _WIDTH))
    return f"python3 -c {_quoted(f'import json{chr(10)}{program}')} |\n  curl {address} -d @-"


def python(redis: RedisSettings, job: str, values: Sequence[tuple[str, _Value]]) -> str:
    """Return a program for the client of Python, in lines of at most 78 columns where that is possible.

    Args:
        redis: address of Redis. A password is taken from the environment.
        job: name of the job.
        values: name of each input and its example.
    """
    if redis.is_local_default and not redis.db:
        settings = [f"port={redis.port}"] if redis.port != DEFAULT_PORT else []
    else:
        settings = [f"url={_literal(redis.describe())}"]
    settings += [f"name={_literal(job)}"] if job != DEFAULT_JOB else []
    settings += [f"username={_literal(redis.username)}"] if redis.username else []
    settings += ['password=os.environ["CLUSTER_SERVING_REDIS_PASSWORD"]'] if redis.password else []
    settings += [f"ssl_ca_certs={_literal(redis.ca_file)}"] if redis.ca_file else []
    fields = ", ".join(f"{_literal(name)}: {value.python}" for name, value in values)
    call = "\n    ".join(_folded(f"    print(queue.predict({{{fields}}}))", _WIDTH - 4))
    imports = ["import os\n"] if redis.password else []
    imports += ["import numpy as np\n"] if "np." in fields else []
    return (
        f"{''.join(imports)}from cluster_serving.client import InputQueue\n\n"
        f"with InputQueue({', '.join(settings)}) as queue:\n{call}"
    )


def example(spec: TensorSpec) -> _Value | None:
    """Return an example of an input, or None for an input that JSON cannot hold."""
    if spec.dtype == "map":
        return None
    if spec.is_nested:
        dtype = spec.dtype.removeprefix("sequence(").removesuffix(")")
        one = TensorSpec("", dtype, (2,), None)
        inner = _text((2,)) if one.is_text else _numbers(dtype, (2,))
        return _Value(f"[{inner.json}]", f"[{inner.lists}]", f'{{"sequence": [{inner.python}]}}')
    if takes_image(spec):
        return _image(spec)
    if spec.shape is None:
        shape: tuple[int, ...] = (_FREE,)
    else:
        at_front = spec.batch_axis is None
        row = enumerate(spec.row_shape or ())
        shape = tuple((1 if at_front and not at else _FREE) if dim is None else dim for at, dim in row)
    return _text(shape) if spec.is_text else _numbers(spec.dtype, shape)


def takes_image(spec: TensorSpec) -> bool:
    """Return whether images are the likely records: four dimensions, one of them channels, or an unknown shape of floats."""
    from cluster_serving.node.processing.image import ImageFit

    if not spec.is_numeric or (spec.shape is None and np.dtype(spec.dtype).kind != "f"):
        return False
    if spec.shape is not None:
        sizes = sorted(inf if size is None else size for size in spec.shape[1:])
        if len(sizes) != 3 or spec.batch_axis not in (0, None) or sizes[1] < _FEW_PIXELS:
            return False
    try:
        ImageFit(spec)
    except ValueError:
        return False
    return True


def _image(spec: TensorSpec) -> _Value:
    import cv2

    free = spec.shape is None or None in (spec.row_shape or ())
    side = _FREE_PIXELS if free else _FEW_PIXELS
    # A white image of one bit a pixel is the shortest: 99 bytes for 224 x 224, and 498 with the defaults.
    short = [cv2.IMWRITE_PNG_COMPRESSION, 9, cv2.IMWRITE_PNG_BILEVEL, 1]
    text = base64.b64encode(cv2.imencode(".png", np.full((side, side), 255, np.uint8), short)[1].tobytes()).decode()
    parts = " ".join(json.dumps(text[at : at + _PART]) for at in range(0, len(text), _PART))
    return _Value(json.dumps(text), parts, f'{{"b64": {parts}}}')


def _numbers(dtype: str, shape: tuple[int, ...]) -> _Value:
    kind = np.dtype(dtype).kind
    value: Any = {"f": 0.5, "b": True}.get(kind, 1)
    lists = repr(value)
    for size in reversed(shape):
        lists = f"[{lists}]" if size == 1 else f"[{lists}] * {size}"
    if prod(shape) > _MOST_WRITTEN:
        return _Value("", lists, f'np.full({shape}, {value}, "{dtype}")')
    written = np.full(shape, value).tolist()
    return _Value(json.dumps(written), lists, f'np.array({written}, "{dtype}")')


def _text(shape: tuple[int, ...]) -> _Value:
    literal = json.dumps(np.full(shape, "text").tolist())
    return _Value(literal, literal, literal if shape else f'{{"string": {literal}}}')


def _literal(text: str) -> str:
    """Return a text as Python, which has no pairs of surrogates for one character, as JSON has."""
    return json.dumps(text, ensure_ascii=False)


def _quoted(text: str) -> str:
    """Return a word for a shell, in quotes even where the shell needs none."""
    return shlex.quote(text) if "'" in text else f"'{text}'"


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a text in JSON or Python, broken after commas and strings, but not within them, where possible."""
    lines = [""]
    for part in _ITEM.findall(text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]
