#!/usr/bin/env bash
# `./dev cuda time` starts one process on each visible GPU, each with its part; a program that says what it sees stands for the
# timings. The control: with one device there is one process, without a part.
set -euo pipefail
cd "${1:?usage: time_devices_test.sh ROOT}"
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
printf '#!/bin/sh\necho "device $CUDA_VISIBLE_DEVICES: $*"\n[ "$CUDA_VISIBLE_DEVICES" != 9 ]\n' >"$folder/program"
chmod +x "$folder/program"
source <(sed -n '/^cuda_time()/,/^}/p' dev)
expect() { # devices, what is printed, status
  local status=0 printed
  printed="$(CUDA_VISIBLE_DEVICES="$1" cuda_time "$folder/program" 'cuda.*')" || status=$?
  if [[ "$printed" != "$2" || $status != "$3" ]]; then
    echo "devices $1: '$printed' (status $status), expected '$2' (status $3)" >&2
    exit 1
  fi
}
expect 3,5 $'device 3: time cuda.* 1/2\ndevice 5: time cuda.* 2/2' 0
expect 4 'device 4: time cuda.*' 0
expect 9,2 $'device 9: time cuda.* 1/2\ndevice 2: time cuda.* 2/2' 1
