"""Encrypted models of every kind are opened in memory alone, and run when that is gone."""

import gc
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.encryption import ModelCipher
from cluster_serving.node.cli import main
from cluster_serving.node.models import sealed
from cluster_serving.node.models.base import Backend, LoadOptions, ModelError, open_inputs
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.openvino import ov
from cluster_serving.node.models.sealed import model_files, opened, wait_for_secrets
from cluster_serving.node.models.secrets import Secrets

SECRETS = Secrets("correct horse", "battery staple")
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)
ROWS = np.array([[1, 2, 3]], np.float32)

Writer = Callable[[Path], None]


@pytest.fixture(scope="module")
def cipher() -> ModelCipher:
    return ModelCipher(SECRETS.secret, SECRETS.salt)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory for the temporary files of this test."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setattr(sealed, "MEMORY", str(directory))
    return directory


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    return directory


@pytest.fixture
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Python write bytecode, as by default; take away the modules and the search path that importing a user's file leaves."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    search_path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = search_path
    for name in set(sys.modules) - modules:
        if name.startswith(("_cluster_serving", "factors")):
            del sys.modules[name]


def onnx_model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_onnx(directory: Path) -> None:
    onnx.save(onnx_model(), directory / "product.onnx")


def write_onnx_with_external_data(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "unrelated.txt").write_text("text")
    onnx.save(
        onnx_model(), directory / "product.onnx", save_as_external_data=True, location="data/weights", size_threshold=0
    )


def write_openvino(directory: Path) -> None:
    ov.serialize(
        ov.Core().read_model(onnx_model().SerializeToString()), directory / "product.xml", directory / "product.bin"
    )


def write_saved_model(directory: Path) -> None:
    import tensorflow

    tf: Any = tensorflow
    module = tf.Module()
    module.weights = tf.Variable(WEIGHTS)

    def predict(x: Any) -> dict[str, Any]:
        return {"y": x @ module.weights}

    module.predict = tf.function(predict, input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    tf.saved_model.save(module, str(directory), module.predict)


def write_torch(directory: Path) -> None:
    import torch

    linear = torch.nn.Linear(3, 4, bias=False)
    linear.weight = torch.nn.Parameter(torch.from_numpy(WEIGHTS.T.copy()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is old; it is what people have
        torch.jit.save(torch.jit.script(linear), str(directory / "product.pt"))


def _keras_model() -> Any:
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, use_bias=False)])
    model.set_weights([WEIGHTS])
    return model


def write_keras(directory: Path) -> None:
    _keras_model().save(directory / "product.keras")


def write_hdf5(directory: Path) -> None:
    _keras_model().save(directory / "product.h5")


def write_python(directory: Path) -> None:
    np.save(directory / "weights.npy", WEIGHTS)
    (directory / "factors").mkdir()
    (directory / "factors" / "__init__.py").write_text("FACTOR = 1")
    source = """
        from pathlib import Path

        import numpy

        import factors


        class Model:
            inputs = [("x", "float32", (None, 3))]
            outputs = [("y", "float32", (None, 4))]

            def load(self):
                self.weights = numpy.load(Path(__file__).with_name("weights.npy"))

            def predict(self, batch):
                return {"y": batch["x"] @ self.weights * factors.FACTOR}
    """
    (directory / "product.py").write_text(dedent(source))


def seal(directory: Path, cipher: ModelCipher) -> None:
    for file in model_files(directory):
        file.write_bytes(cipher.seal(file.read_bytes()))


def load_sealed(directory: Path, secrets: Secrets = SECRETS) -> Backend:
    with opened(detect(str(directory)), secrets) as model:
        return load(model, LoadOptions())


def failure(directory: Path, secrets: Secrets = SECRETS) -> str:
    with pytest.raises(ModelError) as caught:
        load_sealed(directory, secrets)
    text = str(caught.value)
    assert "\n" not in text
    assert "correct horse" not in text
    assert str(directory) in text
    return text


# Keras's variables, while h5py writes them.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize(
    "write",
    [
        write_onnx,
        write_onnx_with_external_data,
        write_openvino,
        write_saved_model,
        write_keras,
        write_hdf5,
        write_torch,
        write_python,
    ],
)
def test_a_sealed_model_runs_after_its_files_have_gone(
    model_directory: Path, cipher: ModelCipher, temporary: Path, write: Writer
) -> None:
    write(model_directory)
    seal(model_directory, cipher)

    before = set(temporary.iterdir())  # TensorFlow leaves something there when it saves a model

    backend = load_sealed(model_directory)
    gc.collect()

    assert set(temporary.iterdir()) == before
    assert not [path for path in sys.path if path.startswith(str(temporary))]
    [spec] = backend.inputs or open_inputs(1)
    [found] = backend.run({spec.name: ROWS}).values()
    np.testing.assert_allclose(found, ROWS @ WEIGHTS)


