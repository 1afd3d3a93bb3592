//! The page at `/`. Without a script it has a plain table of devices and links to the other endpoints; the script in `page/`
//! replaces the table with the live page.

mod day_table;

use std::{fmt::Write as _, sync::LazyLock, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use biolat_common::series::Phase;
use ring::digest::{SHA256, digest};

pub(super) use day_table::DayTable;

use biolat_model::{
    histogram::Histogram,
    losses,
    snapshot::{DeviceView, Inflight, SeriesView, Snapshot},
    text::{
        format::{self, NumberFormat, duration},
        sanitize,
        time::unix_seconds,
    },
};
use biolat_system::clock;

use super::serve_config::{SavedHistory, ServeConfig};
use crate::version;

// Assembled by `build.rs`. The script is one module, which browsers without module support ignore.
const STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.css"));
const LIVE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.html"));
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    include_str!(concat!(env!("OUT_DIR"), "/page.js"))
        .replace("LOSS_REASONS_OF_THE_DAEMON", &losses::to_json())
});
/// The icon, a heatmap with nine cells.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 3 3'%3E%3Cpath \
    fill='%23414487' d='M0 0h3v3H0z'/%3E%3Cpath fill='%2322a884' d='M0 2h2v1H0zM1 1h2v1H1z'/%3E%3Cpath fill='%23fde725' \
    d='M1 2h1v1H1zM2 1h1v1H2z'/%3E%3C/svg%3E";

/// Returns a policy that allows only the style and script above and requests to the page's own origin. It requires trusted
/// types, so that a drive's text cannot become markup.
pub(super) fn content_security_policy(live: bool) -> &'static str {
    static PLAIN: LazyLock<String> = LazyLock::new(|| {
        format!(
            "default-src 'none'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(STYLE)
        )
    });
    static LIVE: LazyLock<String> =
        LazyLock::new(|| format!("{}; script-src '{}'; connect-src 'self'", *PLAIN, hash(&SCRIPT)));
    if live { &LIVE } else { &PLAIN }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// Renders the page, without the script if `--no-ui` is given. `day` is the table of the worst minutes; `links` are paths and
/// descriptions of the other endpoints.
pub(super) fn render<'a>(
    snapshot: Option<&Snapshot>,
    day: &str,
    ServeConfig { live, saved, .. }: &ServeConfig,
    links: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    // Attributes that the script reads.
    let times = saved.as_ref().map(|SavedHistory { saved, range: [from, to], .. }| {
        let [saved, from, to] = [saved, from, to].map(|time| unix_seconds(*time));
        format!(" data-saved=\"{saved}\" data-from=\"{from}\" data-to=\"{to}\"")
    });
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"{}>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>biolat</title>\n\
         <link rel=\"icon\" href=\"{ICON}\">\n<style>{STYLE}</style>\n",
        times.unwrap_or_default()
    );
    if *live {
        page.push_str(LIVE);
    }
    plain(&mut page, snapshot, day, saved.as_ref());
    footer(&mut page, links);
    if *live {
        let _ = writeln!(page, "<script type=\"module\">{}</script>", *SCRIPT);
    }
    page
}

/// Appends the version and links to the other endpoints.
fn footer<'a>(page: &mut String, links: impl Iterator<Item = (&'a str, &'a str)>) {
    // Writing to a string cannot fail.
    let _ = write!(page, "<footer>biolat {}: latency of every block I/O.", escape(version::LONG));
    for (path, description) in links {
        let _ = write!(page, "<br><a href=\"{path}\">{path}</a>: {}", escape(description));
    }
    page.push_str("</footer>\n");
}

fn plain(page: &mut String, snapshot: Option<&Snapshot>, day: &str, saved: Option<&SavedHistory>) {
    page.push_str("<main id=\"plain\">\n<h1>biolat</h1>\n");
    if let Some(SavedHistory { saved, head, .. }) = saved {
        let saved = clock::local_with_date(unix_seconds(*saved));
        let host = escape(format::host(&head.host));
        let _ = writeln!(page, "<p>The history of {host}, saved at {saved}; not live.</p>");
    }
    match snapshot {
        None => page.push_str("<p>No data yet: the first collection has not finished.</p>\n"),
        Some(snapshot) if snapshot.devices.is_empty() && saved.is_some() => {}
        Some(snapshot) if snapshot.devices.is_empty() => {
            page.push_str("<p>There is no block device to show. New devices will appear here.</p>\n");
        }
        Some(snapshot) => devices(page, snapshot, saved.is_some()),
    }
    page.push_str(day);
    page.push_str("</main>\n");
}

