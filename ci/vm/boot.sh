#!/usr/bin/env bash
# boot.sh ARCH KERNEL INITRD JOB OUT: boots a machine that runs JOB/run.sh (see initrd.sh); its output, its status and
# whatever it left in /out are in OUT afterwards, and so is the console. Exits with the job's status; 125: there is no result,
# and the console says why. LIMIT_S bounds it all; ACCEL chooses another accelerator than the emulator.
set -euo pipefail

machine_of() {
  case $1 in
    arm64) echo "qemu-system-aarch64 -machine virt -cpu cortex-a72 -append console=ttyAMA0" ;;
    amd64) echo "qemu-system-x86_64 -machine q35 -cpu max -append console=ttyS0" ;;
    *) echo "boot.sh: no machine for $1" >&2; exit 64 ;;
  esac
}

main() {
  local machine disks status
  read -ra machine < <(machine_of "$1")
  machine[-1]+=" quiet panic=-1 ${CMDLINE:-}"
  disks=$(mktemp -d)
  mkdir -p "$5"
  rm -f "$5/status"
  tar -C "$4" -cf "$disks/job" .
  truncate -s %512 "$disks/job"
  truncate -s 64M "$disks/results"
  timeout -k 5 "${LIMIT_S:-300}" "${machine[@]}" -accel "${ACCEL:-tcg,thread=multi}" -smp 2 -m "${MEMORY_MB:-1024}" \
    -nographic -no-reboot -nodefaults -serial stdio -monitor none -kernel "$2" -initrd "$3" \
    -drive "file=$disks/job,if=none,id=job,format=raw,readonly=on" -device virtio-blk-pci,drive=job \
    -drive "file=$disks/results,if=none,id=results,format=raw" -device virtio-blk-pci,drive=results \
    </dev/null >"$5/console.log" 2>&1 || true
  tar -C "$5" -xf "$disks/results" 2>/dev/null || true
  rm -rf "$disks"
  status=$(cat "$5/status" 2>/dev/null || echo 125)
  return "$status"
}

main "$@"
