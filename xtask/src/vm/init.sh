#!/bin/busybox sh
# The guest's init: mounts file systems, runs the tests, prints the exit code and the kernel's taint flags, and powers off.
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
# Otherwise, enabling a trace event would also patch the scheduler, which every CPU runs, to record task names.
echo 0 > /sys/kernel/debug/tracing/options/record-cmd
# Make the kernel log hung tasks with their stacks well before the run times out.
echo 50 > /proc/sys/kernel/hung_task_timeout_secs
echo 10 > /proc/sys/kernel/hung_task_check_interval_secs
# RHEL 9 forbids io_uring.
if [ -e /proc/sys/kernel/io_uring_disabled ]; then echo 0 > /proc/sys/kernel/io_uring_disabled; fi
for module in virtio_pci virtio_blk virtio_scsi vmw_pvscsi nvme sd_mod sg loop dm-mod ext4 xfs; do modprobe -q $module; done
modprobe configfs; mount -t configfs config /sys/kernel/config
modprobe null_blk nr_devices=0
# The kernel patches code on the first TCP connection. Make one now, while nothing else runs, because emulated CPUs may execute
# stale code.
wget -q -O /dev/null http://127.0.0.1:1/ 2>/dev/null
# Wait for the drives, which are probed asynchronously.
sleep 1
cd /tmp
BIOLAT_TEST_DAEMON=/biolat/biolat-daemon BIOLAT_TEST_CELLS=/biolat/cells.o BIOLAT_TEST_UPGRADES=4 BIOLAT_TEST_GAP_MS=2000 \
    BIOLAT_TEST_KILLS=@KILLS@ BIOLAT_TEST_AWAY=@AWAY@ BIOLAT_TEST_REMOVALS=@REMOVALS@ BIOLAT_TEST_LOAD=@LOAD@ \
    /biolat/tests --ignored --show-output --test-threads=1 --exact @TESTS@
echo "biolat-guest: exit $?"
echo "biolat-guest: taint $(cat /proc/sys/kernel/tainted)"
echo "<3>biolat-guest: end of log" > /dev/kmsg
sync
# Wait until the serial port has sent the last line.
sleep 1
poweroff -f
