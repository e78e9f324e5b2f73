#!/bin/sh
# What the compiler made of the kernels: per kernel and architecture, instructions in all,
# on tensor cores (HMMA, HGMMA, IMMA, QMMA, OMMA), and to local memory (registers that did
# not suffice).
#
#   kernels-cuda/sass.sh [FOLDER] [FAMILY]
#
# FOLDER holds the images; left out or empty, it is the newest build below target/ (or
# CARGO_TARGET_DIR). Needs cuobjdump: see CUOBJDUMP, CUDA_HOME, PATH, or
# `build/install-nvcc.sh`.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
folder=${1:-}
if [ -z "$folder" ]; then
  # The names have no spaces: cargo makes them.
  newest=$(ls -td "$target"/*/build/foretoken-kernels-cuda-*/out/*.sm_*.fatbin 2>/dev/null | head -1)
  [ -n "$newest" ] || { echo "error: no images below $target: build with --features cuda" >&2; exit 1; }
  folder=$(dirname "$newest")
fi

cuobjdump=
for tool in "${CUOBJDUMP:-}" "${CUDA_HOME:-}/bin/cuobjdump" "${CUDA_HOME:-}/nvidia/cu13/bin/cuobjdump" \
  "$root/.local/cuda/nvidia/cu13/bin/cuobjdump" "$(command -v cuobjdump || true)"; do
  [ -z "$cuobjdump" ] && [ -x "$tool" ] && cuobjdump=$tool
done
[ -n "$cuobjdump" ] || { echo "error: no cuobjdump found: run build/install-nvcc.sh" >&2; exit 1; }
PATH=$(dirname "$cuobjdump"):$PATH # it looks for nvdisasm there

echo "images in $folder"
printf '%-10s %-40s %8s %6s %6s %6s %6s %6s %5s %5s\n' \
  arch kernel all HMMA HGMMA IMMA QMMA OMMA LDL STL
family=${2:-*}
# shellcheck disable=SC2086 # a pattern
for image in "$folder"/$family.sm_*.fatbin; do
  [ -f "$image" ] || { echo "error: no images of '$family' in $folder" >&2; exit 1; }
  "$cuobjdump" -sass "$image" | awk -v image="$image" '
    function show() {
      if (name != "")
        printf "%-10s %-40s %8d %6d %6d %6d %6d %6d %5d %5d\n", arch, name, all,
          n["HMMA"], n["HGMMA"], n["IMMA"], n["QMMA"], n["OMMA"], n["LDL"], n["STL"]
    }
    BEGIN { arch = image; sub(/.*\.sm_/, "sm_", arch); sub(/\.fatbin$/, "", arch) }
    /Function :/ { show(); name = $3; all = 0; split("", n) }
    /^ *\/\*[0-9a-f]+\*\// {
      line = $0
      sub(/^ *\/\*[0-9a-f]+\*\/ */, "", line)
      sub(/^@!?U?P[0-9T]+ */, "", line)
      op = line
      sub(/[ .;].*/, "", op)
      all++
      n[op]++
    }
    END { show() }'
done
