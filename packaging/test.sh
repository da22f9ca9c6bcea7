#!/usr/bin/env bash
# Builds everything and runs every test; the same for a developer and for CI. With nvcc the CUDA code is compiled too,
# for one architecture.
#
#   packaging/test.sh              the default tests (minutes)
#   packaging/test.sh --slow       those labelled "slow" as well
#
# PUNA_CUDA_ARCH (default 90a-real) names the architecture; PUNA_BUILD the build folder (default build/test).
# The developers' reference data is used where it lies beside the checkout (../shared); tests that need it skip otherwise.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
slow=(-LE slow)
case "${1:-}" in
  '') ;;
  --slow) slow=() ;;
  *) fail "usage: packaging/test.sh [--slow]" ;;
esac

install_packages "${build_packages[@]}" "${run_packages[@]}" "${test_packages[@]}" "${fetch_packages[@]}"

build=${PUNA_BUILD:-$root/build/test}
shared=${PUNA_SHARED:-$root/../shared}
PUNA_STARTER_MODEL=$(fetch_starter)
export PUNA_STARTER_MODEL
models=
if [ -f "$shared/tools/make_models.sh" ]; then
  models=$cache/models
  mkdir -p "$models"
  [ -f "$models/$starter_file" ] || ln "$PUNA_STARTER_MODEL" "$models/" 2>/dev/null || cp "$PUNA_STARTER_MODEL" "$models/"
  say "Making the reference models ..."
  bash "$shared/tools/make_models.sh" "$models" >/dev/null
  export PUNA_SHARED=$shared PUNA_MODELS=$models
fi

if find_nvcc; then
  cuda=(-DPUNA_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=${PUNA_CUDA_ARCH:-90a-real}")
else
  cuda=(-DPUNA_CUDA=OFF)
fi
cmake -S "$root" -B "$build" -G Ninja -DPUNA_TESTS=ON -DPUNA_APP=ON -DPUNA_WERROR=ON "${cuda[@]}"
cmake --build "$build"
if cmake --build "$build" --target help | grep -q '^all_qmllint'; then
  cmake --build "$build" --target all_qmllint
fi
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "${slow[@]}"
