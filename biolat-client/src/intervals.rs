//! Intervals of a history, one after another, read by a separate thread from a daemon's response or a file.

use anyhow::{Context as _, Error, Result, anyhow};
use biolat_model::{device::Selection, period::Period, snapshot::WorkloadView};
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};

/// Number of intervals to read ahead: each can take megabytes.
const AHEAD: usize = 2;

/// A history that is being read.
pub struct Intervals<H> {
    /// Everything before the intervals.
    pub head: H,
    intervals: mpsc::Receiver<Result<Period>>,
}

/// Receives what the thread reads, the head first.
pub struct IntervalSink<H> {
    head: Option<oneshot::Sender<Result<H>>>,
    intervals: mpsc::Sender<Result<Period>>,
    selection: Option<Selection>,
}

impl<H: Send + 'static> Intervals<H> {
    /// Starts reading and waits for the head. A later error is returned instead of an interval.
    pub async fn begin(
        selection: Option<Selection>,
        read: impl FnOnce(&mut IntervalSink<H>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (head_sender, head) = oneshot::channel();
        let (sender, intervals) = mpsc::channel(AHEAD);
        spawn_blocking(move || {
            let mut sink = IntervalSink { head: Some(head_sender), intervals: sender, selection };
            if let Err(error) = read(&mut sink) {
                match sink.head.take() {
                    Some(head) => _ = head.send(Err(error)),
                    None => _ = sink.intervals.blocking_send(Err(error)),
                }
            }
        });
        let head = head.await.context("a history without a head")??;
        Ok(Self { head, intervals })
    }

    /// The next interval. `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Period>> {
        self.intervals.recv().await.transpose()
    }
}

impl<H> IntervalSink<H> {
    /// Delivers the head.
    pub fn head(&mut self, head: H) -> Result<()> {
        let sender = self.head.take().context("a second head")?;
        sender.send(Ok(head)).map_err(|_| abandoned())
    }

    /// Delivers an interval, without other devices. Waits until there is room for it.
    pub fn interval(&mut self, mut interval: Period) -> Result<()> {
        if let Some(selection) = &self.selection {
            interval.workloads.iter_mut().for_each(|workloads| select_workloads(workloads, selection));
            interval.devices.retain(|view| selection.shows(&view.device.name));
            interval.summary.retain(|summary| selection.shows(&summary.device));
            interval.slow.retain(|io| selection.shows(&io.device));
        }
        self.intervals.blocking_send(Ok(interval)).map_err(|_| abandoned())
    }
}

/// Removes the workloads' usage of devices that are not selected.
pub fn select_workloads(workloads: &mut Vec<WorkloadView>, selection: &Selection) {
    for workload in &mut *workloads {
        workload.usage.retain(|usage| selection.shows(&usage.device));
    }
    workloads.retain(|workload| !workload.usage.is_empty());
}

/// Nobody sees this message.
fn abandoned() -> Error {
    anyhow!("nobody takes what is read")
}
