//! Determines which drives and nodes are slow for their work at a given time, like the rules of the group `biolat-fail-slow`.

use biolat_common::size::BANDS;

use super::{
    medians::{Figures, Groups, Median},
    thresholds::Thresholds,
    windows::{OPS, OpWindow, Window},
};

/// Minimum I/Os per second to judge a size. In a longer window, fewer are sufficient.
const MIN_IOS: f32 = 0.05;
/// Factor from the median absolute deviation to the standard deviation.
const MAD_TO_DEVIATION: f32 = 1.4826;
/// Number of combinations of op and size.
pub(crate) const KINDS: usize = OPS * BANDS;

/// Location and model of a drive, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) cluster: u64,
    pub(crate) node: u64,
    pub(crate) model: u64,
}

/// Verdict on one drive.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Verdict {
    pub(crate) is_slow: bool,
    pub(crate) is_stalled: bool,
    /// Bit mask of ops and sizes.
    pub(crate) slow_kinds: u16,
}

/// Verdicts at one time. Nodes are numbered by [`Place::of_model`].
pub(crate) struct Verdicts {
    pub(crate) drives: Vec<Verdict>,
    pub(crate) slow_nodes: Vec<u64>,
}

/// Mean latency of a drive's I/Os of one op and size, and its peers.
struct Mean {
    drive: usize,
    kind: usize,
    /// The group of peers: model, op, size and class of work, packed into a number.
    peers: u64,
    /// I/Os per second, scaled to a window of the usual length.
    ios: f32,
    seconds: f32,
}

/// A drive's I/Os of one op and size, compared with its peers.
struct Compared {
    drive: usize,
    kind: usize,
    slowdown: f32,
    spread: f32,
}

impl Place {
    /// Identifies the drives of a model on a node.
    pub(crate) const fn of_model(self) -> u64 {
        self.node << 8 | self.model
    }
}

/// Step of load classes in `peers`: half a power of two.
const LOAD: u64 = 1;
const CLUSTER_BITS: u64 = 8;
const NODE_BITS: u64 = 16;

fn cohort(peers: u64, cluster: u64) -> u64 {
    peers << CLUSTER_BITS | cluster
}

pub(crate) fn judge(places: &[Place], windows: &[Window], thresholds: &Thresholds) -> Verdicts {
    let loads: Vec<f32> = windows.iter().map(Window::load).collect();
    let overloaded = overloaded(places, windows, &loads, thresholds);
    let means = means(places, windows, &loads, thresholds);
    let (medians, spreads) = peers(places, &means, thresholds);
    let compared: Vec<_> =
        means.iter().filter_map(|mean| compare(mean, places[mean.drive], &medians, &spreads)).collect();

    let kinds = |compared: &Compared| places[compared.drive].of_model() << 8 | compared.kind as u64;
    let shared_kinds = figures(compared.iter().map(|it| (kinds(it), it.slowdown)), thresholds.min_siblings);
    let mut verdicts = vec![Verdict::default(); places.len()];
    let (mut slowdowns, mut drive_spreads) = (Groups::default(), Groups::default());
    for it in &compared {
        let alone = it.slowdown / shared_kinds.get(kinds(it)).unwrap_or(1.0).max(1.0);
        let is_slow = alone > thresholds.size_factor && alone > (thresholds.size_spreads * it.spread).exp();
        if is_slow && !overloaded[it.drive] {
            verdicts[it.drive].slow_kinds |= 1 << it.kind;
        }
        slowdowns.add(it.drive as u64, it.slowdown);
        drive_spreads.add(it.drive as u64, it.spread);
    }
    let drives: Vec<_> = slowdowns
        .medians()
        .into_iter()
        .zip(drive_spreads.medians())
        .map(|(slowdown, spread)| (slowdown.group as usize, slowdown.value, spread.value))
        .collect();
    let of_model = |&(drive, slowdown, _): &(usize, f32, f32)| (places[drive].of_model(), slowdown);
    let shared_drives = figures(drives.iter().map(of_model), thresholds.min_siblings);
    for &(drive, slowdown, spread) in &drives {
        let alone = slowdown / shared_drives.get(places[drive].of_model()).unwrap_or(1.0).max(1.0);
        let is_beyond = |factor: f32, spreads: f32| {
            alone > factor && alone > (spreads * spread).exp() && !overloaded[drive]
        };
        let verdict = &mut verdicts[drive];
        verdict.is_slow = is_beyond(thresholds.factor, thresholds.spreads);
        verdict.is_stalled = is_beyond(thresholds.stall_factor, thresholds.stall_spreads);
    }
    Verdicts { drives: verdicts, slow_nodes: slow_nodes(places, windows, &drives, thresholds) }
}