fn devices(page: &mut String, snapshot: &Snapshot, is_saved: bool) {
    let life = snapshot.taken.duration_since(snapshot.started).unwrap_or_default();
    let life = duration(life.as_secs_f64());
    let _ = if is_saved {
        writeln!(page, "<p>Total latency since biolat started, {life} before the history was saved.</p>")
    } else {
        writeln!(
            page,
            "<p>Total latency since biolat started {life} ago. Reload the page for new values.</p>"
        )
    };
    for view in snapshot.devices.iter().filter(|view| view.inflight.is_hung()) {
        let _ = writeln!(page, "<p class=\"bad\">{}</p>", escape(&overdue(view)));
    }
    let _ = writeln!(
        page,
        "<div><table>\n<thead><tr><th>device<th>model<th class=\"n\">in flight<th class=\"n\">oldest<th>op<th class=\"n\">I/Os\
         <th class=\"n\">mean<th class=\"n\">p50<th class=\"n\">p99<th class=\"n\">errors<th>phases</thead>"
    );
    for view in &snapshot.devices {
        for (place, series) in view.series.iter().enumerate() {
            row(page, view, series, place == 0);
        }
    }
    page.push_str("</table></div>\n");
    for view in snapshot.devices.iter().filter(|view| !view.lacks.is_empty()) {
        let _ = writeln!(page, "<p>{}</p>", escape(&view.lacks));
    }
}

/// Describes the I/O in flight of a hung device.
fn overdue(view: &DeviceView) -> String {
    let inflight = view.inflight;
    let ios = match inflight.reads + inflight.writes {
        0 => "I/O in the scheduler".to_owned(),
        1 => "1 I/O in flight".to_owned(),
        ios => format!("{ios} I/Os in flight"),
    };
    let since = if inflight.is_exact { "the oldest for" } else { "none completed for at least" };
    format!("{}: {ios}, {since} {}.", view.device.name, duration(inflight.oldest.as_secs_f64()))
}

/// Returns the number of I/Os in flight and the age of the oldest, as text.
fn inflight(inflight: Inflight) -> (String, String) {
    let age = NumberFormat::UNICODE.latency(inflight.oldest.as_secs_f64());
    let age = match (inflight.oldest, inflight.is_exact) {
        (Duration::ZERO, _) => "–".to_owned(),
        (_, true) => age,
        (_, false) => format!("≥ {age}"),
    };
    ((inflight.reads + inflight.writes).to_string(), age)
}

/// Appends a row for an op of a device. Figures of the device itself are only in its first row.
fn row(page: &mut String, view: &DeviceView, series: &SeriesView, is_first: bool) {
    let (ios, age) = if is_first { inflight(view.inflight) } else { Default::default() };
    let phases = Phase::ALL.into_iter().filter(|&phase| view.phases[phase as usize]).map(Phase::name);
    let total = &series.histograms[Phase::Total as usize];
    let mean = total.mean().map_or("–".to_owned(), |mean| NumberFormat::UNICODE.latency(mean));
    let _ = writeln!(
        page,
        "<tr><td>{}<td>{}<td class=\"n\">{ios}<td class=\"n\">{age}<td>{}<td class=\"n\">{}<td class=\"n\">{mean}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\
         <td>{}",
        escape(&view.device.name),
        escape(&view.device.description()),
        escape(&series.op),
        total.count(),
        percentile(total, 0.5),
        percentile(total, 0.99),
        series.errors.values().sum::<u64>(),
        phases.collect::<Vec<_>>().join(", "),
    );
}

fn percentile(histogram: &Histogram, share: f64) -> String {
    let percentile = histogram.percentile(share);
    percentile.map_or("–".to_owned(), |bounds| escape(&NumberFormat::UNICODE.bounds(bounds)))
}

