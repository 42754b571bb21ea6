#!/bin/sh
# Installs what the backends of a node need into /opt/cluster-serving, from the locks beside this script.
#   install-extras.sh EXTRA[,EXTRA...] [TORCH]     TORCH: a line for pip that takes the place of torch.txt
set -eu
cd "$(dirname "$0")"
extras=$1 torch=${2:-}
python=/opt/cluster-serving/bin/python

locks=
for extra in $(echo "$extras" | tr , ' '); do
  lock=requirements-$extra.txt
  if [ ! -f "$lock" ]; then
    echo "EXTRAS: there is no extra $extra; there are node, onnx, openvino, tensorflow, torch, bigdl, all, http, otel, tensorboard" >&2
    exit 2
  fi
  locks="$locks -r $lock"
done
# shellcheck disable=SC2086 # file names without spaces
python3 -m pip --python "$python" install --require-hashes --only-binary :all: $locks

case ",$extras," in *,torch,* | *,bigdl,* | *,all,*) ;; *) exit 0 ;; esac
if [ -n "$torch" ]; then echo "$torch" >torch.txt; fi
python3 -m pip --python "$python" install --no-deps --only-binary :all: -r torch.txt
"$python" - <<'PYTHON'
import importlib.util, pathlib, sys

version = pathlib.Path(importlib.util.find_spec("torch").origin).with_name("version.py").read_text()
if "cuda: Optional[str] = None" not in version:
    sys.exit(
        "This PyTorch is a build for graphics cards, of several gigabytes. Give pip a place that has one for CPUs, by "
        "--build-arg PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS; and which one it is, if pip still takes the other, by "
        '--build-arg TORCH="torch==2.13.0+cpu".'
    )
PYTHON
