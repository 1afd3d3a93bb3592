//! Checks whether the host's volumes (dm, md, zram, …) can be measured.

use std::io;

use anyhow::Result;
use biolat_collect::collector::MeasureVolumes;
use biolat_model::device::Device;
use biolat_probe::LACKS_VOLUMES;

use super::finding::Finding;

const SUBJECT: &str = "volumes";

/// Maximum number of volumes that a finding lists.
const MAX_LISTED: usize = 8;

/// Checks the volumes found. `loaded` tells whether the kernel has what the programs need, or is `None` if loading them was not
/// tried.
pub(super) fn volumes(
    choice: MeasureVolumes,
    found: &io::Result<Vec<Device>>,
    loaded: Option<Result<bool>>,
) -> Option<Finding> {
    const ID: &str = "volumes.measured";
    if choice == MeasureVolumes::Off {
        return None;
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            return Some(Finding::note(ID, SUBJECT, format!("cannot list the volumes: {error}")));
        }
    };
    let failed = match loaded {
        None | Some(Ok(true)) => None,
        Some(Ok(false)) => Some(LACKS_VOLUMES.to_owned()),
        Some(Err(error)) => Some(format!("{error:#}")),
    };
    match failed {
        Some(why) if choice == MeasureVolumes::On => Some(
            Finding::fail(ID, SUBJECT, format!("--volumes on, but {why}")).step("use --volumes auto or off"),
        ),
        // Nobody misses what the host does not have.
        _ if found.is_empty() => None,
        Some(why) => Some(Finding::note(ID, SUBJECT, format!("not measured: {why}"))),
        None => Some(Finding::ok(ID, SUBJECT, list(found))),
    }
}

fn list(found: &[Device]) -> String {
    let of_volume = |device: &Device| format!("{} ({})", device.name, device.description());
    let mut text = found.iter().take(MAX_LISTED).map(of_volume).collect::<Vec<_>>().join("; ");
    if found.len() > MAX_LISTED {
        text += &format!("; and {} more", found.len() - MAX_LISTED);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::anyhow;
    use biolat_collect::collector::MeasureVolumes;
    use biolat_model::device::{Device, Volume};

    use super::{
        super::finding::Verdict::{Fail, Note, Ok as Fine},
        volumes,
    };

    fn volume(name: &str, kind: &str, label: &str, on: &[&str]) -> Device {
        let on = on.iter().map(|&name| name.to_owned()).collect();
        let volume = Volume { kind: kind.to_owned(), label: label.to_owned(), on };
        Device { name: name.to_owned(), volume: Some(volume), ..Device::default() }
    }

    #[test]
    fn lists_what_is_measured() {
        let found =
            Ok(vec![volume("dm-0", "lvm", "vg-data", &["sda", "sdb"]), volume("md0", "md", "md0", &[])]);
        let finding = volumes(MeasureVolumes::Auto, &found, Some(Ok(true))).unwrap();
        assert_eq!(
            (finding.verdict, finding.text.as_str()),
            (Fine, "dm-0 (vg-data, lvm on sda, sdb); md0 (md)")
        );
        let many = Ok((0..10).map(|at| volume(&format!("md{at}"), "md", &format!("md{at}"), &[])).collect());
        let finding = volumes(MeasureVolumes::Auto, &many, None).unwrap();
        assert!(finding.text.ends_with("; md7 (md); and 2 more"), "{finding:?}");
        assert_eq!(volumes(MeasureVolumes::Off, &found, None), None);
    }

    #[test]
    fn failures_matter_where_there_are_volumes_or_they_are_asked_for() {
        let (none, one) = (Ok(Vec::new()), Ok(vec![volume("md0", "md", "md0", &[])]));
        let lacking = || Some(Ok(false));
        assert_eq!(volumes(MeasureVolumes::Auto, &none, lacking()), None);
        assert_eq!(volumes(MeasureVolumes::Auto, &one, lacking()).unwrap().verdict, Note);
        assert_eq!(volumes(MeasureVolumes::On, &none, lacking()).unwrap().verdict, Fail);
        let finding = volumes(MeasureVolumes::Auto, &one, Some(Err(anyhow!("no room")))).unwrap();
        assert_eq!((finding.verdict, finding.text.as_str()), (Note, "not measured: no room"));
        let unreadable = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(volumes(MeasureVolumes::Auto, &unreadable, None).unwrap().verdict, Note);
    }
}
