//! The page at `/`: what this is, what it sees, and where to go from here.

use std::{fmt::Write as _, time::SystemTime};

use biolat_common::series::Phase;

use crate::{snapshot::Snapshot, version};

/// What the page may load and run: nothing but its own styles.
pub(super) fn content_security_policy(_live: bool) -> &'static str {
    "default-src 'none'; style-src 'unsafe-inline'"
}

/// Plain HTML, complete in itself.
pub(super) fn render(snapshot: Option<&Snapshot>, _live: bool) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>biolat</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\
         table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}}\
         td.n{{text-align:right}}</style>\n\
         <h1>biolat</h1>\n<p>Latency of every block I/O, for Prometheus. Version {}.</p>\n\
         <ul>\n<li><a href=\"/metrics\">/metrics</a>: the figures\n\
         <li><a href=\"/api/v1/snapshot\">/api/v1/snapshot</a>: the same as JSON\n<li><a href=\"/-/healthy\">/-/healthy</a>: \
         whether the process lives\n<li><a href=\"/-/ready\">/-/ready</a>: whether there are figures\n</ul>\n",
        escape(version::LONG)
    );
    match snapshot {
        None => page.push_str("<p>No figures yet: the first pass is under way.</p>\n"),
        Some(snapshot) => devices(&mut page, snapshot),
    }
    page
}

fn devices(page: &mut String, snapshot: &Snapshot) {
    if snapshot.devices.is_empty() {
        page.push_str("<p>There is no block device to show. One that appears will be.</p>\n");
        return;
    }
    let age = SystemTime::now().duration_since(snapshot.taken).unwrap_or_default().as_secs();
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "<h2>Devices</h2>\n<table>\n<tr><th>device<th>model<th>phases<th>op<th>I/Os<th>mean latency"
    );
    for view in &snapshot.devices {
        let phases = Phase::ALL.map(|phase| if view.phases[phase as usize] { phase.name() } else { "" });
        let phases = phases.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        for series in &view.series {
            let total = &series.histograms[Phase::Total as usize];
            let mean = match total.count() {
                0 => "–".to_owned(),
                count => format!("{:.0} µs", total.sum_seconds() * 1e6 / count as f64),
            };
            let _ = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{phases}<td>{}<td class=\"n\">{}<td class=\"n\">{mean}",
                escape(&view.device.name),
                escape(&view.device.model),
                escape(&series.op),
                total.count(),
            );
        }
    }
    let _ = writeln!(page, "</table>\n<p>Counted since biolat started; read {age} s ago.</p>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
