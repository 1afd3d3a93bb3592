"""The row on request sizes and their latencies."""

from latencies import DEVICE_OP, most
from panels import heat_map, lines, row

LATENCY = "biolat_size_device_latency_seconds"
BY_SIZE = ("cluster", "op", "size")
LEGEND = "{{cluster}} {{op}} {{size}}"
OPS = "Reads, writes and zone appends of all chosen devices together."


def sizes(board, histograms):
    def mean(window):
        count = histograms.count(LATENCY, DEVICE_OP, BY_SIZE, window)
        return f"{histograms.sum(LATENCY, DEVICE_OP, BY_SIZE, window)} / ({count} > 0)"

    def latencies(title, chosen):
        return heat_map(
            f"Device latency of requests {title}",
            f"Requests per second by latency; brighter is more. {OPS}",
            histograms.histogram(LATENCY, f'{DEVICE_OP}, size=~"{chosen}"'),
            histograms.heatmap_format,
            width=8,
        )

    row(
        board,
        "Request sizes",
        heat_map(
            "Requests by size",
            "Requests per second by size, of all chosen devices and ops; brighter is more. Each row is a power of two.",
            histograms.histogram("biolat_io_size_bytes", DEVICE_OP),
            histograms.heatmap_format,
            width=8,
            unit="bytes",
        ),
        lines(
            "IOPS by size",
            f"Requests per second by range of sizes. {OPS}",
            "iops",
            (most(20, lambda window: histograms.count(LATENCY, DEVICE_OP, BY_SIZE, window)), LEGEND),
            width=8,
            stacked=True,
        ),
        lines(
            "Mean device latency by size",
            f"Total latency where the kernel does not timestamp the dispatch. {OPS}",
            "s",
            (most(20, mean), LEGEND),
            width=8,
            log=True,
            minimum=None,
        ),
        lines(
            "p99 device latency by size",
            f"If large requests are slow and small ones are not, the cause is the load, not the drive. {OPS}",
            "s",
            (most(20, lambda window: histograms.quantile(0.99, LATENCY, DEVICE_OP, BY_SIZE, window)), LEGEND),
            width=8,
            log=True,
            minimum=None,
        ),
        latencies("up to 16 KiB", "le_4KiB|le_16KiB"),
        latencies("above 64 KiB", "le_256KiB|le_1MiB|gt_1MiB"),
    )
