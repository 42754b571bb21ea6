"""The REST API of TensorFlow Serving: its JSON to records, and results back.

    requests.py    instances (rows) or inputs (columns) -> records
    results.py     results -> predictions, outputs, classes, numbers
    described.py   the state of a model, and what it takes and gives

https://www.tensorflow.org/tfx/serving/api_rest
"""
