"""Timers as the JSON list of the original: its names, its fields in its order, milliseconds."""

from collections.abc import Iterable

import orjson

from cluster_serving.frontend.metrics.buckets import NONE
from cluster_serving.frontend.metrics.timer_row import Key
from cluster_serving.frontend.metrics.timers import Reading, Timer

_NAMES = {
    Timer.OVERALL: "zoo.serving.request.overall",
    Timer.PREDICT: "zoo.serving.request.predict",
    Timer.METRICS: "zoo.serving.request.metrics",
    Timer.FIND_MODEL: "zoo.serving.retrive.servable",
    Timer.LIST_MODELS: "zoo.serving.retrive.servables",
    Timer.MAKE_RECORDS: "zoo.serving.activity.make",
    Timer.INFERENCE: "zoo.serving.backend.inference",
    Timer.REDIS_PUT: "zoo.serving.redis.put",
    Timer.REDIS_WAIT: "zoo.serving.redis.wait",
    Timer.REDIS_GET: "zoo.serving.redis.get",
    Timer.MAKE_RESPONSE: "zoo.serving.response.handling",
}

_SHARES = {
    "_75thPercentile": 0.75,
    "_95thPercentile": 0.95,
    "_98thPercentile": 0.98,
    "_99thPercentile": 0.99,
    "_999thPercentile": 0.999,
}


def timers_json(reading: Reading, models: Iterable[Key]) -> bytes:
    """Return every timer by name. `count` and `meanRate` (calls a second) are since the start, all else of the last minutes.

    Args:
        reading: reading of the timers.
        models: names and versions of the served models, which have timers before their first request.
    """
    timers = {name: reading.timers[timer] for timer, name in _NAMES.items()}
    for name, version in {*models, *reading.models}:
        calls, runs = reading.models.get((name, version), (NONE, NONE))
        timers[f"zoo.serving.inference.{name}.{version}"] = calls
        timers[f"zoo.pure.predict.{name}.{version}"] = runs
    rows = [
        {
            "name": name,
            "count": times.count,
            "meanRate": times.count / reading.uptime_s if reading.uptime_s else 0.0,
            "min": int(1000 * times.least_s),
            "max": int(1000 * times.most_s),
            "mean": 1000 * times.mean_s,
            "median": 1000 * times.quantile_s(0.5),
            "stdDev": 1000 * times.deviation_s,
            **{field: 1000 * times.quantile_s(share) for field, share in _SHARES.items()},
        }
        for name, times in sorted(timers.items())
    ]
    return orjson.dumps(rows, option=orjson.OPT_INDENT_2)
