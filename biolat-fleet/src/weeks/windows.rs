//! Determines the I/O that the rules see at each evaluation: the last five minutes, or twenty for drives with little I/O.

use std::{
    collections::VecDeque,
    num::NonZero,
    panic::resume_unwind,
    thread::{self, available_parallelism},
};

use biolat_common::size::BANDS;

use super::super::{
    generator::time,
    model::{
        Node,
        work::{Ios, Work},
    },
};

/// A minute in milliseconds.
const MINUTE: i64 = 60_000;
/// Window of rates, in milliseconds.
pub(crate) const WINDOW: i64 = 5 * MINUTE;
/// Bytes that count as much load as one I/O.
const BYTES_PER_IO: f32 = 131_072.0;
/// Number of windows over which a quiet drive is judged. They cover about twenty minutes.
const QUIET_WINDOWS: usize = 5;
/// Reads and writes.
pub(crate) const OPS: usize = 2;

/// I/O of a drive in a window, per second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Window {
    pub(crate) ops: [OpWindow; OPS],
    /// Mean number of I/Os in the device, of all ops.
    pub(crate) depth: f32,
    /// Number of windows averaged here.
    pub(crate) lengths: f32,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct OpWindow {
    pub(crate) ios: f32,
    pub(crate) bytes: f32,
    pub(crate) bands: [BandWindow; BANDS],
}

#[derive(Clone, Copy, Default)]
pub(crate) struct BandWindow {
    pub(crate) ios: f32,
    pub(crate) seconds: f32,
}

impl Window {
    fn new(work: &Work) -> Self {
        let rate = |value: f64| (value * 1e3 / WINDOW as f64) as f32;
        let band = |ios: Ios| BandWindow { ios: rate(ios.count), seconds: rate(ios.seconds) };
        Self {
            ops: std::array::from_fn(|op| {
                let work = &work.ops[op];
                OpWindow { ios: rate(work.all().count), bytes: rate(work.bytes), bands: work.bands.map(band) }
            }),
            lengths: 1.0,
            depth: rate(work.ops.iter().map(|op| op.all().seconds).sum()),
        }
    }

    /// Returns the I/Os per second of all ops.
    fn ios(&self) -> f32 {
        self.ops.iter().map(|op| op.ios).sum()
    }

    /// Returns the load. 1 is one I/O, or 128 KiB, per second.
    pub(crate) fn load(&self) -> f32 {
        self.ops.iter().map(|op| op.ios + op.bytes / BYTES_PER_IO).sum()
    }

    fn mean<'a>(windows: impl ExactSizeIterator<Item = &'a Self>) -> Self {
        let lengths = windows.len() as f32;
        let mut mean = Self { lengths, ..Self::default() };
        for window in windows {
            mean.depth += window.depth / lengths;
            for (mean, op) in mean.ops.iter_mut().zip(&window.ops) {
                mean.ios += op.ios / lengths;
                mean.bytes += op.bytes / lengths;
                for (mean, band) in mean.bands.iter_mut().zip(&op.bands) {
                    mean.ios += band.ios / lengths;
                    mean.seconds += band.seconds / lengths;
                }
            }
        }
        mean
    }
}

/// Returns the window used to judge each drive at the end of `windows`: its last window or, with few I/Os, the mean of several.
pub(crate) fn judged(windows: &[Vec<Window>], quiet_ios: f32) -> Vec<Window> {
    let last = &windows[windows.len().saturating_sub(QUIET_WINDOWS)..];
    let of_drive = |drive: usize| {
        let mean = Window::mean(last.iter().map(|windows| &windows[drive]));
        if mean.ios() < quiet_ios { mean } else { last[last.len() - 1][drive] }
    };
    (0..last[0].len()).map(of_drive).collect()
}

/// Returns the windows of all drives, node by node, at each of these times, which are in milliseconds since the epoch.
pub(crate) fn windows(nodes: &mut [Node], times: &[i64]) -> Vec<Vec<Window>> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let share = nodes.len().div_ceil(threads);
    let parts: Vec<Vec<Vec<Window>>> = thread::scope(|scope| {
        let of_nodes = |nodes| scope.spawn(move || windows_of_nodes(nodes, times));
        let threads: Vec<_> = nodes.chunks_mut(share).map(of_nodes).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    (0..times.len()).map(|at| parts.iter().flat_map(|part| part[at].iter().copied()).collect()).collect()
}

fn windows_of_nodes(nodes: &mut [Node], times: &[i64]) -> Vec<Vec<Window>> {
    let mut windows = vec![Vec::new(); times.len()];
    for node in nodes {
        node.record_work_only();
        // Work at the end of each minute of the current window.
        let mut works: VecDeque<Vec<Work>> = VecDeque::new();
        let mut at = times.first().map_or(0, |first| first - WINDOW);
        for (&now, windows) in times.iter().zip(&mut windows) {
            while at <= now {
                node.advance(time(at));
                works.push_back(node.works());
                at += MINUTE;
            }
            works.drain(..works.len() - (WINDOW / MINUTE) as usize - 1);
            if let (Some(before), Some(after)) = (works.front(), works.back()) {
                windows.extend(
                    after.iter().zip(before).map(|(after, before)| Window::new(&after.since(before))),
                );
            }
        }
    }
    windows
}
