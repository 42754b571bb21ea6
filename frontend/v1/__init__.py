"""REST API of TensorFlow Serving: JSON to records, and results to JSON.

    requests.py    instances (rows) or inputs (columns) -> records
    results.py     results -> predictions, outputs, classes, numbers
    described.py   the state of a model, its inputs and outputs

https://www.tensorflow.org/tfx/serving/api_rest
"""
