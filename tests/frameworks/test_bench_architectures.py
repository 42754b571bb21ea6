from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from bench.architectures import save_mobilenetv2, save_resnet50
from bench.encoder import save_encoder
from bench.fitted import texts
from bench.records import jpeg, pixels

Save = Callable[[Path], None]


@pytest.mark.parametrize(
    ("save", "parameters"),
    [(save_mobilenetv2, 3_504_872), (save_resnet50, 25_557_032)],
    ids=["mobilenetv2", "resnet50"],
)
def test_a_network_has_the_parameters_of_its_paper_and_tells_pictures_apart(
    tmp_path: Path, save: Save, parameters: int
) -> None:
    """The papers count a batch norm after each convolution, with two numbers a channel, where a folded one has a bias."""
    save(tmp_path)
    (file,) = tmp_path.iterdir()

    model = onnx.load(str(file))
    weights = [each for each in model.graph.initializer if each.name not in ("least", "most")]
    biases = [each for each in weights if each.name.startswith("bias")]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1  # more of them would spin beside other tests
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    logits = np.asarray(session.run(None, {"image": np.stack([pixels(jpeg(0)), pixels(jpeg(1))])})[0])

    onnx.checker.check_model(model)
    assert sum(int(np.prod(each.dims)) for each in (*weights, *biases)) == parameters
    assert logits.shape == (2, 1000)
    assert np.isfinite(logits).all()
    assert len(set(np.argmax(logits, axis=1))) == 2


def test_the_encoder_has_the_parameters_of_bert_small_and_tells_texts_apart(tmp_path: Path) -> None:
    """BERT-small has 512 places, two kinds of segments and a pooler besides, and no classifier."""
    save_encoder(tmp_path)
    file = tmp_path / "encoder.onnx"

    model = onnx.load(str(file))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    logits = np.asarray(session.run(None, {"tokens": texts(2, 1)[0]})[0])

    onnx.checker.check_model(model)
    weights = [each for each in model.graph.initializer if each.dims and not each.name.startswith("classes")]
    missing = (512 - 64) * 512 + 2 * 512 + 512 * 512 + 512
    assert (
        sum(int(np.prod(each.dims)) for each in weights if each.data_type == onnx.TensorProto.FLOAT) + missing
        == 28_763_648
    )
    assert logits.shape == (2, 1000)
    assert np.isfinite(logits).all()
    assert not np.allclose(logits[0], logits[1], atol=0.1)
