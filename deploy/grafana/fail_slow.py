"""The row on fail-slow drives, from the recordings behind BlockDeviceFailSlow."""

from latencies import BY_DEVICE, FLEET_DEVICE, most, recorded
from panels import coloured, columns, lines, row

SCORE = "instance_device:biolat_slowdown:score1w"
SLOWDOWN = "instance_device_op_size:biolat_size_device_latency_seconds:topk_slowdown_rate5m"


def fail_slow(board, _):
    score = f"topk(20, {SCORE}{{{FLEET_DEVICE}}})"
    slowest = f"{SLOWDOWN}{{{FLEET_DEVICE}}} and on ({', '.join(BY_DEVICE)}) {score}"
    compared = "Compared with drives of the same model that have the same load and sizes"
    row(
        board,
        "Fail-slow drives",
        columns(
            "Sickest drives",
            f"The twenty drives with the highest score. {compared}. A score of 1 is a drive that has been twice as slow for a "
            "week; recent days count more. The slowdown is how many times as long the drive takes now, in the op and size in "
            "which it is slowest. Empty if no drive is slow. From recording rules.",
            [score, slowest],
            {
                "cluster": "Cluster",
                "instance": "Node",
                "device": "Device",
                "model": "Model",
                "Value #A": "Score",
                "Value #B": "Slowdown now",
                "op": "Op",
                "size": "Size",
            },
            order=(("Score", True),),
            width=14,
            properties={"Slowdown now": coloured(1.5, 2.5)},
        ),
        lines(
            "Score",
            f"{compared}. 1 is a drive that has been twice as slow for a week. The ten drives with the highest score within the "
            "time range. From a recording rule.",
            "short",
            (
                most(10, lambda window: recorded(SCORE, FLEET_DEVICE, window)),
                "{{cluster}} {{instance}} {{device}}",
            ),
            width=10,
            recorded=True,
        ),
    )
