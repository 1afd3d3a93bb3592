"""The rows on hung I/O, and on slow and failed I/O."""

from latencies import BY_DEVICE, BY_NODE, DEVICE, DEVICE_OP, NODE, gauge, highest, most, of_most, rate, summed
from panels import lines, row

LEGEND = "{{cluster}} {{instance}} {{device}}"
TWENTY = "The twenty with the highest values over the time range."
OLDEST = "biolat_oldest_inflight_seconds"


def _panel(title, description, unit, expression, legend=LEGEND, **options):
    return lines(title, description, unit, (expression, legend), width=8, **options)


def _oldest(window):
    return highest(BY_DEVICE, gauge(OLDEST, DEVICE, window))


def hangs(board, _):
    by_op = (*BY_DEVICE, "op")
    row(
        board,
        "Hangs",
        _panel(
            "Oldest I/O in flight",
            "Age of the oldest I/O in flight, 0 if there is none. Where it is not exact, it is a lower bound: the "
            f"time with I/O in flight and no completion. {TWENTY}",
            "s",
            most(20, _oldest),
        ),
        _panel(
            "I/Os in flight now",
            f"I/Os dispatched to the driver and not completed, at the time of the collection. {TWENTY}",
            "short",
            most(20, lambda window: summed(by_op, gauge("biolat_inflight_ios", DEVICE, window))),
            f"{LEGEND} {{{{op}}}}",
        ),
        _panel(
            "Is the age exact?",
            "1 if the age of the oldest I/O is exact, 0 if it is a lower bound. Of the twenty drives with the oldest I/O.",
            "short",
            of_most(20, highest(BY_DEVICE, gauge("biolat_oldest_inflight_exact", DEVICE)), _oldest),
            maximum=1,
        ),
    )


def slow(board, _):
    over = (*BY_DEVICE, "over")
    status = (*BY_DEVICE, "op", "status")
    row(
        board,
        "Slow and failed I/Os",
        _panel(
            "Slow I/Os",
            "I/Os of all ops, including discards, whose total latency exceeded a threshold, per second. The page at / and "
            f"/api/v1/slow list the latest. {TWENTY}",
            "iops",
            most(20, lambda window: summed(over, rate("biolat_slow_ios_total", DEVICE, window))),
            f"{LEGEND} over {{{{over}}}} s",
        ),
        _panel(
            "Failed I/Os",
            f"Failed completions per second, of all ops and statuses. {TWENTY}",
            "iops",
            most(20, lambda window: summed(BY_DEVICE, rate("biolat_failed_ios_total", DEVICE, window))),
        ),
        _panel(
            "Failed I/Os by status",
            "Failed completions per second, by op and the kernel's block status. A status has no line before its first "
            f"errors, and the rate does not include those. {TWENTY}",
            "iops",
            most(20, lambda window: summed(status, rate("biolat_io_errors_total", DEVICE_OP, window))),
            f"{LEGEND} {{{{op}}}} {{{{status}}}}",
        ),
        _panel(
            "Requeues",
            "Requests per second that were requeued after their dispatch: the drive was busy, or a path failed. "
            f"{TWENTY}",
            "iops",
            most(20, lambda window: summed((*BY_DEVICE, "op"), rate("biolat_requeues_total", DEVICE_OP, window))),
            f"{LEGEND} {{{{op}}}}",
        ),
        _panel(
            "Failed I/Os by workload",
            "Failed completions per second, by the cgroup that the kernel charges. A workload has no line before its first "
            f"error. {TWENTY}",
            "iops",
            most(
                20,
                lambda window: summed(
                    (*BY_DEVICE, "cgroup"), rate("biolat_workload_failed_ios_total", DEVICE_OP, window)
                ),
            ),
            f"{LEGEND} {{{{cgroup}}}}",
        ),
        _panel(
            "Dropped records of slow I/Os",
            "Slow and failed I/Os per second that are missing from the lists because there were too many. Counters include them. "
            f"{TWENTY}",
            "iops",
            most(20, lambda window: summed(BY_NODE, rate("biolat_slow_records_dropped_total", NODE, window))),
            "{{cluster}} {{instance}}",
        ),
    )