/// Returns which drives are doing different work: they have more load than their siblings and a full queue, or much more load.
fn overloaded(places: &[Place], windows: &[Window], loads: &[f32], thresholds: &Thresholds) -> Vec<bool> {
    let siblings = figures(places.iter().zip(loads).map(|(place, &load)| (place.of_model(), load)), 1);
    let is_overloaded = |((place, window), load): ((&Place, &Window), &f32)| {
        let usual = siblings.get(place.of_model()).unwrap_or_default();
        *load > thresholds.other_work_factor * usual
            || *load > usual && window.depth >= thresholds.overload_inflight
    };
    places.iter().zip(windows).zip(loads).map(is_overloaded).collect()
}

/// Returns the medians of groups with at least this many values.
fn figures(values: impl Iterator<Item = (u64, f32)>, least: usize) -> Figures {
    let mut groups = Groups::default();
    values.for_each(|(group, value)| groups.add(group, value));
    let medians = groups.medians().into_iter().filter(|median| median.count >= least);
    Figures::new(medians.map(|Median { group, value, .. }| (group, value)))
}

fn means(places: &[Place], windows: &[Window], loads: &[f32], thresholds: &Thresholds) -> Vec<Mean> {
    let halves = |value: f32| ((2.0 * value.log2()).floor() as i64 + 512) as u64;
    let mut means = Vec::new();
    for (drive, ((place, window), &load)) in places.iter().zip(windows).zip(loads).enumerate() {
        for (op, OpWindow { ios, bytes, bands }) in window.ops.iter().enumerate() {
            for (size, band) in bands.iter().enumerate() {
                if band.ios * window.lengths <= MIN_IOS {
                    continue;
                }
                let kind = op * BANDS + size;
                let work = halves(bytes / ios) << 10 | halves(load.max(thresholds.least_load));
                let peers = (place.model << 4 | kind as u64) << 20 | work;
                means.push(Mean {
                    drive,
                    kind,
                    peers,
                    ios: band.ios * window.lengths,
                    seconds: band.seconds / band.ios,
                });
            }
        }
    }
    means
}

