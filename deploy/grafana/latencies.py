"""Queries of native or classic histograms, restricted by the variables of the dashboard."""

# Label matchers for the variables at the top of the dashboard.
NODE = 'cluster=~"$cluster", instance=~"$node"'
DEVICE = f'{NODE}, device=~"$device"'
DEVICE_OP = f'{DEVICE}, op=~"$op"'
# The same, for series with a `model` label: recorded series and biolat_device_info.
FLEET = 'cluster=~"$cluster", model=~"$model"'
FLEET_DEVICE = f'{DEVICE}, model=~"$model"'

# Matchers that match nothing while all nodes, or all devices, are chosen: `(.*)(.*)` matches every name. If some are chosen, they
# match everything, because no name consists of two chosen names in a row.
IF_DRIVES_CHOSEN = ('instance!~"($node)($node)"', 'device!~"($device)($device)"')
# The same, also for clusters and models.
IF_ANY_CHOSEN = (*IF_DRIVES_CHOSEN, 'cluster!~"($cluster)($cluster)"', 'model!~"($model)($model)"')

# Matches drives in biolat_device_info, which also has volumes. Daemons before volumes have no kind.
IS_DRIVE = 'kind=~"drive|"'
# Drives that do not spin.
SOLID = f'biolat_device_info{{{FLEET_DEVICE}, rotational="0"}}'

BY_NODE = ("cluster", "instance")
BY_DEVICE = ("cluster", "instance", "device")

# Windows: the interval before each point of a panel, and the whole time range, which is the same at every point.
NOW = "[$__rate_interval]"
WHOLE = "[$__range] @ end()"


def without_other_models(expression, window):
    """Excludes drives of other models. While all models are chosen there are none, and the join costs nothing.

    Models are looked up over the window of the samples: a drive of another model stays excluded after its end.
    """
    others = f'biolat_device_info{{{DEVICE}, model!~"$model"}}'
    if window:
        others = f"last_over_time({others}{window})"
    return f"({expression} unless on ({', '.join(BY_DEVICE)}) {others})"


def _of_model(expression, labels, window):
    """Restricts an expression about devices to the chosen models."""
    return without_other_models(expression, window) if DEVICE in labels else expression


def rate(metric, labels, window=NOW):
    """The growth per second of a counter or a histogram."""
    return _of_model(f"rate({metric}{{{labels}}}{window})", labels, window)


def gauge(metric, labels, window=NOW):
    """A gauge, or its highest value over the whole time range."""
    series = f"{metric}{{{labels}}}"
    if window == NOW:
        return _of_model(series, labels, None)
    return _of_model(f"max_over_time({series}{window})", labels, window)


def recorded(metric, labels, window=NOW):
    """A recorded series, which has the label model."""
    series = f"{metric}{{{labels}}}"
    return series if window == NOW else f"max_over_time({series}{window})"


def of_drives(series, labels=FLEET_DEVICE, unless=IF_DRIVES_CHOSEN):
    """Series of drives, if some nodes or devices are chosen. Otherwise none: there would be too many."""
    return " or ".join(series(f"{labels}, {some}") for some in unless)


def of_fleet(of_models, drives, labels=FLEET_DEVICE, window=NOW):
    """Series of models while all nodes and devices are chosen, because they have neither label. Otherwise series of drives."""
    return f"{recorded(of_models, labels, window)} or {of_drives(lambda some: recorded(drives, some, window), labels)}"


def of_worst(worst, drives, labels):
    """Series of the chosen drives, or of the worst drives while all are chosen; those are a minute older."""
    return f"{of_drives(lambda part: f'{drives}{{{part}}}', labels, IF_ANY_CHOSEN)} or {worst}{{{labels}}}"


def summed(by, expression):
    """A sum by these labels."""
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def highest(by, expression):
    """The maximum by these labels."""
    return f"max by ({', '.join(by)}) ({expression})"


def most(count, query):
    """The lines with the highest values over the whole time range.

    A plain topk() chooses again at each point, and draws the union of all choices.
    """
    return f"({query(NOW)}) and topk({count}, {query(WHOLE)})"


def of_most(count, query, ranking, by=BY_DEVICE):
    """The lines of the devices that `ranking` puts highest over the whole time range."""
    return f"({query}) and on ({', '.join(by)}) topk({count}, {ranking(WHOLE)})"


def slowest(count, query, ranking=None):
    """The lines with the highest latencies over the whole time range: `count` of drives that do not spin, and `count` of all."""
    latencies = f"({(ranking or query)(WHOLE)})"
    solid = f"{latencies} and on ({', '.join(BY_DEVICE)}) {SOLID} @ end()"
    return f"({query(NOW)}) and (topk({count}, {solid}) or topk({count}, {latencies}))"


class Native:
    """Queries of native histograms: one series has all buckets."""

    title = "biolat"
    uid = "biolat"
    kind = "native"
    models = "model_op:biolat_device_latency_seconds:rate5m"
    total_of_models = "model_class_op:biolat_total_latency_seconds:rate5m"
    # The heatmap panel reads native histograms as time series.
    heatmap_format = "time_series"

    def histogram(self, metric, labels, by=(), window=NOW):
        return summed(by, rate(metric, labels, window))

    def of_models(self, labels):
        """The device latency, or the total latency of models and ops without a device latency."""
        device = f"{self.models}{{{labels}}}"
        total = summed(("cluster", "model", "op"), f"{self.total_of_models}{{{labels}}}")
        return summed((), f"({device} and histogram_count({device}) > 0) or {total}")

    def count(self, metric, labels, by=(), window=NOW):
        return f"histogram_count({self.histogram(metric, labels, by, window)})"

    def sum(self, metric, labels, by=(), window=NOW):
        return f"histogram_sum({self.histogram(metric, labels, by, window)})"

    def quantile(self, quantile, metric, labels, by=(), window=NOW):
        return f"histogram_quantile({quantile}, {self.histogram(metric, labels, by, window)})"


class Classic:
    """Queries of classic histograms: a series per bucket, one for the count and one for the sum."""

    title = "biolat (classic histograms)"
    uid = "biolat-classic"
    kind = "classic"
    models = "model_op_le:biolat_device_latency_seconds_bucket:rate5m"
    total_of_models = "model_class_op_le:biolat_total_latency_seconds_bucket:rate5m"
    heatmap_format = "heatmap"

    def histogram(self, metric, labels, by=(), window=NOW):
        return summed((*by, "le"), rate(f"{metric}_bucket", labels, window))

    def of_models(self, labels):
        """The device latency, or the total latency of models and ops without a device latency."""
        device = f"{self.models}{{{labels}}}"
        some = f'{self.models}{{{labels}, le="+Inf"}} > 0'
        total = summed(("cluster", "model", "op", "le"), f"{self.total_of_models}{{{labels}}}")
        return summed(("le",), f"({device} and on (cluster, model, op) {some}) or {total}")

    def count(self, metric, labels, by=(), window=NOW):
        return summed(by, rate(f"{metric}_count", labels, window))

    def sum(self, metric, labels, by=(), window=NOW):
        return summed(by, rate(f"{metric}_sum", labels, window))

    def quantile(self, quantile, metric, labels, by=(), window=NOW):
        return f"histogram_quantile({quantile}, {self.histogram(metric, labels, by, window)})"
