"""Program of 0.9: host and port in order, one tensor, `query` until the result is there. Arguments: host, port."""

import sys
import time

import numpy as np
from zoo.serving.client import InputQueue, OutputQueue

input_api = InputQueue(sys.argv[1], sys.argv[2])
output_api = OutputQueue(sys.argv[1], sys.argv[2])
print(input_api.host, repr(input_api.port), input_api.name, output_api.query("a"))

input_api.enqueue("a", p=np.arange(64).reshape(1, 8, 8))
while (result := output_api.query_and_delete("a")) is None or isinstance(result, str):
    time.sleep(0.01)
print("Result is :" + str(result.shape), result.dtype)

input_api.enqueue_tensor("b", np.arange(64).reshape(1, 8, 8))
while isinstance(output_api.query("b"), str):
    time.sleep(0.01)
print(np.array_equal(output_api.query("b"), result))

print(input_api.predict(np.zeros(3)), input_api.predict({"p": np.arange(64).reshape(1, 8, 8)}).shape)
