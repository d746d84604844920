#!/bin/sh
# Makes .venv with rlkit and all it needs. Called by the Makefile; asks nothing and needs only PyPI.
set -eu
cd "$(dirname "$0")"

say() { printf '\033[1m%s\033[0m\n' "$*"; }
started=$(date +%s)

gpu=no
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then gpu=yes; fi

# The CPU build of torch may be at hand for 3.11 alone, so a machine without a GPU tries that first.
if [ $gpu = yes ]; then candidates="python3.12 python3.11"; else candidates="python3.11 python3.12"; fi

fits() { # A version manager's shim may exist and fail: run it, and ask for what .venv needs.
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-} $candidates python3 python; do
        if fits "$name"; then echo "$name"; return; fi
    done
    for minor in 3.11 3.12; do # pyenv keeps versions that its shims do not offer
        for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/$minor.*/bin/python; do
            if [ -x "$path" ] && fits "$path"; then echo "$path"; return; fi
        done
    done
}

# uv does not read pip's configuration: where that names other places to look, pip is the one that finds them.
pip_is_configured() {
    if [ -n "${PIP_INDEX_URL:-}${PIP_EXTRA_INDEX_URL:-}${PIP_FIND_LINKS:-}" ]; then return 0; fi
    "$1" -m pip config list 2>/dev/null | grep -Eq 'index-url|find-links'
}

python=$(find_python)
uv=no
if command -v uv >/dev/null 2>&1; then
    if [ -z "$python" ] || ! pip_is_configured "$python"; then uv=yes; fi
fi
if [ -z "$python" ] && [ $uv = no ]; then
    echo "No Python 3.11 or 3.12 with venv was found. Install one (Debian, Ubuntu: apt install python3.11-venv;" >&2
    echo "macOS: brew install python@3.11; any: https://docs.astral.sh/uv), or name it: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi

if fits .venv/bin/python; then
    say "Updating .venv"
else
    say "Setting up .venv with ${python:-uv's Python 3.11} (once; 1-7 minutes)"
    if [ $uv = yes ]; then uv venv --clear --seed --python "${python:-3.11}" .venv; else "$python" -m venv --clear .venv; fi
fi
if [ $uv = yes ]; then install="uv pip install --python .venv/bin/python"; else install=".venv/bin/python -m pip install"; fi

# Without a GPU: the CPU build of torch, from PyTorch's own index where that answers at once.
reachable() {
    .venv/bin/python - "$1" >/dev/null 2>&1 <<'PY'
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="HEAD"), timeout=3)
PY
}
if [ $gpu = no ]; then
    install="$install -c constraints-cpu.txt"
    cpu_index=https://download.pytorch.org/whl/cpu
    if [ "$(uname)" = Linux ] && reachable $cpu_index/torch/; then
        if [ $uv = yes ]; then install="$install --torch-backend cpu"; else install="$install --extra-index-url $cpu_index"; fi
    fi
fi

say "Installing rlkit and the packages it needs, 2.8 GB in all"
PIP_DISABLE_PIP_VERSION_CHECK=1 sh setup-progress.sh .venv $install -e '.[test,smollm2,docs]'
say "Ready after $(($(date +%s) - started)) s"