fn escape(text: &str) -> String {
    sanitize::text(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use biolat_model::{
        device::Device,
        histogram::Histogram,
        snapshot::{DeviceView, HUNG, Inflight, Process, SeriesView, Snapshot},
    };

    use super::super::{routes::links, serve_config::ServeConfig};
    use super::{LIVE, SCRIPT, STYLE, content_security_policy, hash, percentile, render};

    fn snapshot(name: &str, histogram: &Histogram) -> Snapshot {
        let series = SeriesView {
            op: "read".to_owned(),
            histograms: std::array::from_fn(|_| histogram.clone()),
            errors: [("ioerr".into(), 3)].into(),
            ..SeriesView::default()
        };
        let device = Device { name: "sda".to_owned(), model: name.to_owned(), ..Device::default() };
        let now = SystemTime::now();
        Snapshot {
            taken: now,
            started: now,
            devices: vec![DeviceView {
                device,
                since: now,
                phases: [true; 4],
                series: vec![series],
                ..DeviceView::default()
            }],
            process: Some(Process::default()),
            online_cpus: Some(2),
            ..Snapshot::default()
        }
    }

    fn with_script(live: bool) -> ServeConfig {
        ServeConfig { live, ..ServeConfig::default() }
    }

    fn page_of(snapshot: Option<&Snapshot>, live: bool) -> String {
        let config = with_script(live);
        render(snapshot, "", &config, links(&config))
    }

    #[test]
    fn escapes_attributes_of_a_drive() {
        let snapshot = snapshot("<script>\"&\u{202e}", &Histogram::new());
        for live in [true, false] {
            let page = page_of(Some(&snapshot), live);
            assert!(page.contains("<td>sda<td>&lt;script&gt;&quot;&amp;\u{fffd}<td class=\"n\">0"), "{page}");
            assert_eq!(page.matches("<script").count(), usize::from(live));
        }
    }

    #[test]
    fn names_hung_devices() {
        let hanging = |inflight| {
            let mut snapshot = snapshot("", &Histogram::new());
            snapshot.devices[0].inflight = inflight;
            snapshot.devices[0].series.push(SeriesView { op: "write".to_owned(), ..SeriesView::default() });
            page_of(Some(&snapshot), false)
        };
        let inflight =
            Inflight { reads: 3, writes: 9, oldest: Duration::from_millis(16_400), is_exact: true };
        let page = hanging(inflight);
        assert!(
            page.contains("<p class=\"bad\">sda: 12 I/Os in flight, the oldest for 16.4 s.</p>"),
            "{page}"
        );
        assert!(page.contains("<td class=\"n\">12<td class=\"n\">16.4 s<td>read"), "{page}");
        assert!(page.contains("<td class=\"n\"><td class=\"n\"><td>write"), "{page}");
        let page = hanging(Inflight { is_exact: false, ..inflight });
        assert!(page.contains("sda: 12 I/Os in flight, none completed for at least 16.4 s."), "{page}");
        assert!(page.contains("<td class=\"n\">12<td class=\"n\">≥ 16.4 s<td>read"), "{page}");
        let page = hanging(Inflight { oldest: Duration::from_secs(3), ..inflight });
        assert!(page.contains("3.00 s<td>read") && !page.contains("class=\"bad\""), "{page}");
        assert!(hanging(Inflight::default()).contains("<td class=\"n\">0<td class=\"n\">–<td>read"));
    }

    #[test]
    fn content_security_policy_allows_style_and_script() {
        let page = page_of(None, true);
        let between = |start: &str, end: &str| {
            let (_, rest) = page.split_once(start).unwrap();
            hash(rest.split_once(end).unwrap().0)
        };
        let policy = content_security_policy(true);
        assert!(
            policy.contains(&format!("script-src '{}';", between("<script type=\"module\">", "</script>")))
        );
        assert!(policy.contains(&format!("style-src '{}';", between("<style>", "</style>"))));
        let plain = content_security_policy(false);
        assert!(plain.starts_with("default-src 'none';") && !plain.contains("script-src"), "{plain}");
        assert!(!page.contains("style=\"") && !page.contains("onclick="));
    }

    #[test]
    fn links_to_every_endpoint() {
        for live in [true, false] {
            let page = page_of(None, live);
            for (path, _) in links(&with_script(live)) {
                assert!(page.contains(&format!("<a href=\"{path}\">{path}</a>")), "{path}");
            }
        }
    }

    #[test]
    fn script_contains_loss_reasons() {
        assert!(SCRIPT.contains(&format!("const HUNG = {};", HUNG.as_secs())));
        assert!(SCRIPT.contains("\"no_room\":{") && !SCRIPT.contains("LOSS_REASONS_OF_THE_DAEMON"));
    }

    /// A small page loads fast on slow connections and keeps the binary small.
    #[test]
    fn page_is_small() {
        let size = STYLE.len() + LIVE.len() + SCRIPT.len();
        assert!(size < 114 << 10, "{size} bytes");
    }

    #[test]
    fn percentiles_are_the_middle_of_their_bucket() {
        let histogram = Histogram { zero: 2, buckets: vec![(-80, 97), (1, 1)], overflow: 0, sum_ns: 0 };
        assert_eq!(percentile(&histogram, 0.01), "&lt;954 ns");
        assert_eq!(percentile(&histogram, 0.5), "935 µs");
        assert_eq!(percentile(&histogram, 0.999), "1.04 s");
        assert_eq!(percentile(&Histogram::new(), 0.5), "–");
        assert_eq!(percentile(&Histogram { overflow: 1, ..Histogram::new() }, 0.5), "&gt;1024 s");
    }
}
