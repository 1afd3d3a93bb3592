#!/bin/bash
# Checks the installed package in a booted system. Prints `ok` or `not ok` for each expectation, then powers off. Timeouts are
# generous, because emulated CPUs are slow.
metrics=http://127.0.0.1:9976/metrics

expect() { # description, command that succeeds if the expectation holds
    local description=$1
    shift
    if "$@" >/tmp/output 2>&1; then echo "ok $description"; else echo "not ok $description: $(tr '\n' ' ' </tmp/output)"; fi
}
within() { # seconds, command that must succeed by then
    local left=$1
    shift
    until "$@"; do
        [ $((left--)) -gt 0 ] || return 1
        sleep 1
    done
}
unit_property() { systemctl show --property="$1" --value biolat.service; }
is() { [ "$1" = "$2" ] || { echo "'$1', expected '$2'"; return 1; }; }
scrape() { curl --silent --fail --max-time 5 $metrics; }
count() { scrape | sed -n "s/^biolat_total_latency_seconds_count{device=\"vda\",op=\"$1\"} //p" | cut -d. -f1; }
accounted_writes() { set -- $(cat /sys/block/vda/stat); echo "$5"; }
writes_match_diskstats() {
    # Read the disk statistics first and last, so that they cover at least the counted interval.
    local accounted=$(accounted_writes)
    sleep 2
    local counted=$(count write)
    dd if=/dev/zero of=/var/tmp/load bs=4k count=64 oflag=direct,dsync status=none
    sleep 3
    local more=$(($(count write) - counted)) most=$(($(accounted_writes) - accounted))
    echo "counted $more, accounted at most $most"
    [ "$more" -ge 64 ] && [ "$more" -le "$most" ]
}
missed() { scrape | sed -n 's/^biolat_unseen_completions_total{device="vda",op="write"} //p' | cut -d. -f1; }
settle() { # sets counted (including missed) and accounted writes, read while the drive is quiet
    for _ in $(seq 60); do
        accounted=$(accounted_writes)
        sleep 2
        counted=$(missed)
        counted=$(($(count write) + ${counted:-0}))
        [ "$(accounted_writes)" = "$accounted" ] && return
    done
    echo "the drive is never quiet"
    return 1
}
continues() { # previous values of counted and accounted
    settle || return 1
    echo "counted $((counted - $1)), accounted $((accounted - $2))"
    [ $((counted - $1)) = $((accounted - $2)) ] && [ "$accounted" -gt "$2" ]
}
write_some() { dd if=/dev/zero of=/var/tmp/load bs=4k count=64 oflag=direct,dsync status=none; }
status() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(unit_property MainPID)/status"; }
is_dynamic_user() { read -r real _ < <(status Uid); echo "uid $real"; [ "$real" -ge 61184 ]; }
is_new() { [ "$(unit_property NRestarts)" -ge 1 ] && [ "$(unit_property MainPID)" != "$1" ] && is "$(unit_property ActiveState)" active; }
is_another() { [ "$(unit_property MainPID)" != "$1" ] && is "$(unit_property ActiveState)" active; }
install_package() { # name; installs it while the daemon runs, with I/O before and after
    write_some
    dpkg --install "/var/tmp/$1.deb" >/dev/null
    write_some
    within 60 scrape >/dev/null
}
has_no_network() { [ "$(readlink "/proc/$(unit_property MainPID)/ns/net")" != "$(readlink /proc/1/ns/net)" ]; }

history_began() { curl --silent --fail --max-time 5 'http://127.0.0.1:9976/api/v1/history?from=-1s&detail=summary' | sed -n 's/.*"complete_from":\([0-9.]*\).*/\1/p'; }
history_continues() { # expected begin
    local began=$(history_began)
    echo "it begins at '$began', expected '$1'"
    [ -n "$began" ] && [ "$began" = "$1" ]
}

# Keep the history off the measured drive, which would otherwise never be idle.
mkdir -p -m 700 /var/lib/private
mount -t tmpfs -o mode=700 tmpfs /var/lib/private

# Collect often, shorten the watchdog timeout from the unit's one minute, and keep the history where the unit suggests.
mkdir -p /run/systemd/system/biolat.service.d
cat >/run/systemd/system/biolat.service.d/check.conf <<'END'
[Service]
Environment=BIOLAT_INTERVAL=500ms
WatchdogSec=10
StateDirectory=biolat
Environment=BIOLAT_HISTORY_FILE=%S/biolat/history
END

within 60 systemctl --quiet is-active biolat.service
expect "the unit starts at boot" is "$(unit_property ActiveState)" active
expect "the unit is active only after it serves" scrape
expect "it runs as a dynamic user" is_dynamic_user
expect "it has dropped all capabilities" is "$(status CapEff)" 0000000000000000
expect "it cannot gain privileges" is "$(status NoNewPrivs)" 1
systemctl daemon-reload
systemctl restart biolat.service
expect "it restarts" is "$(unit_property ActiveState)" active
expect "it counts the drive's I/O" writes_match_diskstats
settle
before="$counted $accounted" began=$(history_began)
systemctl restart biolat.service
write_some
expect "a restart is not a reset" continues $before
expect "a restart does not end the history" within 30 history_continues "$began"
sleep 15
expect "the watchdog does not restart a healthy daemon" is "$(unit_property NRestarts)" 0
pid=$(unit_property MainPID)
kill -STOP "$pid"
expect "the watchdog restarts a hung daemon" within 60 is_new "$pid"
write_some
within 60 scrape >/dev/null
expect "a watchdog restart is not a reset" continues $before
expect "a watchdog restart does not end the history" within 30 history_continues "$began"
pid=$(unit_property MainPID)
install_package newer
expect "a package upgrade restarts it" is_another "$pid"
expect "an upgrade is not a reset" continues $before
pid=$(unit_property MainPID)
install_package package
expect "a package downgrade restarts it" is_another "$pid"
expect "a downgrade to a version that can read the state is not a reset" continues $before
systemctl stop biolat.service
expect "it stops without an error" is "$(unit_property Result) $(unit_property ExecMainStatus)" "success 0"
expect "nothing is kept after it was stopped" is "$(unit_property NFileDescriptorStore)" 0

# Test socket activation without network access.
printf '[Service]\nPrivateNetwork=yes\n' >>/run/systemd/system/biolat.service.d/check.conf
systemctl daemon-reload
systemctl start biolat.socket
expect "the socket does not start the service" is "$(systemctl is-active biolat.service)" inactive
expect "a scrape starts the service" within 60 scrape
expect "it has no network" has_no_network
expect "it counts I/O without network" writes_match_diskstats
expect "the log has no permission errors" is "$(journalctl --unit biolat.service --priority warning --grep 'denied|permitted' --quiet --output cat | head -3)" ""
systemctl stop biolat.socket biolat.service

journalctl --unit biolat.service --no-pager --output short-monotonic
echo "biolat-guest: exit 0"
echo "biolat-guest: taint $(cat /proc/sys/kernel/tainted)"
echo "<3>biolat-guest: end of log" >/dev/kmsg
sync
sleep 1
systemctl poweroff --force --force
