//! Writes the drives' I/O as CSV, to explore rules with other tools: one line per drive, op, size and five-minute window with
//! I/O.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write as _},
};

use anyhow::Result;
use biolat_common::{bucket::SCHEMA, series::Phase, size::BAND_SCHEMA};
use biolat_model::histogram::Histogram;

use super::{model::Node, serve::instance};

/// Length of a window in milliseconds.
const WINDOW: i64 = 300_000;

pub(crate) struct Dump {
    file: BufWriter<File>,
    /// Latencies and bytes at the end of the last window, by node, device, op and size.
    last: HashMap<[String; 4], (Histogram, u64)>,
}

impl Dump {
    pub(crate) fn new(mut file: BufWriter<File>) -> Result<Self> {
        writeln!(
            file,
            "time,cluster,instance,device,model,firmware,op,size,count,sum_seconds,p50,p90,p99,bytes"
        )?;
        Ok(Self { file, last: HashMap::new() })
    }

    /// Adds a node's lines at the end of a window. Latencies are device latencies; bytes are totals over all sizes.
    pub(crate) fn add(&mut self, node: &Node, now: i64) -> Result<()> {
        if now % WINDOW != 0 {
            return Ok(());
        }
        for view in node.snapshot().devices {
            for series in view.series {
                let [.., device, _] = series.histograms;
                debug_assert_eq!(Phase::Device as usize, 2);
                let bands = series.sizes.into_iter().flat_map(|sizes| sizes.bands);
                let bands =
                    bands.map(|band| (band.size, BAND_SCHEMA, band.device.at_most_schema_1().clone()));
                for (size, schema, latencies) in [("all".into(), SCHEMA, device)].into_iter().chain(bands) {
                    let key = [node.name(), &view.device.name, &series.op, &size].map(str::to_owned);
                    let last = self.last.insert(key, (latencies.clone(), series.bytes));
                    let Some((before, bytes)) = last else { continue };
                    let window = latencies.since(&before);
                    if window.count() == 0 {
                        continue;
                    }
                    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| percentile(&window, share, schema));
                    writeln!(
                        self.file,
                        "{},{},{},{},{},{},{},{size},{},{},{p50},{p90},{p99},{}",
                        now / 1000,
                        node.cluster(),
                        instance(node),
                        view.device.name,
                        view.device.model,
                        view.device.firmware,
                        series.op,
                        window.count(),
                        window.sum_seconds(),
                        series.bytes.saturating_sub(bytes),
                    )?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        Ok(self.file.flush()?)
    }
}

/// Returns the geometric mean of a percentile's bucket, with 2^schema buckets per power of two.
fn percentile(latencies: &Histogram, share: f64, schema: u32) -> f64 {
    let half = 0.5 / f64::from(1 << schema);
    latencies.percentile(share).map_or(f64::NAN, |bounds| bounds.upper * (-half).exp2())
}
