"""The row on all drives, from recorded series: totals, the worst drives, models. It is open at first."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import BY_DEVICE, DEVICE, FLEET, FLEET_DEVICE, WHOLE, highest, most, recorded, summed
from panels import coloured, columns, heat_map, lines, link, number, unit_of, yes_or_no

DEVICES = "instance_device_op:biolat_device_latency_seconds"
TOTALS = "instance_device_op:biolat_total_latency_seconds"
BYTES = "instance_device_op:biolat_io_bytes:rate5m"
ADMISSION = "instance_device_op:biolat_admission_latency_seconds:p99_rate5m"
FAILED = "instance_device:biolat_failed_ios:rate5m"
SLOW = "instance_device_over:biolat_slow_ios:rate5m"
INFLIGHT = "instance_device:biolat_inflight_ios:sum"
OLDEST = "instance_device:biolat_oldest_inflight_seconds:max"
MODELS = "model_op:biolat_device_latency_seconds:p99_rate5m"

BY_DRIVE = (*BY_DEVICE, "model")
OPS = f'{FLEET_DEVICE}, op=~"$op"'
INFO = f"biolat_device_info{{{FLEET_DEVICE}}}"
SPINNING = f'biolat_device_info{{{FLEET_DEVICE}, rotational="1"}}'
ON_DEVICE = f"on ({', '.join(BY_DEVICE)})"
# By drive and op. Few drives have no dispatch, and in many fleets none spins: a join with nothing costs nothing.
NO_DISPATCH = f'biolat_device_phase_available{{{DEVICE}, phase="device"}} == 0'
P99 = f"({DEVICES}:p99_rate5m{{{OPS}}} or {TOTALS}:p99_rate5m{{{OPS}}} and {ON_DEVICE} ({NO_DISPATCH}))"
P99_SOLID = f"{P99} unless {ON_DEVICE} {SPINNING}"
OR_TOTAL = "where the kernel does not record the dispatch, the total latency"
LIMITS = (0.01, 0.1)
# No drive takes that long: a full queue keeps an I/O on a spinning disk for two seconds, a bad sector for seven.
HANGS = 8


def _numbers():
    for title, description, unit, expression, steps in (
        ("Nodes", "Nodes with such drives.", "short", f"count(group by (cluster, instance) ({INFO}))", ()),
        ("Devices", "Block devices with requests of their own.", "short", f"count({INFO})", ()),
        (
            "IOPS",
            "I/Os per second, all together. From a recording rule.",
            "iops",
            f"sum({TOTALS}:count_rate5m{{{OPS}}})",
            (),
        ),
        ("Throughput", "Bytes per second, all together. From a recording rule.", "Bps", f"sum({BYTES}{{{OPS}}})", ()),
        (
            "Failed I/O",
            "Failed completions of all ops per second. From a recording rule.",
            "iops",
            f"sum({FAILED}{{{FLEET_DEVICE}}})",
            (1e-9, 1),
        ),
        (
            "Slow I/O",
            "I/Os of all ops per second that took more than a second, discards too. From a recording rule.",
            "iops",
            f'sum({SLOW}{{{FLEET_DEVICE}, over="1"}})',
            (1e-9, 1),
        ),
        (
            "Worst p99",
            f"The highest p99 device latency of a drive that does not spin, or of any drive if all spin; {OR_TOTAL}. From "
            "recording rules.",
            "s",
            f"max({P99_SOLID}) or max({P99})",
            LIMITS,
        ),
        (
            "Oldest I/O",
            "The age of the oldest I/O of any drive that has not completed. From a recording rule.",
            "s",
            f"max({OLDEST}{{{FLEET_DEVICE}}})",
            (HANGS, 30),
        ),
    ):
        yield number(title, description, unit, expression, steps=steps)


def _worst(uid):
    oldest = f"{OLDEST}{{{FLEET_DEVICE}}}"

    def slowest(latencies):
        """More than twenty, as a drive has several ops."""
        return highest(BY_DRIVE, f"topk(100, {latencies})")

    # Drives that hang rank above 8e6, those that do not spin above 1e4, as no latency is above 1,024 s.
    ranks = f"({oldest} >= {HANGS}) * 1e6 or {slowest(P99_SOLID)} + 1e4 or {slowest(P99)}"
    of_worst = f"and {ON_DEVICE} topk(20, {ranks})"

    def over_ops(series):
        return highest(BY_DRIVE, f"{series} {of_worst}")

    values = {
        "Hangs for": f"{oldest} * ({oldest} >= bool {HANGS}) {of_worst}",
        "In flight": over_ops(f"{INFLIGHT}{{{FLEET_DEVICE}}}"),
        "p99": over_ops(P99),
        "p50 device": over_ops(f"{DEVICES}:p50_rate5m{{{OPS}}}"),
        "p99 admission": over_ops(f"{ADMISSION}{{{OPS}}}"),
        "p99 total": over_ops(f"{TOTALS}:p99_rate5m{{{OPS}}}"),
        "IOPS": summed(BY_DRIVE, f"{TOTALS}:count_rate5m{{{OPS}}} {of_worst}"),
        "Spins": f"{over_ops(SPINNING)} or {over_ops(f'{INFO} * 0')}",
    }
    this_drive = "&".join(
        [
            f"/d/{uid}?${{datasource:queryparam}}",
            "${__url_time_range}",
            "${op:queryparam}",
            "var-model=%24__all",
            *(
                f"var-{variable}=${{__data.fields.{column}:percentencode}}"
                for variable, column in (("cluster", "Cluster"), ("node", "Node"), ("device", "Device"))
            ),
        ]
    )
    seconds = [unit_of("s")]
    return columns(
        "Worst drives now",
        f"Twenty drives. First those with an I/O that has not completed for {HANGS} seconds or more; then those that do not "
        f"spin, then those that do, by the highest p99 of an op over five minutes: device latency; {OR_TOTAL}. From "
        "recording rules. A click on a device shows only this one.",
        list(values.values()),
        {"cluster": "Cluster", "instance": "Node", "device": "Device", "model": "Model"}
        | {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(values)},
        order=(("Hangs for", True), ("Spins", False), ("p99", True)),
        height=10,
        properties={
            "Device": [link("Show only this drive", this_drive)],
            "Hangs for": [unit_of("s"), *coloured(HANGS, 30)],
            "p99": [unit_of("s"), *coloured(*LIMITS)],
            "p50 device": seconds,
            "p99 admission": seconds,
            "p99 total": seconds,
            "IOPS": [unit_of("iops")],
            "Spins": [yes_or_no()],
        },
    )


def _p99_by_model():
    labels = f'{FLEET}, op=~"$op"'
    highest_p99 = recorded(MODELS, labels, WHOLE)
    solid = f'{highest_p99} and on (cluster, model) biolat_device_info{{{FLEET}, rotational="0"}} @ end()'
    return f"{recorded(MODELS, labels)} and (topk(20, {solid}) or topk(20, {highest_p99}))"


def fleet(board, ask):
    board.with_row(builders.Row("Fleet"))
    everywhere = "Of all drives of the chosen clusters and models that record the dispatch, on all nodes."
    for panel in (
        *_numbers(),
        _worst(ask.uid),
        lines(
            "Oldest I/O by drive",
            "The ten drives with the oldest I/O that has not completed, within the time range. From a recording rule.",
            "s",
            (most(10, lambda window: recorded(OLDEST, FLEET_DEVICE, window)), "{{cluster}} {{instance}} {{device}}"),
            log=True,
            minimum=None,
            recorded=True,
        ),
        lines(
            "Slow I/O by threshold",
            "I/Os of all ops per second that took longer than so many seconds, discards too. From a recording rule.",
            "iops",
            (
                most(10, lambda window: summed(("cluster", "over"), recorded(SLOW, FLEET_DEVICE, window))),
                "{{cluster}} over {{over}} s",
            ),
            recorded=True,
        ),
        heat_map(
            "All drives",
            f"Device latency; brighter is more I/O. {everywhere} From a recording rule.",
            ask.recorded(f'{FLEET}, op=~"$op"'),
            ask.heatmap_format,
            height=9,
        ),
        lines(
            "p99 by model",
            f"The p99 device latency of a model's drives: the twenty slowest that do not spin, and the twenty slowest. "
            f"{everywhere} From a recording rule.",
            "s",
            (_p99_by_model(), "{{cluster}} {{model}} {{op}}"),
            height=9,
            log=True,
            minimum=None,
            recorded=True,
        ),
    ):
        board.with_panel(panel)
