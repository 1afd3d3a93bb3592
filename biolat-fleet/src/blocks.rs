//! Measures the blocks of Prometheus' storage on disk: their size and the samples in them.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Totals of a set of blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) float_samples: u64,
    pub(crate) histogram_samples: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) index_bytes: u64,
}

#[derive(Deserialize)]
struct Meta {
    stats: Stats,
}

/// Statistics in `meta.json`. Prometheus omits zeros.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Stats {
    num_samples: u64,
    num_float_samples: u64,
    num_histogram_samples: u64,
}

impl Blocks {
    /// Adds up all blocks in a directory.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut sum = Self::default();
        for block in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let block = block?.path();
            let Ok(meta) = fs::read(block.join("meta.json")) else { continue };
            let Meta { stats } = serde_json::from_slice(&meta)?;
            let histograms = stats.num_histogram_samples;
            sum.histogram_samples += histograms;
            sum.float_samples += stats.num_float_samples.max(stats.num_samples - histograms);
            sum.index_bytes += fs::metadata(block.join("index"))?.len();
            for chunk in fs::read_dir(block.join("chunks"))? {
                sum.chunk_bytes += chunk?.metadata()?.len();
            }
        }
        Ok(sum)
    }

    pub(crate) fn samples(&self) -> u64 {
        self.float_samples + self.histogram_samples
    }

    pub(crate) fn bytes_per_sample(&self) -> f64 {
        (self.chunk_bytes + self.index_bytes) as f64 / self.samples().max(1) as f64
    }
}
