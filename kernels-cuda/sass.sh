#!/bin/sh
# What the compiler made of the kernels: per kernel and architecture, instructions in all,
# on tensor cores (HMMA, HGMMA, IMMA, QMMA, OMMA), and to local memory (LDL, STL: registers
# that did not suffice); then the same per architecture and family. Fails when a hot kernel
# uses local memory: one of those that a token's time goes to.
#
#   kernels-cuda/sass.sh [FOLDER] [FAMILY]
#
# With SUMMARY=1 the lines of the kernels are left out, but for hot ones that spill.
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

# Names of hot kernels.
hot='^(linear_step_|linear_wgmma_|attention_(step|prefill|join)|gated_delta)'

table=$(mktemp)
trap 'rm -f "$table"' EXIT
family=${2:-*}
# shellcheck disable=SC2086 # a pattern
for image in "$folder"/$family.sm_*.fatbin; do
  [ -f "$image" ] || { echo "error: no images of '$family' in $folder" >&2; exit 1; }
  "$cuobjdump" -sass "$image" | awk -v image="$image" '
    function show() {
      if (name != "")
        print arch, family, name, all, n["HMMA"] + 0, n["HGMMA"] + 0, n["IMMA"] + 0,
          n["QMMA"] + 0, n["OMMA"] + 0, n["LDL"] + 0, n["STL"] + 0
    }
    BEGIN {
      arch = image; sub(/.*\.sm_/, "sm_", arch); sub(/\.fatbin$/, "", arch)
      family = image; sub(/.*\//, "", family); sub(/\.sm_.*/, "", family)
    }
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
    END { show() }' >>"$table"
done

echo "images in $folder"
awk -v hot="$hot" -v summary="${SUMMARY:-}" '
  function line(format, arch, name, a) {
    printf format, arch, name, a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]
  }
  BEGIN {
    words = "%-8s %-40s %9s %6s %6s %6s %6s %6s %6s %6s"
    row = "%-8s %-40s %9d %6d %6d %6d %6d %6d %6d %6d"
    head = sprintf(words, "arch", "kernel", "all", "HMMA", "HGMMA", "IMMA", "QMMA", "OMMA", "LDL", "STL")
    if (!summary) print head
  }
  {
    if (!(($1, $2) in seen)) { seen[$1, $2] = 1; key[++keys] = $1 SUBSEP $2 }
    for (i = 4; i <= NF; i++) { sum[$1, $2, i] += $i; one[i] = $i }
    kernels[$1, $2]++
    if (!summary) line(row "\n", $1, $3, one)
    if ($3 ~ hot && $10 + $11 > 0) { bad[++spilling] = sprintf("%-8s %-40s %6d LDL %6d STL", $1, $3, $10, $11) }
    if ($3 ~ hot) hots++
  }
  END {
    sub(/kernel/, "family", head)
    print (summary ? "" : "\n") head " kernels"
    for (k = 1; k <= keys; k++) {
      split(key[k], part, SUBSEP)
      for (i = 4; i <= 11; i++) one[i] = sum[part[1], part[2], i]
      line(row, part[1], part[2], one)
      printf " %7d\n", kernels[part[1], part[2]]
    }
    printf "\n%d of %d hot kernels use local memory\n", spilling, hots
    for (b = 1; b <= spilling; b++) print "  " bad[b]
    exit spilling > 0
  }' "$table"
