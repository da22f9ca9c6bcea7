#!/usr/bin/env bash
# Puna on this machine, from the source tree: installs what is missing, builds, fetches the starter model, opens the window.
#
#   packaging/run.sh                                       the window (or, without a display, a chat in the terminal)
#   packaging/run.sh "What is the capital of France?"      one answer in the terminal
#
# What has been done is not done again: a second run starts at once.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# -le 1 ] || fail "usage: packaging/run.sh [PROMPT]"

install_packages "${build_packages[@]}" "${run_packages[@]}"

build=$root/build/run
architecture=$(cuda_architecture)
if [ -n "$architecture" ]; then
  find_nvcc
  cuda=(-DPUNA_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  say "Building for the CPU and for the NVIDIA GPU of this machine ($architecture)."
else
  cuda=(-DPUNA_CUDA=OFF)
fi
log=$root/build/run.log
mkdir -p "$root/build"
if ! cmake -S "$root" -B "$build" -G Ninja -DPUNA_TESTS=OFF "${cuda[@]}" >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "The build could not be configured; the whole output is in $log."
fi
[ -x "$build/bin/puna" ] || say "Building Puna (this takes a few minutes, the first time only) ..."
if ! cmake --build "$build" >>"$log" 2>&1; then
  tail -n 40 "$log" >&2
  fail "The build failed; the whole output is in $log."
fi

model=$(fetch_starter)

if [ $# -eq 1 ]; then
  exec "$build/bin/puna-engine" run "$model" --chat --prompt "$1"
fi
if [ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
  say "There is no display (neither DISPLAY nor WAYLAND_DISPLAY is set), so the chat opens here in the terminal. Ctrl+D ends it."
  exec "$build/bin/puna-engine" run "$model" --chat -i
fi
exec "$build/bin/puna" --import "$model"
