#!/usr/bin/env bash
# initrd.sh TREE OUT: an initial file system for the kernel in TREE (see fetch.sh): busybox, and the modules of two
# disks. It unpacks the first disk, a tar, into /job and runs /job/run.sh; then writes /out as a tar to the second.
# No file system is mounted from a disk and nothing is read from the console, which is only the log.
#
# Where the job has a directory /job/root it becomes the root of run.sh, with /job/root/job as its directory.
set -euo pipefail

modules_of() {
  local tree=$1 found=$2 name path file
  for name in virtio_pci virtio_mmio virtio_blk; do
    path=$(grep -E "/$name\.ko[^:]*:" "$found/modules.dep" | head -n 1) || continue # built in
    # What it needs is listed last first; itself comes at the end.
    for file in $(tr ' ' '\n' <<<"${path#*:}" | tac) "${path%%:*}"; do
      [ -e "$tree/mods/.$(basename "$file")" ] && continue
      : >"$tree/mods/.$(basename "$file")"
      COUNT=$((COUNT + 1))
      unpack "$found/$file" "$tree/mods/$(printf %02d "$COUNT").ko"
    done
  done
}

unpack() {
  case $1 in
    *.xz) xz -dc "$1" >"$2" ;;
    *.zst) zstd -qdc "$1" >"$2" ;;
    *) cp "$1" "$2" ;;
  esac
}

write_init() {
  cat >"$1/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=1777 tmp /tmp; mount -t tmpfs -o mode=755 job /job
for module in /mods/*.ko; do insmod "$module"; done
tries=0
while [ ! -b /dev/vdb ] && [ "$tries" -lt 500 ]; do usleep 20000; tries=$((tries + 1)); done
echo "vm: kernel $(uname -r), up $(cut -d' ' -f1 /proc/uptime) s"
tar -C /job -xf /dev/vda
if [ -d /job/root ]; then
  for place in proc sys dev tmp; do mkdir -p "/job/root/$place"; mount --rbind "/$place" "/job/root/$place"; done
  mount --bind /job/root /job/root
  chroot /job/root /bin/sh -c 'cd /job && exec sh ./run.sh' >/out/output 2>&1
else
  (cd /job && exec sh ./run.sh) >/out/output 2>&1
fi
echo "$?" >/out/status
echo "vm: status $(cat /out/status), up $(cut -d' ' -f1 /proc/uptime) s"
tar -C /out -cf /dev/vdb .; sync
poweroff -f
INIT
  chmod +x "$1/init"
}

main() {
  local found work
  found=$(echo "$1"/lib/modules/* "$1"/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -n 1)
  [ -f "$found/modules.dep" ] || depmod -b "${found%/lib/modules/*}" "$(basename "$found")"
  work=$(mktemp -d)
  chmod 755 "$work" # the mode of / in there
  mkdir -p "$work"/{bin,sbin,mods,proc,sys,dev,tmp,root,job,out}
  cp "$1/bin/busybox" "$work/bin/" 2>/dev/null || cp "$1/usr/bin/busybox" "$work/bin/"
  modules_of "$work" "$found"
  write_init "$work"
  (cd "$work" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
  rm -rf "$work"
}

COUNT=0
main "$@"
