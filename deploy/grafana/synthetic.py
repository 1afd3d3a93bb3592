#!/usr/bin/env python3
"""Writes promtool tests of all queries of both dashboards, on synthetic drives, to a folder.

- No panel draws more than 1,000 lines, for any number of drives: no query returns more lines than its topk() allows, or than a
  fixed set of labels has. Each label without a fixed set of values (cluster, instance, device, model, cgroup, version) has more
  values here than any query may return, which exposes a query that returns a line for each value, or other lines at each point.
- A chosen model shows only its own drives, clusters are not merged, and series without a cluster are shown.
- Drives that hang come first, and spinning drives, which are slow here, leave room for the others.
- The total latency is shown where the kernel does not timestamp the dispatch.
- A fail-slow drive is shown with the op and size in which it is slowest.
- Series per model, and series of the slowest drives, give the same result as the series of all drives.
"""

import collections
import json
import pathlib
import random
import re
import sys

from faults import all_panels

HERE = pathlib.Path(__file__).parent
MINUTES = 7
# promtool's limit on samples per query allows no more nodes. A query without topk() may return up to FEW lines.
NODES, FEW = 60, 5
HANGS_FOR = 60
SLOWDOWN = 1.4
# Divides scores to keep them below the threshold at which a recording rule continues them.
SMALL = 1e6


class Samples:
    """Reproducible random values, one per minute. `still` counters do not grow."""

    def __init__(self, seed, still=False):
        self.random, self.still = random.Random(seed), still

    def steps(self, low, high):
        return [0 if self.still and minute else self.random.randint(low, high) for minute in range(MINUTES)]

    def counter(self):
        total = 0
        return " ".join(str(total := total + step) for step in self.steps(60, 60_000))

    def gauge(self):
        return " ".join(map(str, self.steps(1, 1000)))

    def histogram(self, series, kind, scale=1):
        """Two buckets with varying shares."""
        fast = slow = 0
        limits = (0.001 * scale, 0.002 * scale)
        counts = [(fast := fast + f, slow := slow + s) for f, s in zip(self.steps(60, 6000), self.steps(60, 6000))]
        sums = [(f + s * 2) * limits[0] for f, s in counts]
        name, labels = series[:-1].split("{")
        if kind == "native":
            offset = round(scale).bit_length() - 10
            values = (
                f"{{{{schema:0 count:{f + s} sum:{total:.6g} buckets:[{f} {s}] offset:{offset}}}}}"
                for (f, s), total in zip(counts, sums)
            )
            yield series, " ".join(values)
        else:
            for limit, values in (
                (f"{limits[0]:g}", (f for f, _ in counts)),
                (f"{limits[1]:g}", (f + s for f, s in counts)),
                ("+Inf", (f + s for f, s in counts)),
            ):
                yield f'{name}_bucket{{{labels},le="{limit}"}}', " ".join(map(str, values))
            yield f"{name}_count{{{labels}}}", " ".join(str(f + s) for f, s in counts)
            yield f"{name}_sum{{{labels}}}", " ".join(f"{total:.6g}" for total in sums)


def label_set(**labels):
    """A list of labels, without those that are None."""
    return ",".join(f'{name}="{value}"' for name, value in labels.items() if value is not None)


