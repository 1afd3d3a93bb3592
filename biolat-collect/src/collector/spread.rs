//! Distribution of a device's completions over the CPUs. A CPU that takes nearly all of them limits the drive.

use std::time::Duration;

use biolat_model::snapshot::CpuSpread;
use biolat_system::cpus::CpuNodes;

/// Time after which a completion weighs half as much.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Completions of one device by CPU.
#[derive(Default)]
pub(super) struct Spread {
    counted: Vec<u64>,
    /// Weighted counts of the latest completions.
    recent: Vec<f64>,
}

impl Spread {
    /// Creates a distribution from completions that do not count as recent.
    pub(super) fn of(counted: Vec<u64>) -> Self {
        Self { counted, recent: Vec::new() }
    }

    /// Sets the completions so far, `elapsed` after the last call.
    pub(super) fn set(&mut self, counted: Vec<u64>, elapsed: Duration) {
        let weight = (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.counted.resize(counted.len(), 0);
        self.recent.resize(counted.len(), 0.0);
        for ((recent, before), now) in self.recent.iter_mut().zip(&self.counted).zip(&counted) {
            *recent = *recent * weight + now.saturating_sub(*before) as f64;
        }
        self.counted = counted;
    }

    /// Returns the distribution for the snapshot, for a device on this NUMA node.
    pub(super) fn view(&self, node: Option<u32>, nodes: &CpuNodes) -> CpuSpread {
        let sum: f64 = self.recent.iter().sum();
        // Less than one completion in the last few minutes says nothing.
        let has_recent = sum >= 1.0;
        let shares = || self.recent.iter().map(|recent| recent / sum);
        let off_node = |node: u32| -> f64 {
            shares()
                .enumerate()
                .filter(|(cpu, _)| nodes.of(*cpu).is_some_and(|other| other != node))
                .map(|(_, share)| share)
                .sum()
        };
        CpuSpread {
            completions: self.counted.clone(),
            effective_cpus: has_recent.then(|| 1.0 / shares().map(|share| share * share).sum::<f64>()),
            largest_share: has_recent.then(|| shares().fold(0.0, f64::max)),
            off_node_share: node.filter(|_| has_recent && !nodes.is_empty()).map(off_node),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Spread;
    use biolat_system::cpus::CpuNodes;

    #[test]
    fn computes_shares_of_recent_completions() {
        let nodes = CpuNodes([(0, 0), (1, 0), (2, 1), (3, 1)].into());
        let mut spread = Spread::default();
        let nothing = spread.view(Some(0), &nodes);
        assert_eq!(
            (nothing.effective_cpus, nothing.largest_share, nothing.off_node_share),
            (None, None, None)
        );
        spread.set(vec![100, 100, 100, 100], Duration::ZERO);
        let even = spread.view(Some(0), &nodes);
        assert_eq!(
            (even.effective_cpus, even.largest_share, even.off_node_share),
            (Some(4.0), Some(0.25), Some(0.5))
        );
        // Two half-lives later, the first ones weigh 25 each.
        spread.set(vec![100, 100, 100, 1000], Duration::from_secs(120));
        let piled_up = spread.view(None, &nodes);
        assert_eq!((piled_up.largest_share, piled_up.off_node_share), (Some(0.925), None));
        assert!(
            (piled_up.effective_cpus.unwrap() - 1.0 / (0.925 * 0.925 + 3.0 * 0.025 * 0.025)).abs() < 1e-9
        );
        assert_eq!(piled_up.completions, [100, 100, 100, 1000]);
        spread.set(vec![100, 100, 100, 1000], Duration::from_secs(3600));
        assert_eq!(spread.view(None, &nodes).effective_cpus, None);
    }
}
