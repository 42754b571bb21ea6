"""The servers of `bench.peers`: how each is started for a model, what it is asked and how its answer is read."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.encoder import TOKENS
from bench.fitted import records_file, texts
from bench.graph import CLASSES
from bench.http_peers import MOSEC, RAY
from bench.http_servers import Numbers, Server, our_stack, process
from bench.peers.environments import ENVIRONMENTS
from bench.peers.image import Model, Task
from bench.records import jpeg

_JOB = "images"
_V2_PATH = f"/v2/models/{_JOB}/infer"
_JSON = {"Content-Type": "application/json"}
_PYTRITON = ("image", "BYTES", [1, 1])  # as image_triton.py declares it


class Content(NamedTuple):
    """Record that a request carries.

    Attributes:
        data: a JPEG file, or the bytes of a text's tokens.
        tensor: name, datatype and shape in the Open Inference Protocol.
        type: of a request with nothing else in its body.
    """

    data: bytes
    tensor: tuple[str, str, list[int]]
    type: str


_IMAGE = Content(jpeg(0), ("image", "BYTES", [1, 1]), "image/jpeg")
_TEXT = Content(texts(1, 3)[0].tobytes(), ("tokens", "INT64", [1, TOKENS]), "application/octet-stream")


def content_for(model: Path) -> Content:
    """Return the record that is sent to this ONNX file."""
    return _TEXT if model.stem == "encoder" else _IMAGE


class Arrangement(NamedTuple):
    """Use of the machine by a server: copies of the model, threads of each, records in one run at most."""

    processes: int
    threads: int
    batch: int

    def __str__(self) -> str:
        return f"{self.processes}x{self.threads}x{self.batch}"

    @classmethod
    def parse(cls, text: str) -> "Arrangement":
        """Of `2x1x8`.

        Raises:
            ValueError: it is something else.
        """
        processes, threads, batch = (int(number) for number in text.split("x"))
        return cls(processes, threads, batch)


@dataclass(frozen=True)
class Kind:
    """A server, whatever model and arrangement it is started with.

    Attributes:
        told: how a record goes there and the logits come back, for people.
        path: as of a `Server`.
        request: headers and body for a content.
        logits: the floats in the body of its answer.
        running: does a task while the block lasts.
        tolerance: as of a `Server`.
    """

    told: str
    path: str
    request: Callable[[Content], tuple[Mapping[str, str], bytes]]
    logits: Callable[[bytes], Numbers]
    running: Callable[[Task], AbstractContextManager[None]]
    tolerance: float = Server.tolerance

    def server(self, name: str, model: Path, arrangement: Arrangement) -> Server:
        """It with this ONNX file."""

        def running(port: int) -> AbstractContextManager[None]:
            return self.running(Task(port, str(model), *arrangement))

        headers, body = self.request(content_for(model))
        return Server(name, self.path, body, self.logits, running, headers, _expected(model), self.tolerance)


@cache
def _expected(model: Path) -> Numbers:
    logits: Numbers = Model(str(model), threads=1).run([content_for(model).data])[0]
    return logits


def _ours(engine: str, precision: str = "f32") -> Kind:
    running = partial(_our_stack, engine, precision)
    return Kind(
        "binary in, binary out (/v2)",
        _V2_PATH,
        _with_own_tensor,
        _last_floats,
        running,
    )


def _with_own_tensor(content: Content) -> tuple[Mapping[str, str], bytes]:
    return _binary(content.data, *content.tensor)


def _with_pytritons_tensor(content: Content) -> tuple[Mapping[str, str], bytes]:
    return _binary(content.data, *_PYTRITON)


def _binary(data: bytes, name: str, datatype: str, shape: list[int]) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of the Open Inference Protocol with its binary extension."""
    if datatype == "BYTES":
        data = len(data).to_bytes(4, "little") + data
    tensor = {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}, head + data


def _our_stack(engine: str, precision: str, task: Task) -> AbstractContextManager[None]:
    model = Path(task.model)
    proven = precision == "auto"
    return our_stack(
        task.port,
        task.port + 1,
        _JOB,
        model.with_name(f"{model.stem}-home") if proven else None,
        calibrationData=str(records_file(model)) if proven else None,
        modelPath=task.model,
        engine=engine,
        precision=precision,
        modelParallelism=task.processes,
        threadPerModel=task.threads,
        batchSize=task.batch,
    )


def _peer(name: str, settings: Mapping[str, str], task: Task) -> AbstractContextManager[None]:
    """One of the others, in its environment; `{port}` in a setting is replaced."""
    environment = {key: value.format(port=task.port) for key, value in settings.items()}
    command = [str(ENVIRONMENTS[name].python), "-m", f"bench.peers.image_{name}"]
    return process(command, environment | task.environment)


def _raw(name: str, path: str, settings: Mapping[str, str]) -> Kind:
    def request(content: Content) -> tuple[Mapping[str, str], bytes]:
        return {"Content-Type": content.type}, content.data

    return Kind("raw in, raw out", path, request, _last_floats, partial(_peer, name, settings))


def _base64(name: str, told: str, path: str, asked: Callable[[str], Any], logits: Callable[[bytes], Numbers]) -> Kind:
    def request(content: Content) -> tuple[Mapping[str, str], bytes]:
        return _JSON, json.dumps(asked(base64.b64encode(content.data).decode())).encode()

    return Kind(told, path, request, logits, partial(_peer, name, {}))


def _last_floats(answer: bytes) -> Numbers:
    """Of an answer that is them, or ends with them."""
    return np.frombuffer(answer[-4 * CLASSES :], np.float32)


def _text_floats(text: str) -> Numbers:
    return np.frombuffer(base64.b64decode(text), np.float32)


def _v2_text(text: str) -> Any:
    tensor = {"name": "image", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return {"inputs": [tensor | {"parameters": {"content_type": "base64"}}]}


KINDS = {
    "ours": _ours("native"),
    "ours-openvino": _ours("openvino"),
    "ours-bf16": replace(_ours("openvino", "bf16"), tolerance=0.05),
    "ours-auto": replace(_ours("auto", "auto"), tolerance=0.1),
    # Its default is to answer 408 after 3 s.
    "mosec": _raw("mosec", "/inference", MOSEC | {"MOSEC_TIMEOUT": "60000"}),
    "litserve": _base64("litserve", "base64 in, raw out", "/predict", lambda text: {"image": text}, _last_floats),
    "ray": _raw("ray", "/", RAY),
    "mlserver": _base64(
        "mlserver",
        "base64 in, base64 out (/v2)",
        _V2_PATH,
        _v2_text,
        lambda answer: _text_floats(json.loads(answer)["outputs"][0]["data"][0]),
    ),
    "bentoml": _base64(
        "bentoml",
        "base64 in, base64 out",
        "/predict",
        lambda text: {"images": [text]},
        lambda answer: _text_floats(json.loads(answer)[0]),
    ),
    "triton": replace(_ours("native"), request=_with_pytritons_tensor, running=partial(_peer, "triton", {})),
}
"""By name, in the order of the table. All but three of ours run the model in ONNX Runtime, all but two in float32."""
