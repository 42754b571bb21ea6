"""Checks of the model on disk. No model is loaded."""

import shlex

from cluster_serving.client.servers.checks import Checks, Verdict
from cluster_serving.node.config.settings import PLACEHOLDER_PATH
from cluster_serving.node.doctor.job_facts import ModelFacts
from cluster_serving.node.doctor.memory import size
from cluster_serving.node.models.detect import SeveralModels

MODEL = Checks[ModelFacts]("Model")


@MODEL("CS-MODEL-NONE")
def no_model(facts: ModelFacts) -> Verdict:
    """Judge whether there is a model that can be served."""
    if facts.config.model_path in ("", PLACEHOLDER_PATH):
        return Verdict(
            "fail",
            "modelPath is not set",
            "set modelPath in config.yaml to the directory of your model",
            "cluster-serving start --model-path DIR",
        )
    if facts.error is None or isinstance(facts.error, SeveralModels) or isinstance(facts.error.__cause__, OSError):
        if facts.detected is None:
            return Verdict("ok", "the model comes by URL" if facts.error is None else "files are there")
        return Verdict("ok", f"{facts.detected.format}, {size(facts.bytes)}", evidence={"bytes": facts.bytes})
    return Verdict(
        "fail", str(facts.error), "set modelPath to the model", f"ls -l {shlex.quote(facts.config.model_path)}"
    )


@MODEL("CS-MODEL-SEVERAL")
def several(facts: ModelFacts) -> Verdict:
    """Judge whether the directory has one model alone."""
    if not isinstance(facts.error, SeveralModels):
        return Verdict("ok", "one model at most")
    return Verdict(
        "fail",
        str(facts.error),
        "keep one model in the directory, or give the path of its file",
        f"ls -l {shlex.quote(facts.config.model_path)}",
    )


@MODEL("CS-MODEL-UNREADABLE")
def unreadable(facts: ModelFacts) -> Verdict:
    """Judge whether this user can read the files."""
    if facts.error is None or not isinstance(facts.error.__cause__, OSError):
        return Verdict("ok", "the files can be read")
    return Verdict(
        "fail",
        str(facts.error),
        "let this user read the files",
        f"chmod -R u+rX {shlex.quote(facts.config.model_path)}",
    )


@MODEL("CS-MODEL-PACKAGE")
def package(facts: ModelFacts) -> Verdict:
    """Judge whether the package of the backend is installed."""
    if facts.missing is None:
        return Verdict("ok", "the backend is installed")
    name, command = facts.missing
    return Verdict("fail", f"the model needs the package {name}, which is not installed", "install it", command)


@MODEL("CS-MODEL-PRECISION")
def precision(facts: ModelFacts) -> Verdict:
    """Judge whether the CPU computes in the wanted precision."""
    wanted = facts.config.precision
    if wanted != "bf16" or facts.has_bfloat16:
        return Verdict("ok", f"precision {wanted}", evidence={"bfloat16": facts.has_bfloat16})
    return Verdict(
        "warn",
        "precision is bf16, and this CPU has no instructions for bfloat16 (avx512_bf16, amx_bf16): each operation converts to "
        "float32 and back, slower than f32 and less exact",
        "set precision to auto or f32",
        "cluster-serving start --set precision=f32",
        1,
        {"bfloat16": False},
    )
