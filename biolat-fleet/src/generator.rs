//! Generates the history of a fleet's metrics as remote write requests.

use std::{
    collections::HashSet,
    fs::File,
    io::BufWriter,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use biolat_model::snapshot::DeviceView;
use tokio::sync::mpsc;

use super::{
    dump::Dump,
    model::Node,
    remote_write::{Batch, Encoded, Labels},
    serve::{exposition, instance},
};

/// Time by which all nodes advance together. Prometheus rejects samples more than an hour older than its newest.
pub(crate) const CHUNK: Duration = Duration::from_secs(1800);

/// Returns the milliseconds since the epoch.
pub(crate) fn milliseconds(time: SystemTime) -> Result<i64> {
    Ok(i64::try_from(time.duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Converts milliseconds since the epoch to a time.
pub(crate) fn time(milliseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds.unsigned_abs())
}

/// Returns the labels of a node's drives.
pub(crate) fn drives_of(node: &Node) -> Vec<Labels> {
    let labels = |view: &DeviceView| {
        let device = &view.device;
        [
            ("cluster", node.cluster().to_owned()),
            ("instance", instance(node)),
            ("device", device.name.clone()),
            ("model", device.model.clone()),
            ("firmware", device.firmware.clone()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    };
    node.snapshot().devices.iter().map(labels).collect()
}

/// Generates the requests in the order in which they are sent: a chunk of all nodes, then the next chunk.
pub(crate) struct Generator {
    nodes: Vec<(Labels, Batch, Node)>,
    start: i64,
    chunks: i64,
    interval: i64,
    /// Metrics to write, or `None` for all.
    families: Option<HashSet<String>>,
    dump: Option<Dump>,
}

impl Generator {
    /// Creates a generator for these nodes, which begin at `start`.
    pub(crate) fn new(
        nodes: Vec<Node>,
        start: i64,
        chunks: i64,
        interval: Duration,
        families: Option<HashSet<String>>,
        dump: Option<&Path>,
    ) -> Result<Self> {
        let target = |node: Node| {
            let labels = [
                ("job", "biolat".to_owned()),
                ("cluster", node.cluster().to_owned()),
                ("instance", instance(&node)),
            ];
            let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            (labels, Batch::default(), node)
        };
        let create = |path: &Path| {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Dump::new(BufWriter::new(file))
        };
        Ok(Self {
            nodes: nodes.into_iter().map(target).collect(),
            start,
            chunks,
            interval: i64::try_from(interval.as_millis())?,
            families,
            dump: dump.map(create).transpose()?,
        })
    }

    /// Generates all requests. Returns the drives' labels as of the end, because their firmware may have changed.
    pub(crate) fn run(mut self, requests: &mpsc::Sender<Encoded>) -> Result<Vec<Labels>> {
        let chunk = CHUNK.as_millis() as i64;
        for number in 0..self.chunks {
            let begin = self.start + number * chunk;
            for (labels, batch, node) in &mut self.nodes {
                for now in (begin + self.interval..=begin + chunk).step_by(self.interval as usize) {
                    node.advance(time(now));
                    let is_wanted =
                        |name: &str| self.families.as_ref().is_none_or(|families| families.contains(name));
                    batch.add_exposition(&exposition(node), labels, now, is_wanted)?;
                    if let Some(dump) = &mut self.dump {
                        dump.add(node, now)?;
                    }
                }
                if requests.blocking_send(batch.encode()?).is_err() {
                    // The receiver is gone.
                    return Ok(Vec::new());
                }
            }
        }
        self.dump.map_or(Ok(()), Dump::finish)?;
        Ok(self.nodes.iter().flat_map(|(.., node)| drives_of(node)).collect())
    }
}
