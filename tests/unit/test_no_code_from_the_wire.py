"""Nothing that runs code which its input brings is used where records and results are read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("client", "node", "frontend", "swarm")
# Models are code, and the operator chooses them: these read their files. SECURITY.md names what each of them allows.
MODELS = (ROOT / "node" / "models", ROOT / "node" / "user_code.py", ROOT / "node" / "quickstart")

MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "codeop"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
# Of a module: what it has that runs code, unless a keyword says otherwise.
ATTRIBUTES = {
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("torch", "load"),
    ("pa", "deserialize"),
    ("os", "system"),
    ("os", "popen"),
}


def sources() -> Iterator[Path]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            if not any(path == model or model in path.parents for model in MODELS):
                yield path


def faults(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (f"import {alias.name}" for alias in names if alias.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield f"from {module} import"
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
                yield f"{name}()"
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in ATTRIBUTES:
                yield f"{module}.{name}"
            case ast.keyword(arg="allow_pickle", value=value) if not _is_false(value):
                yield "allow_pickle"
            case ast.keyword(arg="shell", value=value) if not _is_false(value):
                yield "shell"
            case ast.Constant(value=str(name)) if name in MODULES - {"code"}:
                yield f"the name {name}"
            case _:
                pass


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


@pytest.mark.parametrize("path", [*sources()], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_runs_what_it_reads(path: Path) -> None:
    found = [*faults(ast.parse(path.read_text(encoding="utf-8")))]

    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import os, marshal as m",
        "from dill.source import x",
        "eval(text)",
        "importlib.import_module('pickle')",
        "yaml.load(text)",
        "np.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=allowed)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_check_sees(text: str) -> None:
    assert [*faults(ast.parse(text))]
