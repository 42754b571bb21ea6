#!/bin/sh
# Writes docker/requirements-*.txt anew: what each image installs, every version pinned and every file by its hashes, for Python
# 3.11 and newer. Needs uv; takes packages from the index that uv is configured for, whose address is not written down.
#   docker/lock.sh [more arguments of uv pip compile, such as --upgrade]
set -eu
cd "$(dirname "$0")/.."

lock() { # NAME SOURCE [ARGUMENT...]
  file=docker/requirements-$1.txt source=$2
  shift 2
  # PyTorch itself is left out, and what only its builds for graphics cards need: see TORCH in the Dockerfile.
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command docker/lock.sh --constraints docker/torch.txt --excludes docker/not-locked.txt \
    --no-emit-package torch "$@" "$source" -o "$file"
}

# `all` comes first, and the others keep to it: one version of everything, so that extras can be put together.
lock all pyproject.toml --extra all "$@"
for extra in node onnx openvino tensorflow torch bigdl otel tensorboard; do
  lock "$extra" pyproject.toml --extra "$extra" --extra fetch --constraints docker/requirements-all.txt
done
lock http pyproject.toml --extra http --constraints docker/requirements-all.txt
python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
  lock build - "$@"
