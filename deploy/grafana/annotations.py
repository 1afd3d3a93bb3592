"""The annotations in all panels: firing alerts and restarts of biolat."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from latencies import BY_DEVICE, BY_NODE, NODE, NOW, highest, most, without_other_models
from panels import DATASOURCE

# Some alerts have no device or no instance. A removed drive has no model, so its alerts are always shown.
FIRING = 'alertname=~"Block.*|Biolat.*", alertstate="firing"'
CHOSEN = 'cluster=~"$cluster", instance=~"$node|", device=~"$device|"'


class _Marks(dashboard.AnnotationQuery):
    """An annotation with the fields of Grafana's Prometheus data source."""

    def __init__(self, texts, **options):
        super().__init__(datasource=DATASOURCE, **options)
        self.texts = texts

    def to_json(self):
        return super().to_json() | self.texts


class _Mark(builders.AnnotationQuery):
    def __init__(self, name, color, expression, title, text, tags):
        texts = {"titleFormat": title, "textFormat": text, "tagKeys": tags, "step": "1m"}
        self._internal = _Marks(texts, name=name, icon_color=color, expr=expression)


def _alerts(window=NOW):
    firing = f"ALERTS{{{FIRING}, {CHOSEN}}}"
    value = firing if window == NOW else f"count_over_time({firing}{window})"
    return highest((*BY_DEVICE, "alertname", "severity"), without_other_models(value, window))


def _restarts(window=NOW):
    starts = f'process_start_time_seconds{{job=~"biolat.*", {NODE}}}'
    return f"{highest(BY_NODE, f'changes({starts}{window})')} > 0"


def annotations(board):
    board.annotation(
        _Mark("Alerts", "red", most(50, _alerts), "{{alertname}}", "{{cluster}} {{instance}} {{device}}", "severity")
    )
    board.annotation(_Mark("Restarts", "blue", most(50, _restarts), "biolat restarted", "{{cluster}} {{instance}}", ""))
