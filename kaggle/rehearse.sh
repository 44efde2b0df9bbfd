#!/usr/bin/env bash
# Run the notebook as Kaggle would: folders like Kaggle's, the code from a wheel, no network.
#
#   kaggle/rehearse.sh OUT [NPZ] [WORKSPACE]
#
# OUT        folder for the executed notebook and the submission
# NPZ        folder that holds layout/ or tile/; default: the embedded sample
# WORKSPACE  a workspace with trained models, to rehearse inference alone
#
# PYTHON names the interpreter, which needs the extra "kaggle" (and Kaggle's versions, if these are to be rehearsed).
# XLARANK_SEEDS, XLARANK_COLLECTIONS, ... reach the notebook; see its first cell. Linux only: the network is cut with a
# namespace of its own.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-python3}") || { echo "error: ${PYTHON:-python3} is not there; set PYTHON to a Python" >&2; exit 1; }
case $python in /*) ;; *) python=$PWD/$python ;; esac
"$python" -c 'import ipykernel, nbconvert' 2>/dev/null ||
  { echo "error: $python lacks nbconvert or ipykernel; expected the extra kaggle; pip install -e '.[kaggle]'" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
npz=$(cd "${2:-$root/data/sample/npz}" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

mkdir -p "$place/kaggle/input/predict-ai-model-runtime/npz_all" "$place/kaggle/working"
ln -s "$npz" "$place/kaggle/input/predict-ai-model-runtime/npz_all/npz"
# A copy of the code is built: pip leaves build/ and xlarank.egg-info/ where it works.
mkdir "$place/clone"
(cd "$root" && cp -a pyproject.toml README.md LICENSE data features models pipelines xlarank "$place/clone/")
(cd "$place/clone" && "$python" -m pip wheel --quiet --no-deps --wheel-dir "$place/kaggle/input/xlarank" .)
if [ -n "${3:-}" ]; then
  cp -a "$(cd "$3" && pwd)" "$place/kaggle/input/workspace"
  export XLARANK_WORKSPACE=$place/kaggle/input/workspace
fi
cp "$root/kaggle/xlarank_submission.ipynb" "$place/kaggle/working/"

export XLARANK_INPUT=$place/kaggle/input XLARANK_WORKING=$place/kaggle/working
unset XLARANK_DATA PYTHONPATH
cd "$place/kaggle/working"
# The kernel and its client talk over the loopback device, which a new namespace has to bring up.
unshare --map-root-user --net "$python" -c '
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack("16sH14x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP
try:
    socket.create_connection(("1.1.1.1", 443), 3)
except OSError:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.exit("the network is not cut")
' -m nbconvert --to notebook --execute --ExecutePreprocessor.timeout=-1 --output executed.ipynb \
  xlarank_submission.ipynb

"$python" - executed.ipynb <<'PYTHON'
import json, sys
from pathlib import Path

for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    for output in cell.get("outputs", []):
        print("".join(output.get("text", [])), end="")
PYTHON
cp executed.ipynb submission.csv "$out/"
"$python" "$root/run.py" check-submission submission.csv --data-root "$place/kaggle/input/predict-ai-model-runtime"
