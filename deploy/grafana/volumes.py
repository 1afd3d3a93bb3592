"""The row on volumes (dm, md), with what they add to the latency of the drives below them."""

from latencies import BY_DEVICE, FLEET, FLEET_DEVICE, NODE, NOW, most, recorded
from panels import lines, row

LATENCY = "instance_device_op:biolat_volume_latency_seconds"
DRIVES = "instance_device_drive:biolat_device_holder_info:group"
TWENTY = "The twenty volumes and ops with the highest values over the time range. From a recording rule."


def volumes(board, _):
    def panel(title, what, unit, figure, **options):
        def query(window):
            """Volumes on the chosen drives. While all drives are chosen, also volumes on none, such as zram."""
            series = recorded(figure, f'{NODE}, op=~"$op"', window)
            if window == NOW:
                return series
            on_drives = recorded(DRIVES, f'{FLEET}, instance=~"$node", drive=~"$device"', window)
            themselves = recorded("biolat_device_info", f'{FLEET_DEVICE}, kind!~"drive|"', window)
            return f"{series} and on ({', '.join(BY_DEVICE)}) ({on_drives} or {themselves})"

        legend = "{{cluster}} {{instance}} {{label}} {{op}}"
        return lines(title, f"{what} {TWENTY}", unit, (most(20, query), legend), recorded=True, **options)

    row(
        board,
        "Volumes",
        panel(
            "p99 by volume",
            "The p99 latency of a volume, as its users see it: from the submission of an I/O to its end.",
            "s",
            f"{LATENCY}:p99_rate5m",
            log=True,
            minimum=None,
        ),
        panel(
            "What volumes add",
            "The mean latency of a volume's reads or writes minus the mean total latency of the drives below it. Only an estimate: "
            "it is too high if the volume splits its I/O, and negative if other I/O on the drives takes longer.",
            "s",
            "instance_device_op:biolat_volume_added_seconds:mean5m",
            minimum=None,
        ),
        panel("IOPS by volume", "I/Os per second.", "iops", f"{LATENCY}:count_rate5m"),
        panel("Throughput by volume", "Bytes per second.", "Bps", "instance_device_op:biolat_volume_io_bytes:rate5m"),
    )
