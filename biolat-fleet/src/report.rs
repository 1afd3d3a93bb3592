//! Formats the results as text.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

use anyhow::Result;
use serde::Serialize;

use super::{
    detection::Score,
    history::History,
    live::{Live, Memory, Rule},
    queries::Timed,
    table::{Table, number},
};

/// Prints results as text or JSON.
pub(crate) fn print<T: Display + Serialize>(figures: &T, is_json: bool) -> Result<()> {
    if is_json {
        println!("{}", serde_json::to_string_pretty(figures)?);
    } else {
        print!("{figures}");
    }
    Ok(())
}

const MIB: f64 = 1_048_576.0;

impl Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_drive = |value: f64| value / self.drives as f64;
        let mut table = Table::new(["", "total", "per drive", "per series"]);
        table.row([
            "exposed series".into(),
            format!("{:.0}", self.exposed_series),
            format!("{:.1}", per_drive(self.exposed_series)),
            String::new(),
        ]);
        table.row([
            "of which native histograms".into(),
            format!("{:.0}", self.exposed_histograms),
            format!("{:.1}", per_drive(self.exposed_histograms)),
            String::new(),
        ]);
        let empty = self.empty;
        let bytes = |name: String, value: f64, empty: f64, series: f64| {
            let own = value - empty;
            [
                name,
                format!("{:.0} MiB", value / MIB),
                format!("{:.1} KiB", per_drive(own) / 1024.0),
                format!("{:.2} KiB", own / series / 1024.0),
            ]
        };
        for (name, memory) in [("without rules", self.scraped), ("with rules", self.with_rules)] {
            let Memory { series, heap_bytes, resident_bytes } = memory;
            table.row([
                format!("series {name}"),
                format!("{series:.0}"),
                format!("{:.1}", per_drive(series)),
                String::new(),
            ]);
            table.row(bytes(format!("heap {name}"), heap_bytes, empty.heap_bytes, series));
            let (resident, before) = (resident_bytes as f64, empty.resident_bytes as f64);
            table.row(bytes(format!("resident {name}"), resident, before, series));
        }
        writeln!(
            f,
            "{} nodes, {} drives, scraped every {} s; memory per drive and series excludes an empty server's, {:.0} MiB of heap\n\n\
             {table}",
            self.nodes,
            self.drives,
            self.interval_seconds,
            empty.heap_bytes / MIB,
        )?;
        writeln!(
            f,
            "scraping: {:.0} samples/s, {:.2} µs of CPU time per sample, {:.1} % of a CPU\n\
             rules: {:.1} % of a CPU, {:.2} ms of CPU time per drive and evaluation\n\
             on disk: {:.2} bytes per sample, {:.2} without the index\n\
             {} samples recorded by the rule manager match a query\n",
            self.samples_per_second,
            self.scrape_cpu_us_per_sample,
            self.scrape_cpu_share * 100.0,
            self.rule_cpu_share * 100.0,
            self.rule_cpu_ms_per_drive,
            self.blocks_bytes_per_sample,
            self.chunk_bytes_per_sample,
            self.compared_samples,
        )?;
        let mut table = Table::new(["rule group", "rules", "ms", "ms per 1,000 drives"]);
        for group in &self.groups {
            let ms = group.seconds * 1e3;
            table.row([
                group.name.clone(),
                group.rules.to_string(),
                number(Some(ms), 1),
                number(Some(per_drive(ms) * 1000.0), 1),
            ]);
        }
        writeln!(f, "{table}")?;
        write_slowest_rules(f, &self.rules)?;
        if let Some(remote) = &self.remote_write {
            writeln!(
                f,
                "remote write 2.0: {} series and {} histogram samples in both servers, {:.2} bytes per sample; \
                 receiver: {:.2} µs of CPU time per sample, {:.0} MiB of heap\n",
                remote.series,
                remote.histogram_samples,
                remote.bytes_per_sample,
                remote.receiver_cpu_us_per_sample,
                remote.receiver_heap_bytes / MIB,
            )?;
        }
        write_queries(f, &self.queries)
    }
}

/// Maximum number of mistakes shown per alert. The JSON output has them all.
const MAX_MISTAKES: usize = 50;
/// Number of slowest queries and slowest rules shown. The JSON output has them all.
const SLOWEST: usize = 20;

fn write_slowest_rules(f: &mut fmt::Formatter<'_>, rules: &[Rule]) -> fmt::Result {
    let mut slowest: Vec<_> = rules.iter().collect();
    slowest.sort_unstable_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let mut table = Table::new(["slowest rules", "ms"]);
    for rule in slowest.into_iter().take(SLOWEST) {
        table.row([format!("{} in {}", rule.name, rule.group), number(Some(rule.seconds * 1e3), 1)]);
    }
    writeln!(f, "{table}")
}

