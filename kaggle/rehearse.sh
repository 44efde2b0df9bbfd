#!/usr/bin/env bash
# Run the notebook as Kaggle would: folders like Kaggle's, the code from a wheel, no network.
#
#   kaggle/rehearse.sh OUT [NPZ COLLECTION]
#
# OUT         folder for the executed notebook and the submission
# NPZ         folder that holds layout/ and tile/; default: two collections of the embedded sample
# COLLECTION  collection that the notebook shows, such as layout:xla:random
#
# PYTHON names the interpreter, which needs the extra "kaggle" (and Kaggle's versions, if these are to be rehearsed). The
# first cell is replaced by paths of the rehearsal. Linux only: the network is cut with a namespace of its own.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-python3}") || { echo "error: ${PYTHON:-python3} is not there; set PYTHON to a Python" >&2; exit 1; }
case $python in /*) ;; *) python=$PWD/$python ;; esac
"$python" -c 'import ipykernel, nbconvert' 2>/dev/null ||
  { echo "error: $python lacks nbconvert or ipykernel; expected the extra kaggle; pip install '.[kaggle]'" >&2; exit 1; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
npz=$(cd "${2:-$root/data/sample/npz}" && pwd)
name=embedded-sample configs='{"layout:cpu:random": 1000, "tile:cpu": 100}'
if [ -n "${2:-}" ]; then name=predict-ai-model-runtime configs='{"layout:*": 1000, "tile:*": 100}'; fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

mkdir -p "$place/kaggle/input/$name/npz_all" "$place/kaggle/working"
ln -s "$npz" "$place/kaggle/input/$name/npz_all/npz"
# A copy of the code is built: pip leaves build/ and xlarank.egg-info/ where it works.
mkdir "$place/clone"
(cd "$root" && cp -a pyproject.toml README.md LICENSE data features models pipelines xlarank "$place/clone/")
(cd "$place/clone" && "$python" -m pip wheel --quiet --no-deps --wheel-dir "$place/kaggle/input/xlarank" .)
"$python" -m pip install --quiet --no-index --no-deps --target "$place/code" "$place"/kaggle/input/xlarank/*.whl

# The first cell of the notebook is replaced here, and restored in the executed one.
first_cell() { "$python" - "$@" <<'PYTHON'
import json, sys
from pathlib import Path

source, target, text = sys.argv[1:]
notebook = json.loads(Path(source).read_text(encoding="utf-8"))
cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
cell["source"] = text.splitlines(keepends=True)
Path(target).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
PYTHON
}
notebook=$root/kaggle/xlarank_submission.ipynb
first_cell "$notebook" "$place/kaggle/working/rehearsal.ipynb" "from pathlib import Path

INPUT = Path('$place/kaggle/input')
WORK = Path('$place/kaggle/working/xlarank')
EARLIER = INPUT / 'earlier/xlarank'
OTHER = INPUT / 'graph-network/submission.csv'
COLLECTION = '${3:-layout:cpu:random}'
MAX_CONFIGS = $configs
RETRAIN = False"

export PYTHONPATH=$place/code
unset XLARANK_DATA
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
' -m nbconvert --to notebook --execute --ExecutePreprocessor.timeout=-1 --output executed.ipynb rehearsal.ipynb

"$python" - executed.ipynb <<'PYTHON'
import json, sys
from pathlib import Path

for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    for output in cell.get("outputs", []):
        print("".join(output.get("text", [])), end="")
PYTHON
# Outputs name the folders as on Kaggle.
sed -i "s#$place/kaggle#/kaggle#g" executed.ipynb
first_cell executed.ipynb "$out/executed.ipynb" "$("$python" -c '
import json, sys
cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
print("".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"]), end="")
' "$notebook")"
cp submission.csv "$out/"
