//! How long a measurement still takes, on a terminal.

use std::{
    future::pending,
    io::{IsTerminal as _, Write as _, stderr, stdout},
    time::{Duration, Instant},
};

use biolat_model::text::format;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{options::WindowOptions, source::Source};

/// A line on standard error that is drawn again every second, if that is a terminal and so is standard output.
pub(super) struct Progress {
    clock: Option<Interval>,
    began: Instant,
    /// When it is over; none if it goes on until Ctrl-C.
    length: Option<Duration>,
    /// The characters that are drawn.
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

    /// Of one window, or of several of a known number; others show that they go on.
    pub(super) fn of_windows(source: &Source, options: &WindowOptions) -> Self {
        match (options.interval, options.count) {
            (Some(_), Some(count)) => {
                Self::new(Some(source.window().saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))))
            }
            (None, _) => Self::new(None),
            // Its windows show it.
            (Some(_), None) => Self { clock: None, ..Self::new(None) },
        }
    }

    /// Draws it every second. Cancel-safe.
    pub(super) async fn tick(&mut self) {
        let Some(clock) = &mut self.clock else { return pending().await };
        clock.tick().await;
        let passed = self.began.elapsed();
        let text = match self.length.map(|length| length.saturating_sub(passed)) {
            Some(left) => format!("measuring: {} left", format::duration(left.as_secs_f64().ceil())),
            None => {
                format!("measuring for {}; Ctrl-C ends it", format::duration(passed.as_secs_f64().round()))
            }
        };
        self.draw(&text);
    }

    /// Removes it from the terminal, before other output.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            self.draw("");
            self.draw("");
        }
    }

    /// Without escape sequences, which not every terminal has.
    fn draw(&mut self, text: &str) {
        // A terminal that is gone shows nothing more.
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
