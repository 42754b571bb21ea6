"""Program of 0.10 and later: images by base64, results by uri and all at once. Arguments: host, port, job, folder of images."""

import argparse
import base64
import time
from pathlib import Path
from typing import Any

import numpy as np
from zoo.serving.client import InputQueue, OutputQueue

parser = argparse.ArgumentParser()
parser.add_argument("host")
parser.add_argument("port")
parser.add_argument("job")
parser.add_argument("-i", "--image_path", default="test_image")
options = parser.parse_args()

input_api = InputQueue(host=options.host, port=options.port, name=options.job)
output_api = OutputQueue(host=options.host, port=options.port, name=options.job)
output_api.dequeue()

names = [file.stem for file in sorted(Path(options.image_path).iterdir())]
for file in sorted(Path(options.image_path).iterdir()):
    text = base64.b64encode(file.read_bytes()).decode("utf-8")
    input_api.enqueue(file.stem, t={"b64": text})

while isinstance(output_api.query(names[0]), str):
    time.sleep(0.01)
first: Any = output_api.query(names[0])
print(names[0], "prediction layer shape: ", first.shape)
print("the class index of prediction of", names[0], "image result: ", np.argmax(first))

found: dict[str, Any] = {}
while len(found) < len(names):
    found.update(output_api.dequeue())
for uri in sorted(found):
    print(uri, "prediction layer shape: ", found[uri].shape)
    print("the class index of prediction of", uri, "image result: ", np.argmax(found[uri]))
