# Process 1 of the node's PID namespace: sets up mounts and addresses, then reaps processes. The argument is the node's directory.
set -eu
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
# As systemd does on a node, so that pods see mounts created after they start.
mount --make-rshared /
# Bind-mount the values that the kubelet wants over these sysctls, so that it does not change the machine's.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    path=${setting%=*}
    file=/run/$(basename "$path")
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/$path"
done
# Addresses of the node, the API server and the name server. There is no other interface, so the node is isolated.
ip link set lo up
ip address add 10.99.0.1/32 dev lo
ip address add 10.96.0.1/32 dev lo
ip address add 10.96.0.10/32 dev lo
sysctl -qw net.ipv4.ip_forward=1
echo ready
while :; do
    sleep 1000 &
    wait
done
