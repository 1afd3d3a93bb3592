"""The row on the sizes of requests, and what a size costs."""

from latencies import DEVICE_OP, most
from panels import heat_map, lines, row

LATENCY = "biolat_size_device_latency_seconds"
BY_SIZE = ("cluster", "op", "size")
LEGEND = "{{cluster}} {{op}} {{size}}"
OPS = "Reads, writes and zone appends of all chosen devices together."


def sizes(board, ask):
    def mean(window):
        count = ask.count(LATENCY, DEVICE_OP, BY_SIZE, window)
        return f"{ask.sum(LATENCY, DEVICE_OP, BY_SIZE, window)} / ({count} > 0)"

    def latencies(title, chosen):
        return heat_map(
            f"Device latency of requests {title}",
            f"Requests per second by latency; brighter is more. {OPS}",
            ask.histogram(LATENCY, f'{DEVICE_OP}, size=~"{chosen}"'),
            ask.heatmap_format,
            width=8,
        )

    row(
        board,
        "Request sizes",
        heat_map(
            "Sizes of requests",
            "Requests per second by size, of all chosen devices and ops; brighter is more. Each row is a power of two.",
            ask.histogram("biolat_io_size_bytes", DEVICE_OP),
            ask.heatmap_format,
            width=8,
            unit="bytes",
        ),
        lines(
            "IOPS by size",
            f"Requests per second by range of sizes. {OPS}",
            "iops",
            (most(20, lambda window: ask.count(LATENCY, DEVICE_OP, BY_SIZE, window)), LEGEND),
            width=8,
            stacked=True,
        ),
        lines(
            "Mean device latency by size",
            f"Where the kernel does not record the dispatch, the total latency. {OPS}",
            "s",
            (most(20, mean), LEGEND),
            width=8,
            log=True,
            minimum=None,
        ),
        lines(
            "p99 device latency by size",
            f"Where large requests are slow and small ones are not, it is the load and not the drive. {OPS}",
            "s",
            (most(20, lambda window: ask.quantile(0.99, LATENCY, DEVICE_OP, BY_SIZE, window)), LEGEND),
            width=8,
            log=True,
            minimum=None,
        ),
        latencies("up to 16 KiB", "le_4KiB|le_16KiB"),
        latencies("above 64 KiB", "le_256KiB|le_1MiB|gt_1MiB"),
    )