fn write_queries(f: &mut fmt::Formatter<'_>, queries: &[Timed]) -> fmt::Result {
    let mut views: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for query in queries {
        views.entry((query.hours as u64, query.nodes, query.reads())).or_default().push(query);
    }
    let mut table = Table::new([
        "dashboard queries",
        "nodes",
        "reads",
        "queries",
        "failed",
        "all cold, ms",
        "all warm, ms",
        "slowest warm, ms",
        "slowest ever, ms",
    ]);
    for ((hours, nodes, reads), queries) in &views {
        let answered: Vec<_> = queries.iter().filter(|query| query.error.is_none()).collect();
        table.row([
            format!("{hours} h"),
            (*nodes).into(),
            (*reads).into(),
            queries.len().to_string(),
            (queries.len() - answered.len()).to_string(),
            number(Some(answered.iter().map(|query| query.cold_ms).sum()), 0),
            number(Some(answered.iter().map(|query| query.warm_ms).sum()), 0),
            number(answered.iter().map(|query| query.warm_ms).reduce(f64::max), 0),
            number(answered.iter().map(|query| query.slowest_ms).reduce(f64::max), 0),
        ]);
    }
    writeln!(f, "{table}")?;
    let mut slowest: Vec<_> = queries.iter().collect();
    slowest.sort_unstable_by(|one, other| other.warm_ms.total_cmp(&one.warm_ms));
    let mut table = Table::new([
        "slowest queries",
        "hours",
        "nodes",
        "reads",
        "cold, ms",
        "warm, ms",
        "slowest, ms",
        "series",
        "",
    ]);
    for query in slowest.into_iter().take(SLOWEST) {
        table.row([
            query.panel.clone(),
            format!("{:.0}", query.hours),
            query.nodes.into(),
            query.reads().into(),
            number(Some(query.cold_ms), 1),
            number(Some(query.warm_ms), 1),
            number(Some(query.slowest_ms), 1),
            query.series.to_string(),
            query.error.clone().unwrap_or_default().chars().take(70).collect(),
        ]);
    }
    write!(f, "{table}")
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} nodes, {} drives, {:.1} days: {} samples and {} histograms written in {:.0} s, {:.0} s of it for rules\n\
             {} faults, {} innocent events\n",
            self.nodes,
            self.drives,
            self.days,
            self.samples,
            self.histograms,
            self.seconds,
            self.rule_seconds,
            self.faults,
            self.innocent_events,
        )?;
        if let Some(failure) = &self.first_failure {
            writeln!(f, "{} rule evaluations failed; the first: {failure}\n", self.failed_evaluations)?;
        }
        let mut table = Table::new([
            "alert",
            "recall",
            "precision",
            "alarms",
            "false",
            "false per 1,000 drives and week",
        ]);
        for score in &self.scores {
            table.row([
                score.alert.clone(),
                number(score.recall(), 2),
                number(score.precision(), 2),
                score.alarms.to_string(),
                score.false_alarms.to_string(),
                number(Some(score.false_alarms_per_thousand_drives_and_week), 2),
            ]);
        }
        writeln!(f, "{table}")?;
        write_faults(f, &self.scores)?;
        write_false_alarms(f, &self.scores)?;
        write_mistakes(f, &self.scores)?;
        if self.queries.is_empty() { Ok(()) } else { write_queries(f, &self.queries) }
    }
}

fn write_faults(f: &mut fmt::Formatter<'_>, scores: &[Score]) -> fmt::Result {
    let mut table =
        Table::new(["alert", "fault", "faults", "found", "recall", "drives", "found", "median minutes"]);
    for score in scores {
        for (kind, found) in &score.faults {
            table.row([
                score.alert.clone(),
                kind.clone(),
                found.faults.to_string(),
                found.found.to_string(),
                number(Some(found.recall()), 2),
                found.drives.to_string(),
                found.found_drives.to_string(),
                number(found.median_minutes, 0),
            ]);
        }
    }
    writeln!(f, "{table}")
}

fn write_false_alarms(f: &mut fmt::Formatter<'_>, scores: &[Score]) -> fmt::Result {
    let mut table = Table::new(["alert", "innocent event", "false alarms"]);
    for score in scores {
        for (kind, count) in &score.false_alarms_by_kind {
            table.row([score.alert.clone(), kind.clone(), count.to_string()]);
        }
    }
    writeln!(f, "{table}")
}

fn write_mistakes(f: &mut fmt::Formatter<'_>, scores: &[Score]) -> fmt::Result {
    let mut table = Table::new(["alert", "mistake", "drive", "drives", "after hours", "minutes"]);
    for score in scores {
        for mistake in score.mistakes.iter().take(MAX_MISTAKES) {
            table.row([
                score.alert.clone(),
                mistake.missed.as_ref().map_or("false alarm".to_owned(), |kind| format!("missed: {kind}")),
                mistake.drive.clone(),
                mistake.drives.to_string(),
                number(Some(mistake.hours), 1),
                number(Some(mistake.minutes), 0),
            ]);
        }
    }
    writeln!(f, "{table}")
}
