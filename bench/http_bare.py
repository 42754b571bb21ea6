"""The bare Sanic handler: parses the JSON that the frontend parses and answers JSON of the same shape, without any serving.

Run as a program, with a port, it is the server: one process, uvloop, no access log, as the frontend's one worker.
"""

import sys

import orjson
from sanic import HTTPResponse, Request, Sanic, raw

app = Sanic("bare", configure_logging=False)
app.config.AUTO_EXTEND = False  # as in the frontend
_VALUE = orjson.dumps({"data": [number / 7 for number in range(10)], "shape": [10]}).decode()
_PREDICTION = orjson.dumps({"value": _VALUE}).decode()


@app.post("/predict")
async def predict(request: Request) -> HTTPResponse:
    """Return a canned prediction for each instance."""
    instances = orjson.loads(request.body)["instances"]
    answer = orjson.dumps({"predictions": [_PREDICTION for _ in instances]})
    return raw(answer, content_type="application/json")


if __name__ == "__main__":
    app.run("127.0.0.1", int(sys.argv[1]), single_process=True, access_log=False, motd=False)
