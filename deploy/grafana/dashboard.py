#!/usr/bin/env python3
"""Generates biolat.json and biolat-classic.json: the same dashboard for native and for classic histograms.

Needs Python 3.11 or later and grafana-foundation-sdk, Grafana's own types for dashboards. With --check it writes nothing, and
fails if the committed files are stale or if faults.py misses one of the deliberate mistakes.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from annotations import annotations
from claims import WHO_LINK, claims
from daemon import figures
from devices import completions, details, latency, load
from fail_slow import fail_slow
from faults import faults
from fleet import fleet
from latencies import Classic, Native
from mistakes import undetected
from sizes import sizes
from unfinished import hangs, slow
from variables import variables
from volumes import volumes
from workloads import WHO, workloads

HERE = pathlib.Path(__file__).parent


def each(panels):
    """All panels, each row before its panels."""
    for panel in panels:
        yield panel
        yield from getattr(panel, "panels", None) or ()


def arrange(panels, top=0):
    """Places panels from left to right and top to bottom, as Grafana does: panels in a collapsed row take no room."""
    left = bottom = 0
    for panel in panels:
        place = panel.grid_pos
        if left + place.w > 24:
            left, top = 0, bottom
        place.x, place.y = left, top
        left, bottom = left + place.w, max(bottom, top + place.h)
        arrange(getattr(panel, "panels", None) or (), bottom)


def build(histograms):
    board = builders.Dashboard(histograms.title).uid(histograms.uid).tags(["biolat", "storage", "nvme", histograms.kind])
    board.description(f"Latency of block I/O, measured by biolat, from {histograms.kind} histograms.")
    board.time("now-1h", "now").refresh("1m").timezone("browser").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    board.readonly()
    variables(board)
    annotations(board)
    for part in (fleet, fail_slow, claims, hangs, slow, latency, load, workloads, sizes, completions, volumes, details, figures):
        part(board, histograms)
    built = board.build()
    arrange(built.panels)
    # Grafana assigns the dashboard's id on import. Panels keep their ids, because links contain them.
    for place, panel in enumerate(each(built.panels), 1):
        panel.id_val = place
        # Defaults, which take room: kubectl apply limits the size of the ConfigMap.
        panel.transparent = panel.repeat_direction = None
        for target in getattr(panel, "targets", None) or ():
            target.instant = target.instant or None
    who = next(panel.id_val for panel in each(built.panels) if panel.title == WHO)
    text = JSONEncoder(sort_keys=True, indent=1).encode(built).replace(WHO_LINK, f"viewPanel={who}")
    return text.replace("{\n", '{\n "id": null,\n', 1) + "\n"


def main():
    stale = []
    for histograms in (Native(), Classic()):
        path, text = HERE / f"{histograms.uid}.json", build(histograms)
        if found := list(faults(json.loads(text))):
            sys.exit("\n".join(f"{path.name}: {fault}" for fault in found))
        if "--check" not in sys.argv:
            path.write_text(text)
        elif missed := list(undetected(json.loads(text))):
            sys.exit("\n".join(f"{path.name}: {mistake}" for mistake in missed))
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)}: stale; run cargo xtask deploy --write grafana and commit the result")


if __name__ == "__main__":
    main()
