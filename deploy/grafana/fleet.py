"""The first row, on all drives, from recorded series: totals, the worst drives, models."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import (
    BY_DEVICE,
    DEVICE,
    FLEET,
    FLEET_DEVICE,
    NOW,
    IF_ANY_CHOSEN,
    IS_DRIVE,
    WHOLE,
    highest,
    most,
    of_fleet,
    of_worst,
    recorded,
    summed,
)
from panels import coloured, columns, heat_map, lines, link, number, unit_of, yes_or_no

DEVICES = "instance_device_op:biolat_device_latency_seconds"
TOTALS = "instance_device_op:biolat_total_latency_seconds"
ADMISSION = "instance_device_op:biolat_admission_latency_seconds"
SLOW = ("model_over:biolat_slow_ios:rate5m", "instance_device_over:biolat_slow_ios:rate5m")
INFLIGHT = "instance_device:biolat_inflight_ios"
OLDEST = "instance_device:biolat_oldest_inflight_seconds:max"
SLOWEST = "instance_device_op:biolat_latency_seconds:topk_p99_rate5m"
WORST = "instance_device:biolat_device_info:worst"
P99_OF_MODELS = (
    "model_op:biolat_device_latency_seconds:p99_rate5m",
    "model_op:biolat_total_latency_seconds:p99_rate5m",
)

BY_DRIVE = (*BY_DEVICE, "model")
OPS = f'{FLEET_DEVICE}, op=~"$op"'
INFO = f"biolat_device_info{{{FLEET_DEVICE}, {IS_DRIVE}}}"
ON_DEVICE = f"on ({', '.join(BY_DEVICE)})"


def _p99(part):
    labels = f"{{{OPS}, {part}}}"
    no_dispatch = f'biolat_device_phase_available{{{DEVICE}, {part}, phase="device"}} == 0'
    return f"({DEVICES}:p99_rate5m{labels} or {TOTALS}:p99_rate5m{labels} and {ON_DEVICE} ({no_dispatch}))"


def _p99_solid(part):
    return f'({_p99(part)} unless {ON_DEVICE} biolat_device_info{{{FLEET_DEVICE}, {part}, rotational="1"}})'


def _or_slowest(of_part, labels=OPS):
    return f"{' or '.join(map(of_part, IF_ANY_CHOSEN))} or on ({', '.join((*BY_DEVICE, 'op'))}) {SLOWEST}{{{labels}}}"


# By drive and op: all chosen drives or, while everything is set to All, the recorded slowest. Selecting the series of all drives
# then would take most of the query's time.
P99 = f"({_or_slowest(_p99)})"
P99_SOLID = _or_slowest(_p99_solid, f'{OPS}, rotational="0"')
P99_SPINNING = _or_slowest(_p99, f'{OPS}, rotational!="0"')
OR_TOTAL = "the total latency where the kernel does not timestamp the dispatch"
LIMITS = (0.01, 0.1)
# No healthy drive takes this long: on a spinning disk a full queue takes two seconds, a bad sector seven.
HANGS = 8


def _numbers():
    for title, description, unit, expression, steps in (
        ("Nodes", "Nodes with chosen drives.", "short", f"count(group by (cluster, instance) ({INFO}))", ()),
        ("Devices", "Chosen block devices with a request queue.", "short", f"count({INFO})", ()),
        (
            "IOPS",
            "I/Os per second, in total. From a recording rule.",
            "iops",
            summed((), of_fleet("model_op:biolat_total_latency_seconds:count_rate5m", f"{TOTALS}:count_rate5m", OPS)),
            (),
        ),
        (
            "Throughput",
            "Bytes per second, in total. From a recording rule.",
            "Bps",
            summed((), of_fleet("model_op:biolat_io_bytes:rate5m", "instance_device_op:biolat_io_bytes:rate5m", OPS)),
            (),
        ),
        (
            "Failed I/O",
            "Failed completions of all ops per second. From a recording rule.",
            "iops",
            summed((), of_fleet("model:biolat_failed_ios:rate5m", "instance_device:biolat_failed_ios:rate5m")),
            (1e-9, 1),
        ),
        (
            "Slow I/O",
            "I/Os of all ops, including discards, that took more than a second, per second. From a recording rule.",
            "iops",
            summed((), of_fleet(*SLOW, f'{FLEET_DEVICE}, over="1"')),
            (1e-9, 1),
        ),
        (
            "Worst p99",
            f"The highest p99 device latency of a drive that does not spin, or of any drive if all spin; {OR_TOTAL}. From "
            "recording rules.",
            "s",
            f"max({P99_SOLID}) or max({P99_SPINNING})",
            LIMITS,
        ),
        (
            "Oldest I/O",
            "Age of the oldest I/O in flight on any drive. From a recording rule.",
            "s",
            f"max({of_fleet('model:biolat_oldest_inflight_seconds:max', OLDEST)})",
            (HANGS, 30),
        ),
    ):
        yield number(title, description, unit, expression, steps=steps)


def _worst(uid):
    oldest = f"{OLDEST}{{{FLEET_DEVICE}}}"

    # Hung drives rank at 8e6 and above, and other drives that do not spin at 1e4 and above, because no latency is above 1,024 s.
    solid, spinning = highest(BY_DRIVE, P99_SOLID), highest(BY_DRIVE, P99_SPINNING)
    ranks = f"({oldest} >= {HANGS}) * 1e6 or {solid} + 1e4 or {spinning}"
    worst = f"topk(20, {ranks})"

    def figure(level, name, labels=OPS):
        return of_worst(f"{level}:worst_{name}", f"{level}:{name}", labels)

    # Each query ranks the drives only once, because ranking takes most of its time.
    def ranked(series):
        return f"({series}) and {ON_DEVICE} {worst}"

    def over_ops(series):
        return highest(BY_DRIVE, ranked(series))

    spins = of_worst(WORST, "biolat_device_info", f'{FLEET_DEVICE}, rotational="1"')
    any_kind = of_worst(WORST, "biolat_device_info", FLEET_DEVICE)

    values = {
        # Derived from the rank, which rounds to 0 for drives that do not hang.
        "Hung for": f"round({worst} / 1e6, 0.1)",
        "In flight": over_ops(figure(INFLIGHT, "sum", FLEET_DEVICE)),
        "p99": over_ops(f"{P99} or {DEVICES}:worst_p99_rate5m{{{OPS}}}"),
        "p50 device": over_ops(figure(DEVICES, "p50_rate5m")),
        "p99 admission": over_ops(figure(ADMISSION, "p99_rate5m")),
        "p99 total": over_ops(figure(TOTALS, "p99_rate5m")),
        "IOPS": summed(BY_DRIVE, ranked(figure(TOTALS, "count_rate5m"))),
        "Rotational": over_ops(f"{spins} or ({any_kind}) * 0"),
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
        f"Twenty drives: first drives with an I/O in flight for {HANGS} seconds or more, then drives that do not spin, then "
        f"drives that do, by their highest p99 of any op over five minutes. The p99 is the device latency, or {OR_TOTAL}. From "
        "recording rules. Click a device to show only that drive.",
        list(values.values()),
        {"cluster": "Cluster", "instance": "Node", "device": "Device", "model": "Model"}
        | {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(values)},
        order=(("Hung for", True), ("Rotational", False), ("p99", True)),
        height=10,
        properties={
            "Device": [link("Show only this drive", this_drive)],
            "Hung for": [unit_of("s"), *coloured(HANGS, 30)],
            "p99": [unit_of("s"), *coloured(*LIMITS)],
            "p50 device": seconds,
            "p99 admission": seconds,
            "p99 total": seconds,
            "IOPS": [unit_of("iops")],
            "Rotational": [yes_or_no()],
        },
    )


def _p99_by_model():
    def p99(window=NOW):
        return " or ".join(recorded(metric, f'{FLEET}, op=~"$op"', window) for metric in P99_OF_MODELS)

    solid = f'({p99(WHOLE)}) and on (cluster, model) biolat_device_info{{{FLEET}, {IS_DRIVE}, rotational="0"}} @ end()'
    return f"({p99()}) and (topk(20, {solid}) or topk(20, {p99(WHOLE)}))"


def fleet(board, histograms):
    board.with_row(builders.Row("Fleet"))
    everywhere = f"{OR_TOTAL[0].upper()}{OR_TOTAL[1:]}. All drives of the chosen clusters and models, on all nodes."
    for panel in (
        *_numbers(),
        _worst(histograms.uid),
        lines(
            "Oldest I/O by drive",
            "I/O in flight for a second or more: the ten drives with the oldest within the time range. From a recording rule.",
            "s",
            (
                most(10, lambda window: f"{recorded(OLDEST, FLEET_DEVICE, window)} >= 1"),
                "{{cluster}} {{instance}} {{device}}",
            ),
            log=True,
            minimum=None,
            recorded=True,
        ),
        lines(
            "Slow I/O by threshold",
            "I/Os of all ops, including discards, that took longer than a threshold, per second. From a recording rule.",
            "iops",
            (
                most(10, lambda window: summed(("cluster", "over"), of_fleet(*SLOW, window=window))),
                "{{cluster}} over {{over}} s",
            ),
            recorded=True,
        ),
        heat_map(
            "All drives",
            f"Device latency; brighter is more I/O. {everywhere} From a recording rule.",
            histograms.of_models(f'{FLEET}, op=~"$op"'),
            histograms.heatmap_format,
            height=9,
        ),
        lines(
            "p99 by model",
            "The p99 device latency of a model's drives: the twenty slowest models that do not spin, and the twenty slowest. "
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
