#!/bin/busybox sh
# The guest's first process: mounts what is to be there, runs the tests, tells how it went, and turns the machine off.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug
exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
ip link set lo up
# For the names of tasks, an event that is traced would have the scheduler's code rewritten, too, on whose way every CPU is.
echo 0 > /sys/kernel/debug/tracing/options/record-cmd
# What hangs shows in the kernel's log, with its stack, well before the run is given up.
echo 50 > /proc/sys/kernel/hung_task_timeout_secs
echo 10 > /proc/sys/kernel/hung_task_check_interval_secs
for module in virtio_pci virtio_blk virtio_scsi nvme sd_mod sg loop dm-mod ext4 xfs; do modprobe -q $module; done
modprobe configfs; mount -t configfs config /sys/kernel/config
modprobe null_blk nr_devices=0
# The kernel rewrites some of its code when the first connection is made. Here nothing else runs meanwhile: the
# emulator's CPUs may see each other's code as it was a moment ago.
wget -q -O /dev/null http://127.0.0.1:1/ 2>/dev/null
# Drives are found while we go on; wait until there are no more.
sleep 1
cd /tmp
BIOLAT_TEST_DAEMON=/biolat/biolat-daemon BIOLAT_TEST_CELLS=/biolat/cells.o \
    /biolat/tests --ignored --show-output --test-threads=1 --exact @TESTS@
echo "biolat-guest: exit $?"
echo "biolat-guest: taint $(cat /proc/sys/kernel/tainted)"
echo "<3>biolat-guest: end of log" > /dev/kmsg
sync
# Until the last line is out.
sleep 1
poweroff -f