@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize("write", [write_onnx, write_openvino, write_python])
def test_nothing_in_the_clear_is_on_the_disk_while_it_is_open(
    model_directory: Path, cipher: ModelCipher, temporary: Path, write: Writer
) -> None:
    write(model_directory)
    clear = {file.relative_to(model_directory): file.read_bytes() for file in model_files(model_directory)}
    seal(model_directory, cipher)
    before = len(list(Path("/proc/self/fd").iterdir()))

    with opened(detect(str(model_directory)), SECRETS) as model:
        load(model, LoadOptions())
        [folder] = temporary.iterdir()

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
        assert {path.relative_to(folder): path.read_bytes() for path in found} == clear
        assert all(str(path.readlink()).startswith("/proc/self/fd/") for path in found)
    assert list(temporary.iterdir()) == []
    assert all(not file.read_bytes().startswith(content) for file, content in _pairs(model_directory, clear) if content)
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def _pairs(directory: Path, clear: dict[Path, bytes]) -> Iterator[tuple[Path, bytes]]:
    return ((directory / name, content) for name, content in clear.items())


@pytest.mark.usefixtures("clean_imports")
def test_a_failure_inside_leaves_nothing_behind(model_directory: Path, cipher: ModelCipher, temporary: Path) -> None:
    (model_directory / "product.onnx").write_bytes(b"no model")
    seal(model_directory, cipher)

    assert f"{model_directory / 'product.onnx'} cannot be loaded by ONNX Runtime" in failure(model_directory)
    assert list(temporary.iterdir()) == []
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize("secrets", [Secrets("correct mule", "battery staple"), Secrets("correct horse", "staple")])
def test_another_secret_or_salt_is_one_sentence(
    model_directory: Path, cipher: ModelCipher, temporary: Path, secrets: Secrets
) -> None:
    write_onnx(model_directory)
    # Always the same bytes: one wrong key in 256 gives something that looks padded.
    (model_directory / "product.onnx").write_bytes(b"AAECAwQFBgcICQoLDA0OD1SVJsIyvOwWKOD5Ii0J4Co=")

    assert failure(model_directory, secrets) == (
        f"{model_directory / 'product.onnx'} cannot be opened: it was encrypted with another secret or salt, or it is damaged"
    )
    assert list(temporary.iterdir()) == []


def test_no_secret_opens_nothing(model_directory: Path) -> None:
    write_onnx(model_directory)

    with pytest.raises(ModelError, match="the encrypted model cannot be opened: the secret is empty"):
        load_sealed(model_directory, Secrets())


@pytest.mark.parametrize("name", ["product.xml", "product.bin"])
def test_every_file_that_makes_the_model_is_encrypted(model_directory: Path, cipher: ModelCipher, name: str) -> None:
    write_openvino(model_directory)
    clear = (model_directory / name).read_bytes()
    seal(model_directory, cipher)
    (model_directory / name).write_bytes(clear)

    assert failure(model_directory) == (
        f"{model_directory / name} is not encrypted: encrypt it with cluster-serving encrypt, or set modelEncrypted: false"
    )


def test_a_saved_model_in_the_clear_is_refused(model_directory: Path) -> None:
    (model_directory / "saved_model.pb").write_bytes(b"\x08\x01")

    assert f"{model_directory / 'saved_model.pb'} is not encrypted" in failure(model_directory)


