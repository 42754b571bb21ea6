#!/bin/busybox sh
# The first process: mounts the host's files, which are read-only, makes places to write to, runs the program, and switches off.
for module in MODULES; do
  /bin/busybox insmod "/$module.ko"
done
b() { /bin/busybox "$@"; }
b mkdir /host
b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host
b mount -t proc proc /host/proc
b mount -t sysfs sysfs /host/sys
b mount -t devtmpfs devtmpfs /host/dev
b mkdir -p /host/dev/shm
for place in /dev/shm /run /mnt; do
  b mount -t tmpfs tmpfs "/host$place"
done
b mkdir /host/mnt/shared
b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 shared /host/mnt/shared
b ifconfig lo 127.0.0.1 up
export HOME=/mnt TMPDIR=/mnt PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
b chroot /host /bin/sh /mnt/shared/program >/host/mnt/shared/output 2>&1
echo $? >/host/mnt/shared/exit_code
b sync
b poweroff -f
