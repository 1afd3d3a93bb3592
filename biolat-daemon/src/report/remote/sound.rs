//! What another host's answer must not do to us: its figures are added up, and its words go to a terminal.

use anyhow::{Context as _, Result, bail};
use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};

use crate::{api::Snapshot, histogram::Histogram, terminal::plain};

/// Refuses figures that no biolat has, and takes what would steer a terminal out of the words.
pub(super) fn sound(mut snapshot: Snapshot) -> Result<Snapshot> {
    // More than fits would be none that anybody has measured, and every sum from here on is of less.
    let (mut bytes, mut counts) = (0_u64, 0_u64);
    let add = |sum: &mut u64, count: u64| -> Result<()> {
        *sum = sum.checked_add(count).context("its counts are beyond all measure")?;
        Ok(())
    };
    for device in &snapshot.devices {
        for op in &device.ops {
            add(&mut bytes, op.bytes)?;
            for histogram in [&op.queue, &op.device, &op.total] {
                is_of_known_buckets(histogram)?;
                for count in histogram.buckets.iter().map(|&(_, count)| count) {
                    add(&mut counts, count)?;
                }
                add(&mut counts, histogram.zero)?;
                add(&mut counts, histogram.overflow)?;
            }
            op.errors.values().try_for_each(|&count| add(&mut counts, count))?;
        }
        device.unseen.values().try_for_each(|&count| add(&mut counts, count))?;
    }
    snapshot.lost.values().try_for_each(|&count| add(&mut counts, count))?;

    let Snapshot { biolat, host, devices, lost, .. } = &mut snapshot;
    clean(biolat);
    clean(host);
    clean_names(lost);
    for device in devices {
        for text in [&mut device.name, &mut device.model, &mut device.serial, &mut device.lacks] {
            clean(text);
        }
        device.holders.iter_mut().for_each(clean);
        clean_names(&mut device.unseen);
        for op in &mut device.ops {
            clean(&mut op.op);
            clean_names(&mut op.errors);
        }
    }
    Ok(snapshot)
}

fn is_of_known_buckets(histogram: &Histogram) -> Result<()> {
    let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
    match histogram.buckets.iter().find(|(index, _)| !known.contains(index)) {
        Some((index, _)) => bail!("its answer is malformed: there is no bucket {index}"),
        None => Ok(()),
    }
}

fn clean(text: &mut String) {
    if text.contains(char::is_control) {
        *text = plain(text);
    }
}

fn clean_names(counts: &mut std::collections::BTreeMap<String, u64>) {
    if counts.keys().any(|name| name.contains(char::is_control)) {
        *counts = std::mem::take(counts).into_iter().map(|(name, count)| (plain(&name), count)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::sound;
    use crate::{api::Snapshot, report::samples};

    fn told(buckets: &[(i32, u64)], bytes: u64) -> Snapshot {
        let histogram = samples::histogram(0, buckets, 0, 1.0);
        let op = samples::op("read", bytes, histogram.clone(), histogram.clone(), histogram);
        samples::snapshot(1.0, vec![samples::device("sda", 9.0, vec![op.clone(), op])])
    }

    #[test]
    fn figures_that_no_biolat_has_are_refused() {
        assert!(sound(told(&[(-159, 5), (80, 5)], 1 << 50)).is_ok());
        for index in [i32::MIN, -160, 81, i32::MAX] {
            let error = sound(told(&[(index, 1)], 0)).unwrap_err().to_string();
            assert!(error.contains(&format!("no bucket {index}")), "{error}");
        }
        assert!(sound(told(&[(0, u64::MAX / 2)], 0)).is_err());
        assert!(sound(told(&[], u64::MAX)).is_err());
    }

    #[test]
    fn words_do_not_steer_a_terminal() {
        let mut snapshot = told(&[(0, 1)], 1);
        let evil = "a\u{1b}[2J\r\u{9b}b";
        let device = &mut snapshot.devices[0];
        (device.name, device.model, device.lacks) = (evil.into(), evil.into(), evil.into());
        device.ops[0].op = evil.into();
        device.ops[0].errors.insert(evil.into(), 1);
        device.unseen.insert(evil.into(), 1);
        snapshot.lost.insert(evil.into(), 1);
        (snapshot.host, snapshot.biolat) = (evil.into(), evil.into());
        let shown = format!("{:?}", sound(snapshot).unwrap());
        assert!(
            !shown.contains(r"\u{1b}") && !shown.contains(r"\u{9b}") && !shown.contains(r"\r"),
            "{shown}"
        );
        assert_eq!(shown.matches("[2J").count(), 9, "{shown}");
    }
}