def drive(
    kind,
    cluster,
    node,
    device,
    model,
    spins=False,
    hangs=False,
    phases=("admission", "queue", "device"),
    ops=("flush",),
    sizes=("le_4KiB",),
):
    labels = label_set(cluster=cluster, instance=node, device=device)
    samples = Samples(labels, still=hangs)
    scale = 64 if spins else 1
    yield f'biolat_device_info{{{labels},model="{model}",rotational="{int(spins)}"}}', "1x6"
    volume = f"pv-{node}-{device}"
    holder = label_set(holder="dm-0", kind="persistent_volume", name=volume, depth="1")
    yield f"biolat_device_holder_info{{{labels},{holder}}}", "1x6"
    claim = label_set(cluster=cluster, persistentvolume=volume, claim_namespace="shop", name=f"data-{node}")
    yield f"kube_persistentvolume_claim_ref{{{claim}}}", "1x6"
    yield from volume_above(kind, cluster, node, device, hangs, ops, scale)
    yield f'ALERTS{{{labels},alertname="BlockDeviceHung",alertstate="firing",severity="critical"}}', "1x6"
    yield f"biolat_oldest_inflight_seconds{{{labels}}}", f"{HANGS_FOR if hangs else 1}x6"
    for phase in ("admission", *(() if "device" in phases else ("device",))):
        yield f'biolat_device_phase_available{{{labels},phase="{phase}"}}', "0x6"
    for name in ("oldest_inflight_exact", "completion_cpus", "completion_cpu_share_max", "completion_off_node_share"):
        yield f"biolat_{name}{{{labels}}}", samples.gauge()
    for series in (f"failed_ios_total{{{labels}}}", f"unseen_ios_total{{{labels}}}", f'slow_ios_total{{{labels},over="1"}}'):
        yield f"biolat_{series}", samples.counter()
    yield f'biolat_inflight_ios{{{labels},op="read"}}', samples.gauge()
    for op in ops:
        by_op = f'{labels},op="{op}"'
        by_cgroup = f'{by_op},cgroup="/{device}"'
        for phase in ("total", *phases):
            yield from samples.histogram(f"biolat_{phase}_latency_seconds{{{by_op}}}", kind, scale)
        for size in sizes:
            yield from samples.histogram(f'biolat_size_device_latency_seconds{{{by_op},size="{size}"}}', kind, scale)
        yield from samples.histogram(f"biolat_io_size_bytes{{{by_op}}}", kind)
        yield from samples.histogram(f"biolat_workload_latency_seconds{{{by_cgroup}}}", kind, scale)
        for name in ("ios", "io_bytes", "device_seconds", "failed_ios"):
            yield f"biolat_workload_{name}_total{{{by_cgroup}}}", samples.counter()
        for series in (f"io_bytes_total{{{by_op}}}", f"requeues_total{{{by_op}}}", f'io_errors_total{{{by_op},status="medium"}}'):
            yield f"biolat_{series}", samples.counter()


def volume_above(kind, cluster, node, device, hangs, ops, scale):
    """A volume on a drive. Flushes of volumes are writes."""
    name = f"dm-{device}"
    labels = label_set(cluster=cluster, instance=node, device=name)
    samples = Samples(labels, still=hangs)
    yield f'biolat_device_info{{{labels},kind="lvm",label="vg-{device}",rotational="0"}}', "1x6"
    of_drive = label_set(cluster=cluster, instance=node, device=device, holder=name, kind="lvm", name=f"vg-{device}", depth="1")
    yield f"biolat_device_holder_info{{{of_drive}}}", "1x6"
    yield f"biolat_volume_failed_ios_total{{{labels}}}", samples.counter()
    for op in ops:
        op = "write" if op == "flush" else op
        yield from samples.histogram(f'biolat_volume_latency_seconds{{{labels},op="{op}"}}', kind, scale)
        yield f'biolat_volume_io_bytes_total{{{labels},op="{op}"}}', samples.counter()


def slow_volume(cluster, node, device):
    """The recording of what a volume adds to writes, because the drive has none."""
    labels = label_set(cluster=cluster, instance=node, device=f"dm-{device}", kind="lvm", label=f"vg-{device}", op="write")
    yield f"instance_device_op:biolat_volume_added_seconds:mean5m{{{labels}}}", Samples(labels).gauge()


def sick_drive(cluster, node, device, model, score):
    """The recordings of a fail-slow drive, because the rules need more drives to make them. Below 1.5 they make no score."""
    labels = label_set(cluster=cluster, instance=node, device=device, model=model)
    yield f"instance_device:biolat_slowdown:score1w{{{labels}}}", f"{score / SMALL:.6f}x6"
    by_size = f'{labels},op="read",size="le_64KiB"'
    yield f"instance_device_op_size:biolat_size_device_latency_seconds:topk_slowdown_rate5m{{{by_size}}}", f"{SLOWDOWN}x6"


