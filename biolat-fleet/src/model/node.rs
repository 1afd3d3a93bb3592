//! Models a node: its service, its drives, and the snapshots of its daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use biolat_model::{
    device::Device,
    snapshot::{Process, Snapshot},
};
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};

use super::{
    Random,
    drive::Drive,
    drive_model::DriveModel,
    noise::{BurstKind, Bursts, Noise, log_normal},
    service::{SERVICES, Service},
    work::Work,
};

/// Maximum time step for adding I/O, in seconds.
const STEP: f64 = 60.0;
/// One in this many drives is nearly idle, regardless of its node's load.
const IDLE_RATIO: u32 = 40;
/// Load factor of an idle drive.
pub(crate) const IDLE_LOAD: f64 = 0.002;

/// Periods of higher load on all drives of a node.
const LOAD_BURSTS: BurstKind = BurstKind {
    gap: 8.0 * 3600.0,
    shortest: 120.0,
    longest: 3.0 * 3600.0,
    length_index: 1.3,
    lowest: 1.3,
    highest: 6.0,
    height_index: 1.8,
};

/// A host. Nodes are independent of each other, so threads can advance them in parallel.
pub(crate) struct Node {
    name: String,
    cluster: String,
    service: &'static Service,
    busiest_hour: f64,
    load: [Noise; 2],
    load_bursts: Bursts,
    sizes: Noise,
    restarts: Vec<SystemTime>,
    started: SystemTime,
    now: SystemTime,
    drives: Vec<Drive>,
    random: Random,
}

impl Node {
    /// Creates a node. The seed determines its service and drive models.
    pub(crate) fn new(name: String, cluster: String, drives: usize, seed: u64, start: SystemTime) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let service = choose_service(random.random_range(0..100));
        let (main, other) =
            service.models.choose(&mut random).map_or_else(|| unreachable!(), |models| *models);
        let load = log_normal(0.5, &mut random);
        // A sixth of the drives are of the second model.
        let others = drives.div_ceil(6);
        let drives = (0..drives)
            .map(|number| {
                let model = if number + others < drives { main } else { other };
                let is_idle = random.random_ratio(1, IDLE_RATIO);
                let load = load * log_normal(0.15, &mut random) * if is_idle { IDLE_LOAD } else { 1.0 };
                Drive::new(device(&name, model, number), model, service, load, &mut random)
            })
            .collect();
        Self {
            name,
            cluster,
            service,
            busiest_hour: 14.0 + random.random_range(-2.0..2.0),
            load: [Noise::new(0.25, 3600.0, &mut random), Noise::new(0.15, 180.0, &mut random)],
            load_bursts: Bursts::new(LOAD_BURSTS, &mut random),
            sizes: Noise::new(0.03, 3600.0, &mut random),
            restarts: Vec::new(),
            started: start,
            now: start,
            drives,
            random,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(crate) const fn service(&self) -> &'static str {
        self.service.name
    }

    pub(crate) fn drives(&self) -> &[Drive] {
        &self.drives
    }

    pub(crate) fn drive_mut(&mut self, number: usize) -> &mut Drive {
        &mut self.drives[number]
    }

    /// Restarts the daemon at this time, which resets its counters.
    pub(crate) fn add_restart(&mut self, at: SystemTime) {
        self.restarts.push(at);
    }

    /// Records only the work of its drives from now on.
    pub(crate) fn record_work_only(&mut self) {
        self.drives.iter_mut().for_each(Drive::record_work_only);
    }

    /// Returns the work of all its drives, if it is recorded.
    pub(crate) fn works(&self) -> Vec<Work> {
        self.drives.iter().filter_map(|drive| drive.work().copied()).collect()
    }

    /// Adds the I/O since the last call, up to `until`.
    pub(crate) fn advance(&mut self, until: SystemTime) {
        while let Some(rest) = until.duration_since(self.now).ok().filter(|rest| !rest.is_zero()) {
            let step = rest.min(Duration::from_secs_f64(STEP));
            self.step(step);
            self.now += step;
            let (from, to) = (self.now - step, self.now);
            if self.restarts.iter().any(|&at| from < at && at <= to) {
                self.started = to;
                self.drives.iter_mut().for_each(Drive::reset);
            }
        }
    }

    fn step(&mut self, step: Duration) {
        let seconds = step.as_secs_f64();
        let at = seconds_since_epoch(self.now) + seconds / 2.0;
        let random = &mut self.random;
        let noise: f64 = self.load.iter_mut().map(|noise| noise.advance(seconds, random)).sum();
        let bursts = self.load_bursts.advance(seconds, random);
        let load = self.service.load(at, self.busiest_hour) * noise.exp() * bursts;
        let sizes = self.sizes.advance(seconds, random);
        for drive in &mut self.drives {
            drive.advance(at, seconds, load, sizes, random);
        }
    }

    /// Returns the snapshot that the daemon would take.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let start_time_seconds = seconds_since_epoch(self.started);
        Snapshot {
            taken: self.now,
            started: self.started,
            devices: self.drives.iter().map(|drive| drive.view(self.started)).collect(),
            lost: ["clock", "no_room", "recursion"].map(|reason| (reason.into(), 0)).into(),
            process: Some(Process { start_time_seconds, ..Process::default() }),
            online_cpus: Some(64),
            ..Snapshot::default()
        }
    }
}

pub(crate) fn seconds_since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Picks the service for a number below 100.
fn choose_service(mut place: u32) -> &'static Service {
    for service in &SERVICES {
        if place < service.frequency {
            return service;
        }
        place -= service.frequency;
    }
    &SERVICES[0]
}

fn device(node: &str, model: &DriveModel, number: usize) -> Device {
    let is_nvme = model.transport == "pcie";
    Device {
        id: number as u64 + 1,
        name: if is_nvme { format!("nvme{number}n1") } else { scsi_name(number) },
        number: if is_nvme { format!("259:{number}") } else { format!("8:{}", 16 * number) },
        sequence: Some(number as u64 + 1),
        serial: format!("{node}-{number:02}"),
        numa_node: Some((number % 2) as u32),
        ..Device::default()
    }
}

/// Returns a disk name: `sda` to `sdz`, then `sdaa`.
fn scsi_name(number: usize) -> String {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => format!("sd{}", letter(number)),
        more => format!("sd{}{}", letter(more - 1), letter(number)),
    }
}
