//! Persistent volumes of Kubernetes, and the devices that they are on. Their claims are not known on a node.

use std::collections::BTreeSet;

use super::window::{DeviceWindow, Window};

/// A persistent volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim<'a> {
    pub(super) volume: &'a str,
    /// The devices that it is on: only the nearest, if one of them is itself on the others, as with multipath or LVM.
    pub(super) devices: Vec<&'a DeviceWindow>,
}

/// Returns the persistent volumes on the drives and volumes of a window, in order of name.
pub(super) fn of(window: &Window) -> Vec<Claim<'_>> {
    let devices = || window.devices.iter().chain(&window.volumes);
    let names: BTreeSet<&str> =
        devices().flat_map(|device| device.claimed.keys()).map(String::as_str).collect();
    let claim = |volume| {
        let holds = |device: &&DeviceWindow| device.claimed.contains_key(volume);
        let least = devices().filter(holds).map(|device| device.claimed[volume]).min();
        let is_next = |device: &&DeviceWindow| device.claimed.get(volume).copied() == least;
        Claim { volume, devices: devices().filter(is_next).collect() }
    };
    names.into_iter().map(claim).collect()
}

impl Claim<'_> {
    /// The names of its devices.
    pub(super) fn device_names(&self) -> Vec<&str> {
        self.devices.iter().map(|device| device.name.as_str()).collect()
    }

    /// Says what else the figures include, if anything can be on the same devices.
    pub(super) fn note(&self) -> Option<String> {
        let drives = self.device_names().join(" and ");
        let others: BTreeSet<_> = self.devices.iter().flat_map(|device| device.claimed.keys()).collect();
        let others: Vec<_> = others.into_iter().filter(|name| *name != self.volume).collect();
        let is_below = self.devices.iter().any(|device| device.claimed[self.volume] > 1);
        match others[..] {
            [] if is_below => Some(format!("the figures of {drives} can include the I/O of other volumes")),
            [] => None,
            [other] => Some(format!("the figures of {drives} include the I/O of {other}")),
            [first, ..] => {
                let more = others.len() - 1;
                Some(format!("the figures of {drives} include the I/O of {first} and {more} other volumes"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use biolat_common::series::Phase;
    use biolat_model::{
        device::{Holder, Volume},
        histogram::Histogram,
    };
    use biolat_system::terminal::Terminal;
    use biolat_testing::samples;

    use crate::{
        breakdown::Breakdown,
        json,
        options::By,
        text::{self, TextStyle},
        window::Window,
    };

    /// A drive below two logical volumes, two mirrored drives, a drive below a measured volume, and one without claims.
    fn seen() -> Window {
        let device = |name: &str, reads, volumes: &[(&str, u32)]| {
            let total = samples::histogram(0, &[(-80, reads)], 0, 0.004);
            let op = samples::op("read", 4096 * reads, total.clone(), total.clone(), total);
            let mut device = samples::device(name, 9.0, vec![op]);
            let holder = |&(name, depth): &(&str, u32)| Holder {
                device: "dm-0".into(),
                kind: Holder::PERSISTENT_VOLUME.into(),
                name: name.into(),
                depth,
            };
            device.device.stack = volumes.iter().map(holder).collect::<Arc<_>>();
            // A measured volume has only a total latency.
            if name.starts_with("dm") {
                let lvm = Volume { kind: "lvm".into(), label: "vg-data".into(), on: vec!["sda".into()] };
                device.device.volume = Some(lvm);
                device.series[0].histograms[Phase::Device as usize] = Histogram::default();
            }
            device
        };
        let devices = vec![
            device("dm-9", 5, &[("pv-measured", 1)]),
            device("nvme0n1", 1, &[("pv-lvm-1", 2), ("pv-lvm-2", 2)]),
            device("nvme1n1", 2, &[("pv-mirror", 2)]),
            device("nvme2n1", 3, &[("pv-mirror", 2)]),
            device("sda", 6, &[("pv-measured", 2)]),
            device("sdb", 7, &[]),
            device("sdc", 4, &[("pv-disk", 1)]),
        ];
        Window::between(&samples::snapshot(100.0, vec![]), &samples::snapshot(105.0, devices))
    }

    fn by_claim() -> Breakdown {
        Breakdown { by: Some(By::Claim), phases: vec![Phase::Device], ..Breakdown::default() }
    }

    fn text(window: &Window) -> String {
        let terminal = Terminal { color: false, unicode: false, is_terminal: true };
        let style = TextStyle { terminal, width: 80, numbers: terminal.numbers(false), fine: false };
        text::window(window, &by_claim(), &style)
    }

    #[test]
    fn each_volume_has_the_figures_of_its_nearest_drives() {
        let window = seen();
        let blocks = by_claim().blocks(&window);
        let found: Vec<_> = blocks
            .iter()
            .map(|block| {
                let claim = block.claim.as_ref().unwrap();
                (block.name(), claim.device_names().join(" "), block.figures.ios())
            })
            .collect();
        let expected = [
            ("pv-disk", "sdc", 4),
            ("pv-lvm-1", "nvme0n1", 1),
            ("pv-lvm-2", "nvme0n1", 1),
            ("pv-measured", "dm-9", 5),
            ("pv-mirror", "nvme1n1 nvme2n1", 5),
        ];
        assert_eq!(found, expected.map(|(name, devices, ios)| (name.to_owned(), devices.to_owned(), ios)));
        let by_op = Breakdown { by_op: true, ..by_claim() };
        assert_eq!(by_op.blocks(&window)[0].name(), "pv-disk read");
    }

    #[test]
    fn says_whose_figures_they_are() {
        let text = text(&seen());
        for part in [
            "pv-disk on sdc: device latency\n",
            "pv-lvm-1 on nvme0n1: device latency\n",
            "pv-measured on dm-9 (vg-data, lvm on sda): total latency\n",
            "pv-mirror on nvme1n1 and nvme2n1: device latency\n",
            "  the figures of nvme0n1 include the I/O of pv-lvm-2\n",
            "  the figures of nvme1n1 and nvme2n1 can include the I/O of other volumes\n",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains("of sdc ") && !text.contains("of dm-9 "), "{text}");
    }

    #[test]
    fn says_that_there_are_no_volumes() {
        let mut window = seen();
        window.devices.retain(|device| device.name == "sdb");
        window.volumes.clear();
        assert_eq!(
            text(&window),
            "no persistent volume is mounted from these drives (in a pod, the chart's\nvolumeNames shows them)\n"
        );
    }

    #[test]
    fn json_names_volume_and_devices() {
        let line = json::line(&seen(), "node1", &by_claim(), None).unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        let block = &json["blocks"][4];
        assert_eq!(block["persistent_volume"], "pv-mirror");
        assert_eq!(block["devices"], serde_json::json!(["nvme1n1", "nvme2n1"]));
        assert_eq!((&block["device"], &block["ios"]), (&serde_json::Value::Null, &5.into()));
    }
}