def test_what_a_library_unpacks_stays_in_memory(
    model_directory: Path, cipher: ModelCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras unpacks an archive with a vocabulary in it."""
    import keras

    words = keras.layers.StringLookup(vocabulary=["swordfish", "trout"], output_mode="multi_hot")
    keras.Sequential([keras.Input((1,), dtype="string"), words]).save(model_directory / "words.keras")
    seal(model_directory, cipher)
    monkeypatch.undo()
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}

    with opened(detect(str(model_directory)), SECRETS) as model:
        assert kinds[tempfile.gettempdir()] == "tmpfs"
        assert model.definition.is_relative_to(tempfile.gettempdir())
        backend = load(model, LoadOptions())

    assert tempfile.gettempdir() != sealed.MEMORY
    (output,) = backend.run({backend.inputs[0].name: np.array([["trout"]], object)}).values()
    assert output.tolist() == [[0, 0, 1]]


def test_what_lies_beside_the_model_may_be_in_the_clear(model_directory: Path, cipher: ModelCipher) -> None:
    write_onnx(model_directory)
    seal(model_directory, cipher)
    (model_directory / "labels.txt").write_text("cat\ndog\n" * 30)
    (model_directory / ".git").mkdir()
    (model_directory / ".git" / "HEAD").write_text("ref")
    (model_directory / "gone.txt").symlink_to("nowhere")

    with opened(detect(str(model_directory)), SECRETS) as model:
        folder = model.definition.parent
        assert sorted(path.name for path in folder.iterdir()) == ["labels.txt", "product.onnx"]
        assert (folder / "labels.txt").readlink() == model_directory / "labels.txt"


def test_secrets_that_are_given_are_used() -> None:
    nowhere = RedisSettings(host="127.0.0.1", port=1)

    assert wait_for_secrets(nowhere, pytest.fail, SECRETS) == SECRETS


# The command.


@pytest.fixture
def secret_files(tmp_path: Path) -> list[str]:
    (tmp_path / "secret").write_text(f"{SECRETS.secret}\n")
    (tmp_path / "salt").write_text(f"{SECRETS.salt}\r\n")
    return [f"--secret-file={tmp_path / 'secret'}", f"--salt-file={tmp_path / 'salt'}"]


def encrypt(*words: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(main, ["encrypt", *map(str, words)], catch_exceptions=False, **options)


def test_a_directory_is_encrypted_with_all_below_it(
    model_directory: Path, tmp_path: Path, cipher: ModelCipher, secret_files: list[str]
) -> None:
    write_onnx_with_external_data(model_directory)
    (model_directory / ".DS_Store").touch()
    target = tmp_path / "sealed"

    result = encrypt(model_directory, target, *secret_files)

    names = ["data/weights", "product.onnx", "unrelated.txt"]
    assert result.exit_code == ExitCode.OK
    assert sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()) == names
    for name in names:
        assert cipher.open((target / name).read_bytes()) == (model_directory / name).read_bytes()
        assert f"{model_directory / name} -> {target / name}\n" in result.output
    assert f"Set modelPath to {target} and modelEncrypted to true." in result.output
    assert SECRETS.secret not in result.output


@pytest.mark.parametrize("place", ["product.sealed", "."])
def test_a_file_is_encrypted_with_secrets_of_the_environment(
    model_directory: Path, tmp_path: Path, cipher: ModelCipher, secret_files: list[str], place: str
) -> None:
    write_onnx(model_directory)
    environment = {
        "CLUSTER_SERVING_MODEL_SECRET_FILE": str(tmp_path / "secret"),
        "CLUSTER_SERVING_MODEL_SALT": SECRETS.salt,
    }

    result = encrypt(model_directory / "product.onnx", tmp_path / place, env=environment)

    written = tmp_path / ("product.onnx" if place == "." else place)
    assert result.exit_code == ExitCode.OK
    assert cipher.open(written.read_bytes()) == (model_directory / "product.onnx").read_bytes()


def test_what_is_there_is_replaced_only_by_force(
    model_directory: Path, tmp_path: Path, secret_files: list[str]
) -> None:
    write_onnx(model_directory)
    target = tmp_path / "sealed"
    words = [str(model_directory), str(target), *secret_files]
    encrypt(*words)
    first = (target / "product.onnx").read_bytes()

    refused = encrypt(*words)

    assert refused.exit_code == ExitCode.FAILED
    assert (
        refused.output == f"{target / 'product.onnx'} exists already; give another place, or replace it with --force\n"
    )
    assert (target / "product.onnx").read_bytes() == first
    assert encrypt(*words, "--force").exit_code == ExitCode.OK
    assert (target / "product.onnx").read_bytes() != first


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("model", "model/sealed", "{}/model/sealed lies in {}/model: give another place for the encrypted files"),
        ("model", "model", "{}/model lies in {}/model: give another place for the encrypted files"),
        ("temporary", "sealed", "{}/temporary holds no files"),
        (
            "model/product.onnx",
            "model",
            "{}/model/product.onnx would replace itself: give another place for the encrypted file",
        ),
        ("sealed.onnx", "twice.onnx", "{}/sealed.onnx is encrypted already"),
        ("model", "salt", "{}/salt: File exists"),
    ],
)
def test_what_cannot_be_encrypted(
    model_directory: Path, tmp_path: Path, secret_files: list[str], source: str, target: str, reason: str
) -> None:
    write_onnx(model_directory)
    encrypt(model_directory / "product.onnx", tmp_path / "sealed.onnx", *secret_files)

    result = encrypt(tmp_path / source, tmp_path / target, *secret_files, "--force")

    assert result.exit_code == ExitCode.FAILED
    assert result.output.rstrip("\n").endswith(reason.replace("{}", str(tmp_path)))


def test_without_a_secret_it_says_where_to_put_one(model_directory: Path, tmp_path: Path) -> None:
    write_onnx(model_directory)

    result = encrypt(model_directory, tmp_path / "sealed")

    assert result.exit_code == ExitCode.FAILED
    assert result.output == "the secret is missing: give --secret-file, or set CLUSTER_SERVING_MODEL_SECRET_FILE\n"
    assert not (tmp_path / "sealed").exists()


@pytest.mark.parametrize(
    ("content", "reason"), [(b"\n", "nothing was encrypted: the secret is empty"), (b"\xff", "is not text")]
)
def test_a_file_that_holds_no_secret(
    model_directory: Path, tmp_path: Path, secret_files: list[str], content: bytes, reason: str
) -> None:
    write_onnx(model_directory)
    (tmp_path / "secret").write_bytes(content)

    result = encrypt(model_directory, tmp_path / "sealed", *secret_files)

    assert result.exit_code == ExitCode.FAILED
    assert result.output.endswith(f"{reason}\n")
    assert not (tmp_path / "sealed").exists()
