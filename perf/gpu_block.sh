#!/bin/sh
# Measure one block on a GPU, in five minutes at most, and leave a table and its JSON:
#
#     perf/gpu_block.sh BLOCK FOLDER [SECONDS]
#
# BLOCK is 1 (correctness and limits), 2 (scoring, beside lm-evaluation-harness) or 3 (generating).
# WHEELS=DIR installs the wheels of a folder beside Python first, for a machine without a network. PYTHON=python3 and
# MODELS=smollm2-135m,llama-3.2-1b,qwen2.5-7b are others where they are set; TOKENIZER=DIR is one of your own.
set -eu
block=$1 out=$2 seconds=${3:-270}
python=${PYTHON:-python3}
models=${MODELS:-smollm2-135m,llama-3.2-1b,qwen2.5-7b}
cd "$(dirname "$0")/.."
mkdir -p "$out"
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if [ -n "${WHEELS:-}" ]; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$WHEELS"/*.whl
fi
export PYTHONPATH="$PWD/harness:$PWD:$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
parts() {
    "$python" -m perf accelerator --device cuda --models "$models" ${TOKENIZER:+--tokenizer "$TOKENIZER"} \
        --budget-seconds "$1" --json "$out/block-$block.json" --markdown "$out/block-$block.md" $2
}
case $block in
    1)
        parts "$((seconds / 3))" '--part limits'
        TESTS_DEVICE=cuda timeout "$((seconds * 2 / 3))" "$python" -m pytest -q -n 6 -p no:cacheprovider \
            tests/engines/transformers >"$out/tests.txt" 2>&1 || true
        tail -n 15 "$out/tests.txt"
        ;;
    2) parts "$seconds" '--part score' ;;
    3) parts "$seconds" '--part generate' ;;
    *)
        echo "block $block: there are 1, 2 and 3" >&2
        exit 2
        ;;
esac
