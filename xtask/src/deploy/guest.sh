#!/bin/bash
# What must hold where systemd has started biolat from its package. One line for each thing, `ok` or `not ok`; then the
# machine is turned off. An emulated CPU is slow: what takes time is waited for.
metrics=http://127.0.0.1:9976/metrics

holds() { # what it is, and a command that says whether
    local what=$1
    shift
    if "$@" >/tmp/said 2>&1; then echo "ok $what"; else echo "not ok $what: $(tr '\n' ' ' </tmp/said)"; fi
}
within() { # seconds, and a command that will succeed by then
    local left=$1
    shift
    until "$@"; do
        [ $((left--)) -gt 0 ] || return 1
        sleep 1
    done
}
shows() { systemctl show --property="$1" --value biolat.service; }
is() { [ "$1" = "$2" ] || { echo "'$1' and not '$2'"; return 1; }; }
scrape() { curl --silent --fail --max-time 5 $metrics; }
count() { scrape | sed -n "s/^biolat_total_latency_seconds_count{device=\"vda\",op=\"$1\"} //p" | cut -d. -f1; }
books() { set -- $(cat /sys/block/vda/stat); echo "$5"; }
counts_what_the_kernel_books() {
    # What is booked is asked for first and last, so that nothing is counted that falls outside.
    local booked=$(books)
    sleep 2
    local counted=$(count write)
    dd if=/dev/zero of=/var/tmp/load bs=4k count=64 oflag=direct,dsync status=none
    sleep 3
    local more=$(($(count write) - counted)) most=$(($(books) - booked))
    echo "counted $more, booked $most"
    [ "$more" -ge 64 ] && [ "$more" -le "$most" ]
}
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(shows MainPID)/status"; }
is_another_user() { read -r real _ < <(status Uid); echo "uid $real"; [ "$real" -ge 61184 ]; }
is_new() { [ "$(shows NRestarts)" -ge 1 ] && [ "$(shows MainPID)" != "$1" ] && is "$(shows ActiveState)" active; }
has_no_network() { [ "$(readlink "/proc/$(shows MainPID)/ns/net")" != "$(readlink /proc/1/ns/net)" ]; }

# Fresh figures, and a watchdog that need not be waited for; the package's own unit has a minute.
mkdir -p /run/systemd/system/biolat.service.d
printf '[Service]\nEnvironment=BIOLAT_INTERVAL=500ms\nWatchdogSec=10\n' >/run/systemd/system/biolat.service.d/check.conf

within 60 systemctl --quiet is-active biolat.service
holds "the package's unit is started at boot" is "$(shows ActiveState)" active
holds "it is ready when it serves" scrape
holds "it is a user of its own" is_another_user
holds "who serves has no capability" is "$(status CapEff)" 0000000000000000
holds "no new privileges" is "$(status NoNewPrivs)" 1
systemctl daemon-reload
systemctl restart biolat.service
holds "it restarts" is "$(shows ActiveState)" active
holds "I/O of the machine's drive is counted" counts_what_the_kernel_books
sleep 15
holds "a healthy one is left alone by the watchdog" is "$(shows NRestarts)" 0
pid=$(shows MainPID)
kill -STOP "$pid"
holds "one that hangs is started anew" within 60 is_new "$pid"
systemctl stop biolat.service
holds "it stops without an error" is "$(shows Result) $(shows ExecMainStatus)" "success 0"

# By its socket, with no network of its own.
printf '[Service]\nPrivateNetwork=yes\n' >>/run/systemd/system/biolat.service.d/check.conf
systemctl daemon-reload
systemctl start biolat.socket
holds "its socket listens in its stead" is "$(systemctl is-active biolat.service)" inactive
holds "a scrape starts it" within 60 scrape
holds "it has no network" has_no_network
holds "I/O is counted there too" counts_what_the_kernel_books
holds "nothing was lost for want of a right" is "$(journalctl --unit biolat.service --priority warning --grep 'denied|permitted' --quiet --output cat | head -3)" ""
systemctl stop biolat.socket biolat.service

journalctl --unit biolat.service --no-pager --output short-monotonic
echo "biolat-guest: exit 0"
echo "biolat-guest: taint $(cat /proc/sys/kernel/tainted)"
echo "<3>biolat-guest: end of log" >/dev/kmsg
sync
sleep 1
systemctl poweroff --force --force
