//! Notes when a bio of a volume is submitted.

use aya_ebpf::{EbpfContext as _, programs::BtfTracePointContext};
use biolat_common::volumes::{BioKey, SET_STARTS, Start};

use crate::{
    bio::Bio,
    constants::member,
    maps::{self, First, Role},
    now,
};

/// Every bio of every device comes here, so a bio of another device must cost little.
#[inline(always)]
pub(crate) fn note<R: Role>(ctx: &BtfTracePointContext) {
    // Not a branch: the compiler would add to the context's pointer, which the verifier rejects.
    let bio = Bio::at(member!(u64, ctx.as_ptr().cast::<u8>(), volumes.start_bio) as *const u8);
    let Some((_, device)) = bio.disk() else { return };
    if maps::volume(device).is_none() {
        return;
    }
    store::<R>(bio.key(device), now(), bio.bytes());
}

/// Stores a start in a free place of its set. If the set is full, the oldest start is evicted; its bio may have ended unseen. An
/// earlier start at the same address is evicted too.
#[inline(always)]
fn store<R: Role>(key: BioKey, now: u64, bytes: u32) {
    let Some(set) = maps::starts(key) else { return };
    let mut place = 0;
    let mut oldest = 0;
    for candidate in 0..SET_STARTS {
        let start = maps::read_start(set, candidate);
        if key.owns(start) {
            if R::NUMBER != First::NUMBER {
                return;
            }
            maps::count_evicted::<R>();
            return maps::write_start(set, candidate, key.start(now, bytes));
        }
        let age = if start.is_free() { u64::MAX } else { start.age(now) };
        if age > oldest {
            (place, oldest) = (candidate, age);
        }
    }
    if oldest != u64::MAX {
        maps::count_evicted::<R>();
    }
    maps::count_taken::<R>();
    maps::write_start(set, place & (SET_STARTS - 1), key.start(now, bytes));
}

/// Removes and returns the start of a bio. `None` if the bio was not seen when it was submitted, or is a part of another one.
#[inline(always)]
pub(crate) fn take(key: BioKey) -> Option<Start> {
    let set = maps::starts(key)?;
    for place in 0..SET_STARTS {
        let start = maps::read_start(set, place);
        if key.owns(start) {
            maps::write_start(set, place, Start::default());
            return Some(start);
        }
    }
    None
}
