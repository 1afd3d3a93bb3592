//! The worst minutes of the last day, as a table of the page without a script.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use super::escape;
use crate::{
    api::{ApiInterval, IN_FLIGHT},
    clock,
    format::NumberFormat,
    history::SharedHistory,
    worst::{WorstInterval, worst},
};

const DAY: Duration = Duration::from_secs(26 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The table. It is made at most once a minute, as all of the history is read for it.
pub(in crate::http) struct DayTable {
    history: SharedHistory,
    made: Mutex<Option<(Instant, Arc<str>)>>,
}

impl DayTable {
    pub(in crate::http) fn new(history: SharedHistory) -> Self {
        Self { history, made: Mutex::new(None) }
    }

    /// As HTML; empty if there is nothing to show.
    pub(in crate::http) fn html(&self) -> Arc<str> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((at, html)) if at.elapsed() < MINUTE => Arc::clone(html),
            _ => Arc::clone(&made.insert((Instant::now(), self.make().into())).1),
        }
    }

    fn make(&self) -> String {
        let now = SystemTime::now();
        let (selection, _) = self.history.select(now.checked_sub(DAY).unwrap_or(now), now);
        let minutes = selection.into_periods(Some(MINUTE));
        table(&minutes.map(|period| ApiInterval::of(&period, true)).collect::<Vec<_>>())
    }
}

fn table(minutes: &[ApiInterval]) -> String {
    let Some(first) = minutes.first() else { return String::new() };
    let rows = worst(minutes);
    let mut html = format!(
        "<h2>The worst minutes since {}</h2>\n<div><table>\n<thead><tr><th>begin<th>device<th>op<th class=\"n\">slowest\
         <th class=\"n\">I/Os<th class=\"n\">errors<th>completed</thead>\n",
        clock::local_with_date(first.began)
    );
    for row in &rows {
        html.push_str(&of(row));
    }
    if rows.is_empty() {
        html.push_str("<tr><td colspan=\"7\">no I/O");
    }
    html.push_str("</table></div>\n");
    html
}

fn of(row: &WorstInterval<'_>) -> String {
    let ios = if row.op == IN_FLIGHT { "–".to_owned() } else { row.ios.to_string() };
    let errors = if row.errors > 0 { " bad" } else { "" };
    format!(
        "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{ios}<td class=\"n{errors}\">{}<td>{}\n",
        clock::local_with_date(row.began),
        escape(row.device),
        escape(row.op),
        NumberFormat::UNICODE.latency(row.latency),
        row.errors,
        row.completed.map(clock::local).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{DayTable, table};
    use crate::{
        api::{ApiInterval, ApiSummary},
        history::{HistoryLimits, SharedHistory},
        report::samples::slow_io,
    };

    fn minute(number: u32, device: &str, slowest_seconds: f64, errors: u64) -> ApiInterval {
        let began = 1_700_000_000.0 + f64::from(number) * 60.0;
        ApiInterval {
            began,
            taken: began + 60.0,
            seconds: 60.0,
            passes: 12,
            failures: 0,
            devices: vec![],
            summary: vec![ApiSummary {
                device: device.into(),
                op: "read".into(),
                ios: 100,
                bytes: 4096,
                errors,
                slowest_seconds,
            }],
            lost: Default::default(),
            slow: vec![],
            slow_dropped: 0,
        }
    }

    #[test]
    fn the_worst_is_first_and_names_are_escaped() {
        let mut day = vec![minute(0, "sda", 1e-3, 0), minute(1, "<b>", 4.3, 12), minute(2, "sdb", 2e-3, 0)];
        day[1].slow = vec![slow_io(1, "<b>")];
        let html = table(&day);
        let rows: Vec<_> = html.lines().filter(|line| line.starts_with("<tr><td>")).collect();
        assert_eq!(rows.len(), 3);
        let expected =
            "<td>&lt;b&gt;<td>read<td class=\"n\">1.25 s<td class=\"n\">100<td class=\"n bad\">12<td>";
        assert!(rows[0].contains(expected), "{html}");
        assert!(rows[1].contains("<td>sdb<td>read<td class=\"n\">2.00 ms"), "{html}");
        assert!(!html.contains("<b>"));
    }

    /// Reading all of the history takes a while: a reader who reloads the page does not repeat it.
    #[test]
    fn it_is_made_once_a_minute() {
        let history = SharedHistory::new(HistoryLimits { age: Duration::MAX, bytes: usize::MAX }, Duration::ZERO);
        let table = DayTable::new(history);
        let html = table.html();
        assert_eq!(&*html, "");
        assert!(Arc::ptr_eq(&html, &table.html()));
    }
}