def node(kind, cluster, name, devices):
    labels = label_set(cluster=cluster, instance=name)
    samples = Samples(labels)
    yield f'biolat_build_info{{{labels},version="{name}"}}', "1x6"
    yield f"biolat_collect_timestamp_seconds{{{labels}}}", "0+59x6"
    for device in devices:
        yield f'biolat_workload_info{{{labels},cgroup="/{device}",name="{device}"}}', "1x6"
    for metric in ("map_bytes", "series_slots"):
        yield f"biolat_{metric}{{{labels}}}", samples.gauge()
    for metric in ("collect_failures", "collect_overruns", "probe_run_seconds", "probe_runs", "slow_records_dropped"):
        yield f"biolat_{metric}_total{{{labels}}}", samples.counter()
    yield f'biolat_lost_completions_total{{{labels},reason="no_room"}}', samples.counter()
    yield from samples.histogram(f"biolat_collect_duration_seconds{{{labels}}}", kind)
    yield f'process_cpu_seconds_total{{{labels},job="biolat"}}', samples.counter()
    yield f'process_resident_memory_bytes{{{labels},job="biolat"}}', samples.gauge()
    # biolat restarts.
    yield f'process_start_time_seconds{{{labels},job="biolat"}}', "0 0 0 0 0 0 200"


def queries(board):
    """The kind of panel, title, position and expression of each query."""
    for annotation in board["annotations"]["list"]:
        yield "annotation", annotation["name"], 0, annotation["expr"]
    for panel in all_panels(board):
        for place, target in enumerate(panel.get("targets") or ()):
            yield panel["type"], panel["title"], place, target["expr"]


def chosen(query, **values):
    """A query as Grafana sends it: with All, or with these values."""
    values = {"__rate_interval": "2m", "__range": "5m"} | values
    return re.sub(r"\$(\w+)", lambda variable: values.get(variable[1], ".*"), query)


def holds(condition):
    """A test that a condition is 1."""
    return {"expr": condition, "eval_time": "6m", "exp_samples": [{"labels": "{}", "value": 1}]}


def same(one, other):
    """The condition that two queries return the same, non-empty result."""
    equal = f"count(({one}) == ({other}))"
    return f"({equal} == bool count({other})) * (count({one}) == bool count({other}))"


def most_lines(query):
    """The number of lines that the query's topk() calls allow. A topk() inside another adds none."""
    most, depth, inside = 0, 0, None
    for found in re.finditer(r"topk\((\d+),|\(|\)", query):
        if found[0] == ")":
            depth -= 1
            inside = None if inside == depth else inside
            continue
        if found[1] and inside is None:
            most, inside = most + int(found[1]), depth
        depth += 1
    return most or FEW


def fleet_test(kind, board):
    """Each node has its own cluster, model and device name. The first drive hangs; half of the others spin, and are slow."""
    series = []
    for number in range(NODES):
        cluster, name, device = f"c{number}", f"n{number}", f"d{number}"
        series += node(kind, cluster, name, [device])
        sizes = ("le_4KiB",) if number % 2 else ("gt_1MiB",)
        series += drive(kind, cluster, name, device, f"m{number}", number % 2 == 1, number == 0, sizes=sizes)
        series += slow_volume(cluster, name, device)
        series += sick_drive(cluster, name, device, f"m{number}", score=number)
    conditions = []
    of_panels = collections.Counter()
    for panel, title, place, query in queries(board):
        most, query = most_lines(query), chosen(query)
        of_panels[title] += most
        if panel == "table":
            conditions.append(f"count({query}) <= bool {most}")
        else:
            # Count all lines over all points.
            conditions.append(f"count(last_over_time(({query})[4m:1m])) <= bool {most}")
        if title == "Worst claims now" and place == 0:
            conditions.append(f"(count({query}) == bool 20) * (max({query}) == bool {HANGS_FOR})")
        if title == "Worst drives now":
            # The hung drive has no latencies.
            conditions.append(f"count({query}) >= bool 19")
        if title == "Worst drives now" and place == 0:
            conditions.append(f"max({query}) == bool {HANGS_FOR}")
        if title == "Worst drives now" and place == 7:
            conditions.append(f"sum({query}) == bool 0")
        if title == "Sickest drives":
            sickest = f"{(NODES - 1) / SMALL:.6f}" if place == 0 else SLOWDOWN
            conditions.append(f"(count({query}) == bool 20) * (max({query}) == bool {sickest})")
        if title == "Sickest drives" and place == 1:
            conditions.append(f"count(count by (op, size) (({query}) == {SLOWDOWN})) == bool 1")
        if title == "$op: p99 by device":
            conditions.append(f'count(({query}) and on (device) biolat_device_info{{rotational="0"}}) == bool 20')
    assert max(of_panels.values()) <= 1000, of_panels.most_common(1)
    return test("lines of panels", series, conditions)


