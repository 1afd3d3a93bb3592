//! Shows on a terminal how much longer a measurement will take.

use std::{
    future::pending,
    io::{IsTerminal as _, Write as _, stderr, stdout},
    time::{Duration, Instant},
};

use biolat_model::text::format;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{options::WindowOptions, source::Source};

/// A line on standard error that is redrawn every second, if both standard error and standard output are terminals.
pub(super) struct Progress {
    clock: Option<Interval>,
    began: Instant,
    /// Length of the measurement. `None` if it runs until Ctrl-C.
    length: Option<Duration>,
    /// Number of characters drawn.
    drawn: usize,
}

impl Progress {
    pub(super) fn new(length: Option<Duration>) -> Self {
        let is_shown = stderr().is_terminal() && stdout().is_terminal();
        let clock = is_shown.then(|| {
            let mut clock = interval(Duration::from_secs(1));
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            clock
        });
        Self { clock, began: Instant::now(), length, drawn: 0 }
    }

    /// For one window, or a known number of them. Otherwise the windows themselves show progress.
    pub(super) fn of_windows(source: &Source, options: &WindowOptions) -> Self {
        match (options.interval, options.count) {
            (Some(_), Some(count)) => {
                Self::new(Some(source.window().saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))))
            }
            (None, _) => Self::new(None),
            // Its windows show progress.
            (Some(_), None) => Self { clock: None, ..Self::new(None) },
        }
    }

    /// Draws the line every second. Cancel-safe.
    pub(super) async fn tick(&mut self) {
        let Some(clock) = &mut self.clock else { return pending().await };
        clock.tick().await;
        let passed = self.began.elapsed();
        let text = match self.length.map(|length| length.saturating_sub(passed)) {
            Some(left) => format!("measuring: {} left", format::duration(left.as_secs_f64().ceil())),
            None => {
                format!("measuring for {}; Ctrl-C to stop", format::duration(passed.as_secs_f64().round()))
            }
        };
        self.draw(&text);
    }

    /// Removes the line from the terminal, before other output.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            self.draw("");
            self.draw("");
        }
    }

    /// Draws without escape sequences, which not every terminal supports.
    fn draw(&mut self, text: &str) {
        // A terminal that is gone shows nothing anyway.
        let _ = write!(stderr(), "\r{text:<0$}", self.drawn);
        let _ = stderr().flush();
        self.drawn = text.chars().count();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
