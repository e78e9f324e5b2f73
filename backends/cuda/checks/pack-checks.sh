#!/bin/sh
# Builds and strips what device-checks.sh runs, and puts both into a folder to carry to a
# machine with a GPU.
#
#   backends/cuda/checks/pack-checks.sh FOLDER
#
# FORETOKEN_CUDA_ARCHS limits the architectures: those that are to be forced there have to
# be among them. PROFILE is a profile of cargo (dev; its tests are optimised).
set -eu

folder=${1:?a folder to fill}
root=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
profile=${PROFILE:-dev}

# Test programs have a hash in their names: cargo tells them.
programs=$(cargo test --profile "$profile" -p foretoken-cuda --features kernels --no-run \
  --test op_table --test models --test driver --test operations --message-format json |
  sed -n 's/.*"name":"\([a-z_]*\)".*"executable":"\([^"]*\)".*/\1 \2/p')
echo "$programs" | while read -r name path; do
  cp "$path" "$folder/$name"
done
cargo build --profile "$profile" -p foretoken-cli --features cuda
output=$profile
[ "$profile" = dev ] && output=debug
cp "${CARGO_TARGET_DIR:-$root/target}/$output/foretoken" "$folder/foretoken"
strip "$folder/foretoken" $(echo "$programs" | sed "s|^\([a-z_]*\) .*|$folder/\1|")

# Fails waits in the driver library's place. It is linked with an empty library of the real
# one's name, which the real one takes the place of.
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cc -shared -x c /dev/null -Wl,-soname,libcuda.so.1 -o "$empty/libcuda.so.1"
mkdir -p "$folder/failing"
cc -shared -fPIC -O1 -o "$folder/failing/libcuda.so" backends/cuda/checks/failing.c \
  -Wl,--no-as-needed "$empty/libcuda.so.1" -ldl
cp backends/cuda/checks/device-checks.sh "$folder/"
ls -l "$folder"
