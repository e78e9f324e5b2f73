#!/bin/sh
# Puts NVIDIA's CUDA compiler into a folder, and the disassembler for kernels-cuda/sass.sh,
# from PyPI: no GPU, no CUDA installation and no root needed. Host compiler: the system's
# gcc.
#
#   build/install-nvcc.sh DIR      then: CUDA_HOME=DIR cargo build --features cuda
#
# DIR may be left out: .local/cuda at the root of the repository, where the build looks
# without being told. The release is pinned: drivers refuse PTX of a newer toolkit.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$root/.local/cuda}
nvcc=$dir/nvidia/cu13/bin/nvcc

# PYTHON=python3.12 build/install-nvcc.sh picks an interpreter.
PIP_ROOT_USER_ACTION=ignore "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
  --target "$dir" \
  nvidia-cuda-nvcc==13.0.88 \
  nvidia-nvvm==13.0.88 \
  nvidia-cuda-crt==13.0.88 \
  nvidia-cuda-runtime==13.0.88 \
  nvidia-cuda-cccl==13.0.85 \
  nvidia-cuda-cuobjdump==13.5.37 \
  nvidia-cuda-nvdisasm==13.5.37

# An installation that cannot compile is found out here rather than in the build.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '__global__ void probe(float *x) { x[threadIdx.x] *= 2.0f; }' > "$work/probe.cu"
"$nvcc" -arch=sm_86 -cubin -o "$work/probe.cubin" "$work/probe.cu"

"$nvcc" --version | sed -n 's/.*release/nvcc release/p'
echo "CUDA_HOME=$dir"
