//! What is known by now, and what the person has chosen.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use ratatui::{buffer::Buffer, crossterm::event::KeyEvent};

use super::{
    draw::{View, draw},
    rows::{Row, ops, rows},
    state::{Asks, MOST_PASSES, Shown, State},
    words::{Look, time},
};
use crate::{
    api::Snapshot,
    log_lines,
    report::{
        options::Options,
        source::{News, Source},
        terminal::Terminal,
        window::Window,
    },
};

/// Windows that are kept for the history.
const HISTORY: usize = 60;

/// What is known by now.
pub(super) struct Live {
    state: State,
    look: Look,
    host: String,
    source: String,
    /// Between passes.
    interval: Duration,
    /// The latest, the oldest of them first.
    snapshots: VecDeque<Arc<Snapshot>>,
    windows: VecDeque<Window>,
    /// When the last window came.
    came: Option<Instant>,
    trouble: Option<(String, Instant)>,
    /// Passes until the end, if it was said when that is.
    left: Option<u64>,
}

impl Live {
    pub(super) fn of(source: &Source, options: &Options) -> Self {
        let (from, terminal) = (options.from.as_ref(), Terminal::of_output(options));
        Self {
            state: State::new(source.passes),
            look: Look { unicode: terminal.unicode, color: terminal.color },
            host: source.first.host.clone(),
            source: from.map_or_else(|| "own probe".to_owned(), ToString::to_string),
            interval: Duration::try_from_secs_f64(source.first.interval).unwrap_or_default(),
            snapshots: VecDeque::from([Arc::clone(&source.first)]),
            windows: VecDeque::new(),
            came: None,
            trouble: None,
            left: options.count.map(|windows| windows.saturating_mul(source.passes)),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Pass(snapshot) => self.pass(snapshot),
            News::Trouble(trouble) => {
                let since = self.trouble.take().map_or_else(Instant::now, |(_, since)| since);
                self.trouble = Some((trouble, since));
            }
        }
    }

    fn pass(&mut self, snapshot: Arc<Snapshot>) {
        self.trouble = None;
        self.left = self.left.map(|left| left.saturating_sub(1));
        // Of a daemon that began anew, all but the last one tell nothing more.
        if let Some(last) = self.snapshots.back()
            && last.started != snapshot.started
        {
            self.snapshots.drain(..self.snapshots.len() - 1);
        }
        self.snapshots.push_back(snapshot);
        self.snapshots.drain(..self.snapshots.len().saturating_sub(MOST_PASSES as usize + 1));
        if !self.state.is_paused {
            self.look_again();
        }
    }

    /// A window as long as is wanted now, up to the last snapshot.
    fn look_again(&mut self) {
        let Some(after) = self.snapshots.back() else { return };
        let place = self.snapshots.len().saturating_sub(1 + self.state.passes as usize);
        self.windows.push_back(Window::between(&self.snapshots[place], after));
        self.windows.drain(..self.windows.len().saturating_sub(HISTORY));
        self.came = Some(Instant::now());
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Asks {
        let rows = self.rows();
        let ops = self.windows.back().map(ops).unwrap_or_default();
        self.state.apply(key, &Shown { rows: &rows, ops: &ops })
    }

    fn rows(&self) -> Vec<Row> {
        self.windows.back().map(|window| rows(window, &self.state)).unwrap_or_default()
    }

    pub(super) fn draw(&self, buffer: &mut Buffer) {
        let trouble = self.trouble.as_ref().map(|(trouble, since)| {
            let ago = time(Duration::from_secs(since.elapsed().as_secs()));
            format!("no answer for {ago}, trying again: {trouble}")
        });
        let logged = log_lines::last_held();
        let view = View {
            state: &self.state,
            windows: &self.windows,
            rows: &self.rows(),
            host: &self.host,
            source: &self.source,
            interval: self.interval,
            age: self.came.map(|came| came.elapsed()),
            trouble: trouble.as_deref(),
            logged: logged.as_deref(),
            look: self.look,
        };
        draw(buffer, &view);
    }
}
