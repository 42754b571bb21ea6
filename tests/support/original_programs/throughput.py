"""Load generator of the original: processes enqueue, and results are counted by redis-py. Arguments: host, port, job, records."""

import sys
import time
from multiprocessing import Process
from typing import Any

import numpy as np
from bigdl.serving.client import RESULT_PREFIX, InputQueue, OutputQueue

HOST, PORT, JOB, RECORDS = sys.argv[1:]
PROCESSES = 2


def enqueue(first: int) -> None:
    """Enqueue the records of one process."""
    queue = InputQueue(host=HOST, port=PORT, name=JOB)
    for number in range(first, int(RECORDS), PROCESSES):
        queue.enqueue(f"my-img-{number}", t=np.full((1, 8, 8), number % 16))


if __name__ == "__main__":
    print("Entering initial dequeue")
    output = OutputQueue(host=HOST, port=PORT, name=JOB)
    database: Any = output.db
    output.dequeue()
    processes = [Process(target=enqueue, args=(first,)) for first in range(PROCESSES)]
    for process in processes:
        process.start()
    received = invalid = 0
    while received < int(RECORDS):
        for key in database.keys(RESULT_PREFIX + JOB + ":*"):
            value = database.hgetall(key)[b"value"].decode("utf-8")
            received += 1
            invalid += value == "NaN" or np.shape(output.get_ndarray_from_b64(value)) != (10,)
            database.delete(key)
        time.sleep(0.001)
    for process in processes:
        process.join()
    print(f"Received {received} results, including {invalid} invalid results")