def choice_test(kind, board):
    """Drives of three models with the same name, in two clusters and without one. One model has no dispatch timestamps."""
    series = []
    for cluster in ("a", "b", None):
        for name in ("x", "y", "z"):
            series += node(kind, cluster, name, ["sda"])
            phases = () if name == "z" else ("admission", "queue", "device")
            both = {"ops": ("read", "flush"), "sizes": ("le_4KiB", "gt_1MiB")}
            series += drive(kind, cluster, name, "sda", f"model {name}", phases=phases, **both)
            series += sick_drive(cluster, name, "sda", f"model {name}", score=1)
    conditions = []
    for panel, title, place, query in queries(board):
        if "$model" in query and "$node" in query:
            for cluster in ("a", ".*"):
                by_model = chosen(query, cluster=cluster, model="model x")
                by_node = chosen(query, cluster=cluster, node="x")
                conditions.append(same(by_model, by_node))
            # The same drives, chosen by name instead of All.
            conditions.append(same(chosen(query), chosen(query, device="sda")))
        if panel not in ("stat", "heatmap") and "topk(1," not in query:
            conditions.append(f"count(count by (cluster) ({chosen(query)})) == bool 3")
        if (title, place) in (("$op: p99 by device", 0), ("I/Os in flight, on average", 2), ("Worst drives now", 2)):
            conditions.append(f"count({chosen(query, model='model z')}) == bool 3")
        if title in ("All drives", "p99 by model"):
            conditions.append(f"count({chosen(query, model='model z')}) > bool 0")
    return test("models and clusters", series, conditions)


def ranking_test(kind, board):
    """A model with more drives than are recorded as the slowest, half of them spinning. Nodes are chosen by All and by name."""
    series = []
    for number in range(NODES):
        labels = {"model": "m", "spins": number % 2 == 1, "hangs": number == 0, "ops": ("read", "flush")}
        series += drive(kind, "c", f"n{number}", "sda", **labels)
    each = "|".join(f"n{number}" for number in range(NODES))
    ranked = [query for _, title, _, query in queries(board) if title in ("Worst p99", "Worst drives now")]
    return test("drives of one model", series, [same(chosen(query), chosen(query, node=f"({each})")) for query in ranked])


def test(name, series, conditions):
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [holds(condition) for condition in conditions],
    }


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, uid, rules in (("native", "biolat", "recording.yml"), ("classic", "biolat-classic", "recording-classic.yml")):
        board = json.loads((HERE / f"{uid}.json").read_text())
        rules = (HERE.parent / "prometheus" / rules).resolve()
        content = {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            # promtool's default order differs from run to run.
            "group_eval_order": re.findall(r"^  - name: (.+)$", rules.read_text(), re.MULTILINE),
            "tests": [fleet_test(kind, board), choice_test(kind, board), ranking_test(kind, board)],
        }
        (folder / f"{uid}.json").write_text(json.dumps(content, indent=0))


if __name__ == "__main__":
    main(sys.argv[1])
