"""Queries for latencies, from native or from classic histograms."""

# Label matchers of the variables at the top of the dashboard.
NODE = 'cluster=~"$cluster", instance=~"$node"'
DEVICE = f'{NODE}, device=~"$device"'
DEVICE_OP = f'{DEVICE}, op=~"$op"'
FLEET = 'cluster=~"$cluster", model=~"$model"'
FLEET_DEVICE = f'{DEVICE}, model=~"$model"'


def rate(metric, labels):
    """Growth per second of a counter or a histogram."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def summed(by, expression):
    """A sum by these labels."""
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


class Native:
    """Native histograms: one series with all buckets."""

    title = "biolat"
    uid = "biolat"
    kind = "native"
    models = "model_op:biolat_device_latency_seconds:rate5m"
    # The heatmap panel reads native histograms as time series.
    heatmap_format = "time_series"

    def histogram(self, metric, labels, by=()):
        return summed(by, rate(metric, labels))

    def recorded(self, labels):
        return summed((), f"{self.models}{{{labels}}}")

    def count(self, metric, labels, by=()):
        return f"histogram_count({self.histogram(metric, labels, by)})"

    def sum(self, metric, labels, by=()):
        return f"histogram_sum({self.histogram(metric, labels, by)})"

    def quantile(self, quantile, metric, labels, by=()):
        return f"histogram_quantile({quantile}, {self.histogram(metric, labels, by)})"


class Classic:
    """Classic histograms: a series per bucket, one for the count and one for the sum."""

    title = "biolat (classic histograms)"
    uid = "biolat-classic"
    kind = "classic"
    models = "model_op_le:biolat_device_latency_seconds_bucket:rate5m"
    heatmap_format = "heatmap"

    def histogram(self, metric, labels, by=()):
        return summed((*by, "le"), rate(f"{metric}_bucket", labels))

    def recorded(self, labels):
        return summed(("le",), f"{self.models}{{{labels}}}")

    def count(self, metric, labels, by=()):
        return summed(by, rate(f"{metric}_count", labels))

    def sum(self, metric, labels, by=()):
        return summed(by, rate(f"{metric}_sum", labels))

    def quantile(self, quantile, metric, labels, by=()):
        return f"histogram_quantile({quantile}, {self.histogram(metric, labels, by)})"