/// Returns the median latency for the same work by peer group and cluster, and its spread by peer group.
fn peers(places: &[Place], means: &[Mean], thresholds: &Thresholds) -> (Figures, Figures) {
    // Each drive counts in its own load class and in the next lower and higher ones.
    let near = |mean: &Mean| [mean.peers - LOAD, mean.peers, mean.peers + LOAD];
    let mut of_nodes = Groups::default();
    for mean in means {
        let Place { cluster, node, .. } = places[mean.drive];
        for peers in near(mean) {
            of_nodes.add(cohort(peers, cluster) << NODE_BITS | node, mean.seconds);
        }
    }
    let (mut of_clusters, mut of_all) = (Groups::default(), Groups::default());
    let (mut in_clusters, mut in_all) = (Vec::<(u64, usize)>::new(), Vec::<(u64, usize)>::new());
    let count = |counts: &mut Vec<(u64, usize)>, group: u64, count: usize| match counts.last_mut() {
        Some((last, sum)) if *last == group => *sum += count,
        _ => counts.push((group, count)),
    };
    for median in of_nodes.medians() {
        let cohort = median.group >> NODE_BITS;
        of_clusters.add(cohort, median.value);
        count(&mut in_clusters, cohort, median.count);
        of_all.add(cohort >> CLUSTER_BITS, median.value);
        count(&mut in_all, cohort >> CLUSTER_BITS, median.count);
    }
    let enough = |(median, (_, count)): (Median, (u64, usize))| {
        (median.group, (count >= thresholds.min_drives).then_some(median.value))
    };
    let of_all: Vec<_> = of_all.medians().into_iter().zip(in_all).map(enough).collect();
    let of_all = Figures::new(of_all.into_iter().filter_map(|(group, value)| Some((group, value?))));
    let of_clusters = of_clusters.medians().into_iter().zip(in_clusters).map(enough);
    let medians = Figures::new(
        of_clusters
            .filter_map(|(cohort, own)| Some((cohort, own.or_else(|| of_all.get(cohort >> CLUSTER_BITS))?))),
    );

    let (mut pooled, mut own) = (Groups::default(), Groups::default());
    for mean in means {
        for peers in near(mean) {
            let Some(median) = medians.get(cohort(peers, places[mean.drive].cluster)) else { continue };
            let deviation = (mean.seconds / median).ln().abs();
            pooled.add(peers, deviation);
            if peers == mean.peers {
                own.add(peers, deviation);
            }
        }
    }
    let own = Figures::new(own.medians().into_iter().map(|own| (own.group, own.value)));
    let spreads = Figures::new(pooled.medians().into_iter().map(|pooled| {
        let [pooled_spread, own] =
            [pooled.value, own.get(pooled.group).unwrap_or_default()].map(|it| MAD_TO_DEVIATION * it);
        let spread =
            if pooled_spread < thresholds.near_spread { pooled_spread } else { pooled_spread.max(own) };
        (pooled.group, spread.max(thresholds.min_spread))
    }));
    (medians, spreads)
}

/// Compares a drive with its peers, or returns `None` if it has none.
fn compare(mean: &Mean, place: Place, medians: &Figures, spreads: &Figures) -> Option<Compared> {
    let own = medians.get(cohort(mean.peers, place.cluster))?;
    // Near saturation, a little more load makes a large difference.
    let more = medians.get(cohort(mean.peers + LOAD, place.cluster)).unwrap_or(own);
    let of_next = spreads.get(mean.peers + LOAD).unwrap_or_default();
    // The mean of only a few I/Os is noise.
    let certainty = 1.0 - MIN_IOS / (MIN_IOS + mean.ios);
    Some(Compared {
        drive: mean.drive,
        kind: mean.kind,
        slowdown: (mean.seconds / own.max(more)).powf(certainty),
        spread: spreads.get(mean.peers)?.max(of_next),
    })
}

/// Returns the nodes on which the drives of a model are slow together, without full queues.
fn slow_nodes(
    places: &[Place],
    windows: &[Window],
    drives: &[(usize, f32, f32)],
    thresholds: &Thresholds,
) -> Vec<u64> {
    let of_model = |drive: usize| places[drive].of_model();
    let slowdowns = figures(
        drives.iter().map(|&(drive, slowdown, _)| (of_model(drive), slowdown)),
        thresholds.min_drives,
    );
    let spreads = figures(drives.iter().map(|&(drive, _, spread)| (of_model(drive), spread)), 1);
    let depths =
        figures(places.iter().zip(windows).map(|(place, window)| (place.of_model(), window.depth)), 1);
    let is_slow = |&(group, slowdown): &(u64, f32)| {
        slowdown > thresholds.node_factor
            && slowdown > (thresholds.node_spreads * spreads.get(group).unwrap_or_default()).exp()
            && depths.get(group).unwrap_or_default() < thresholds.overload_inflight
    };
    slowdowns.iter().filter(is_slow).map(|(group, _)| group).collect()
}
