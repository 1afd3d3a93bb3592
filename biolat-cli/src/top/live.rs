//! The snapshots so far and the user's choices, which together make up the screen.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use biolat_client::Update;
use biolat_model::{snapshot::Snapshot, text::format::rounded_duration};
use biolat_system::{log_lines, terminal::Terminal};
use ratatui::{buffer::Buffer, crossterm::event::KeyEvent};

use super::{
    draw::draw,
    row::TopRow,
    rows::{has_admission, ops, rows},
    state::{Action, MAX_COLLECTIONS, Shown, TopState},
    view::TopView,
};
use crate::{cli::TopCommand, source::Source, window::Window};

/// Number of windows in the history column.
const HISTORY: usize = 60;

pub(super) struct Live {
    state: TopState,
    terminal: Terminal,
    host: String,
    source: String,
    /// Interval between collections.
    interval: Duration,
    /// The latest snapshots in chronological order.
    snapshots: VecDeque<Arc<Snapshot>>,
    windows: VecDeque<Window>,
    /// Time of the last window.
    updated: Option<Instant>,
    trouble: Option<(String, Instant)>,
    /// Collections until the end, if `count` was given.
    left: Option<u64>,
}

impl Live {
    pub(super) fn of(source: &Source, TopCommand { count, common, .. }: &TopCommand) -> Self {
        Self {
            state: TopState::new(source.collections),
            terminal: Terminal::of_stdout(common.color),
            host: source.first.host.clone(),
            source: source.place.clone(),
            interval: source.first.interval,
            snapshots: VecDeque::from([Arc::clone(&source.first)]),
            windows: VecDeque::new(),
            updated: None,
            trouble: None,
            left: count.map(|windows| windows.saturating_mul(source.collections)),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    pub(super) fn update(&mut self, update: Update) {
        match update {
            Update::Snapshot(snapshot) => self.push(snapshot),
            Update::Retrying(trouble) => {
                let since = self.trouble.take().map_or_else(Instant::now, |(_, since)| since);
                self.trouble = Some((trouble, since));
            }
        }
    }

    fn push(&mut self, snapshot: Arc<Snapshot>) {
        self.trouble = None;
        self.left = self.left.map(|left| left.saturating_sub(1));
        // After a restart, only the last snapshot before it is useful.
        if let Some(last) = self.snapshots.back()
            && last.started != snapshot.started
        {
            self.snapshots.drain(..self.snapshots.len() - 1);
        }
        self.snapshots.push_back(snapshot);
        self.snapshots.drain(..self.snapshots.len().saturating_sub(MAX_COLLECTIONS as usize + 1));
        if !self.state.is_paused {
            self.refresh();
        }
    }

    /// Adds a window of the chosen length up to the last snapshot.
    fn refresh(&mut self) {
        let Some(after) = self.snapshots.back() else { return };
        let place = self.snapshots.len().saturating_sub(1 + self.state.collections as usize);
        self.windows.push_back(Window::between(&self.snapshots[place], after));
        self.windows.drain(..self.windows.len().saturating_sub(HISTORY));
        self.updated = Some(Instant::now());
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        let rows = self.rows();
        let ops = self.windows.back().map(ops).unwrap_or_default();
        let has_admission = self.windows.back().is_some_and(has_admission);
        self.state.apply(key, &Shown { rows: &rows, ops: &ops, has_admission })
    }

    fn rows(&self) -> Vec<TopRow> {
        self.windows.back().map(|window| rows(window, &self.state)).unwrap_or_default()
    }

    pub(super) fn draw(&self, buffer: &mut Buffer) {
        let trouble = self.trouble.as_ref().map(|(trouble, began)| {
            let since = rounded_duration(Duration::from_secs(began.elapsed().as_secs()));
            format!("no answer for {since}, retrying: {trouble}")
        });
        let logged = log_lines::last_held();
        let view = TopView {
            state: &self.state,
            windows: &self.windows,
            rows: &self.rows(),
            host: &self.host,
            source: &self.source,
            interval: self.interval,
            age: self.updated.map(|updated| updated.elapsed()),
            trouble: trouble.as_deref(),
            logged: logged.as_deref(),
            terminal: self.terminal,
        };
        draw(buffer, &view);
    }
}
