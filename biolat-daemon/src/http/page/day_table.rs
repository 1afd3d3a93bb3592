//! The table of the worst minutes of the last day, for the page without a script.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use biolat_history::{
    SharedHistory,
    worst::{Worst, WorstInterval},
};
use biolat_model::{
    period::{IN_FLIGHT, Period},
    text::{format::NumberFormat, time::unix_seconds},
};
use biolat_system::clock;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::escape;

const DAY: Duration = Duration::from_secs(26 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Makes the table, at most once a minute because making it reads the whole history.
pub(in crate::http) struct DayTable {
    history: SharedHistory,
    /// Range to show; `None`: the last day.
    range: Option<[SystemTime; 2]>,
    /// Allows one encoding of history at a time.
    encoder: Arc<Semaphore>,
    made: Mutex<Option<(Instant, Arc<str>)>>,
}

impl DayTable {
    pub(in crate::http) const fn new(
        history: SharedHistory,
        range: Option<[SystemTime; 2]>,
        encoder: Arc<Semaphore>,
    ) -> Self {
        Self { history, range, encoder, made: Mutex::new(None) }
    }

    /// Returns the table as HTML; empty if there is nothing to show.
    pub(in crate::http) async fn html(self: Arc<Self>) -> Arc<str> {
        if let Some(html) = self.latest() {
            return html;
        }
        // The semaphore is never closed.
        let permit = Arc::clone(&self.encoder).acquire_owned().await;
        let made = spawn_blocking(move || {
            let _permit = permit;
            // Another request may have made it in the meantime.
            self.latest().unwrap_or_else(|| self.make())
        });
        made.await.unwrap_or_default()
    }

    fn latest(&self) -> Option<Arc<str>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref().filter(|(at, _)| at.elapsed() < MINUTE).map(|(_, html)| Arc::clone(html))
    }

    fn make(&self) -> Arc<str> {
        let [from, to] = self.range.unwrap_or_else(|| {
            let now = SystemTime::now();
            [now.checked_sub(DAY).unwrap_or(now), now]
        });
        let (selection, _) = self.history.select(from, to);
        let minutes = selection.into_periods(Some(MINUTE)).map(Period::summarized);
        let html = Arc::from(table(minutes));
        let made = (Instant::now(), Arc::clone(&html));
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        html
    }
}

fn table(minutes: impl Iterator<Item = Period>) -> String {
    let mut minutes = minutes.peekable();
    let Some(first) = minutes.peek() else { return String::new() };
    let since = clock::local_with_date(unix_seconds(first.began));
    let mut worst = Worst::default();
    minutes.for_each(|minute| worst.add(&minute));
    let rows = worst.end();
    let mut html = format!(
        "<h2>The worst minutes since {}</h2>\n<div><table>\n<thead><tr><th>begin<th>device<th>op<th class=\"n\">slowest\
         <th class=\"n\">I/Os<th class=\"n\">errors<th>completed<th>process<th>file</thead>\n",
        escape(&since)
    );
    for row in &rows {
        html.push_str(&html_row(row));
    }
    if rows.is_empty() {
        html.push_str("<tr><td colspan=\"9\">no I/O");
    }
    html.push_str("</table></div>\n");
    html
}

fn html_row(row: &WorstInterval) -> String {
    let ios = if row.op == IN_FLIGHT { "–".to_owned() } else { row.ios.to_string() };
    let errors = if row.errors > 0 { " bad" } else { "" };
    format!(
        "<tr><td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{ios}<td class=\"n{errors}\">{}<td>{}<td>{}<td>{}\n",
        clock::local_with_date(row.began),
        escape(&row.device),
        escape(&row.op),
        NumberFormat::UNICODE.latency(row.latency),
        row.errors,
        row.completed.map(clock::local).unwrap_or_default(),
        escape(&row.names.shown_process().unwrap_or_default()),
        escape(&row.names.shown_target().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use biolat_history::{HistoryLimits, SharedHistory};
    use biolat_model::{
        io_names::{IoFile, IoNames},
        period::Period,
        snapshot::SlowIo,
    };
    use biolat_testing::samples::{minute, slow_io};
    use tokio::sync::Semaphore;

    use super::{DayTable, table};

    fn minute_of(device: &str, number: u32, slowest_seconds: f64, errors: u64) -> Period {
        let mut minute = minute(1_700_000_000.0 + f64::from(number) * 60.0, "read", slowest_seconds, errors);
        minute.summary[0].device = device.into();
        minute
    }

    #[test]
    fn sorts_worst_first_and_escapes_names() {
        let mut day =
            vec![minute_of("sda", 0, 1e-3, 0), minute_of("<b>", 1, 1.3, 12), minute_of("sdb", 2, 2e-3, 0)];
        let file = IoFile { path: "/<b>".into(), ..IoFile::default() };
        let names = IoNames { file: Some(file), ..IoNames::default() };
        day[1].slow = vec![SlowIo { names, ..slow_io(1, "<b>") }];
        let html = table(day.into_iter());
        let rows: Vec<_> = html.lines().filter(|line| line.starts_with("<tr><td>")).collect();
        assert_eq!(rows.len(), 3);
        let expected =
            "<td>&lt;b&gt;<td>read<td class=\"n\">1.25 s<td class=\"n\">100<td class=\"n bad\">12<td>";
        assert!(rows[0].contains(expected) && rows[0].ends_with("<td><td>/&lt;b&gt;"), "{html}");
        assert!(rows[1].contains("<td>sdb<td>read<td class=\"n\">2.00 ms"), "{html}");
        assert!(!html.contains("<b>"));
    }

    /// Reading the whole history takes a while and is not repeated for each reload of the page.
    #[tokio::test]
    async fn makes_table_once_a_minute() {
        let limits = HistoryLimits { age: Duration::MAX, bytes: usize::MAX };
        let history = SharedHistory::new(limits, Duration::ZERO);
        let table = Arc::new(DayTable::new(history, None, Arc::new(Semaphore::new(1))));
        let html = Arc::clone(&table).html().await;
        assert_eq!(&*html, "");
        assert!(Arc::ptr_eq(&html, &table.html().await));
    }
}
