//! What a volume adds to the latency of the devices that it is on.

use biolat_common::series::Phase;
use biolat_model::text::format::{self, NumberFormat};

use super::{evidence::MINIMUM, words::plural};
use crate::window::{DeviceWindow, Figures, Window};

/// From this share on, its users wait longer for the volume than for what is below it.
const SHARE: f64 = 0.5;

/// An addition too short to matter.
const SHORT: f64 = 500e-6;

/// By the mean, because an I/O of a volume may be several of the devices below it, or only part of one.
pub(super) fn added(volume: &DeviceWindow, window: &Window, numbers: NumberFormat) -> Vec<String> {
    let below = below(volume, window);
    let add = |op: &str| {
        let own = figures(volume, op)?;
        let mut others = Figures::default();
        below.iter().filter_map(|device| figures(device, op)).for_each(|figures| others += figures);
        let (own, others) = (own.of(Phase::Total), others.of(Phase::Total));
        let (whole, part) = (own.mean()?, others.mean()?);
        let (added, share) = (whole - part, (whole - part) / whole);
        let is_enough = own.count() >= MINIMUM && others.count() >= MINIMUM;
        (is_enough && share >= SHARE && added >= SHORT).then(|| {
            let names: Vec<_> = below.iter().map(|device| device.name.as_str()).collect();
            format!(
                "{} adds {} to {} of {}: {} of the volume's latency.",
                name(volume),
                numbers.latency(added),
                plural(op),
                names.join(" and "),
                format::share(share)
            )
        })
    };
    ["read", "write"].into_iter().filter_map(add).collect()
}

/// Its label and what it is: `luks-data (dm-0, crypt)`.
fn name(volume: &DeviceWindow) -> String {
    match &volume.volume {
        Some(known) if known.label != volume.name => {
            format!("{} ({}, {})", known.label, volume.name, known.kind)
        }
        _ => volume.name.clone(),
    }
}

fn figures<'a>(device: &'a DeviceWindow, op: &str) -> Option<&'a Figures> {
    device.ops.iter().find(|known| known.name == op).map(|op| &op.figures)
}

/// The devices directly below a volume: volumes, and drives of which it may use a partition.
pub(super) fn below<'a>(volume: &DeviceWindow, window: &'a Window) -> Vec<&'a DeviceWindow> {
    let on = volume.volume.as_ref().map_or(&[][..], |volume| &volume.on);
    let volumes = window.volumes.iter().filter(|other| on.contains(&other.name));
    let is_on =
        |drive: &&DeviceWindow| drive.above.iter().any(|(name, depth)| *depth == 1 && *name == volume.name);
    window.devices.iter().filter(is_on).chain(volumes).collect()
}

#[cfg(test)]
mod tests {
    use biolat_model::{device::Volume, text::format::NumberFormat};
    use biolat_testing::samples::{device, histogram, op, snapshot};

    use super::added;
    use crate::window::Window;

    /// A drive and an encrypted volume on it, with reads that take this many seconds in all.
    fn window(drive_seconds: f64, volume_seconds: f64) -> Window {
        let none = || histogram(0, &[], 0, 0.0);
        let reads = |seconds| op("read", 4096, none(), none(), histogram(0, &[(-60, 1000)], 0, seconds));
        let mut drive = device("nvme0n1", 0.0, vec![reads(drive_seconds)]);
        drive.device.stack = [holder("dm-0", 1)].into();
        let mut volume = device("dm-0", 0.0, vec![reads(volume_seconds)]);
        let on = vec!["nvme0n1p2".to_owned()];
        volume.device.volume = Some(Volume { kind: "crypt".into(), label: "luks-data".into(), on });
        Window::until(&snapshot(10.0, vec![drive, volume]))
    }

    fn holder(device: &str, depth: u32) -> biolat_model::device::Holder {
        biolat_model::device::Holder {
            device: device.into(),
            kind: "crypt".into(),
            name: "luks-data".into(),
            depth,
        }
    }

    fn found(window: &Window) -> Vec<String> {
        window.volumes.iter().flat_map(|volume| added(volume, window, NumberFormat::UNICODE)).collect()
    }

    #[test]
    fn tells_what_a_volume_adds() {
        let expected =
            "luks-data (dm-0, crypt) adds 3.10 ms to reads of nvme0n1: 70 % of the volume's latency.";
        assert_eq!(found(&window(1.3, 4.4)), [expected]);
        assert!(found(&window(1.3, 2.0)).is_empty(), "a third");
        assert!(found(&window(0.1, 0.4)).is_empty(), "0.3 ms");
    }
}
