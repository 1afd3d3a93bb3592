#!/bin/busybox sh
# Init of a guest that boots from its drive: mounts the drive and switches to the system on it.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk ext4; do modprobe -q $module; done
until [ -b /dev/vda ]; do sleep 0.2; done
mount -t ext4 /dev/vda /root
umount /proc /sys /dev
exec switch_root /root /sbin/init
