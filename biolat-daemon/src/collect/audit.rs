//! The audit of one device: what the kernel's books hold and the probe was not run for.
//!
//! The probe runs before the kernel books a completion. So counters that are read *after* the books hold at
//! least what the books held, and any excess of the books is a completion that the probe has not seen. The
//! largest excess so far is a lower bound, and exact whenever the device is quiet.

use crate::device::books::{Books, Group};

/// The running audit of a device.
#[derive(Clone, Debug)]
pub struct Audit {
    /// By how much the books were ahead when the audit was opened: what happened before. At first it holds too
    /// what completed while the two were read, and so hides as much; see [`Audit::tighten`].
    ahead: [i128; 4],
    /// Losses that may have been this device's, up to then.
    excused: u64,
    unseen: [u64; 4],
}

impl Audit {
    /// Opens the audit. Here the counters were read *before* the books, so that nothing that completed in
    /// between is ever taken for unseen.
    #[must_use]
    pub fn open(counted: &Books, books: &Books, excused: u64) -> Self {
        Self { ahead: Group::ALL.map(|group| excess(books, counted, group)), excused, unseen: [0; 4] }
    }

    /// Checks books that were read before the counters. `excused` are completions that the kernel has booked
    /// and that are lost for a known reason, on whichever device.
    pub fn check(&mut self, books: &Books, counted: &Books, excused: u64) {
        let excused = i128::from(excused.saturating_sub(self.excused));
        for group in Group::ALL {
            let excess = excess(books, counted, group) - self.ahead[group as usize] - excused;
            let unseen = &mut self.unseen[group as usize];
            *unseen = u64::try_from(excess).unwrap_or(0).max(*unseen);
        }
    }

    /// Takes note of counters that were read before the books once more. The books cannot have been ahead by
    /// more than they are now.
    pub fn tighten(&mut self, counted: &Books, books: &Books) {
        for group in Group::ALL {
            let ahead = &mut self.ahead[group as usize];
            *ahead = excess(books, counted, group).min(*ahead);
        }
    }

    /// Completions that the probe has not seen, by group.
    #[must_use]
    pub fn unseen(&self) -> Vec<(Group, u64)> {
        Group::ALL.into_iter().map(|group| (group, self.unseen[group as usize])).collect()
    }
}

fn excess(books: &Books, counted: &Books, group: Group) -> i128 {
    i128::from(books[group]) - i128::from(counted[group])
}

#[cfg(test)]
mod tests {
    use super::Audit;
    use crate::device::books::{Books, Group};

    #[test]
    fn only_an_excess_of_the_books_is_unseen() {
        let mut audit = Audit::open(&Books::new([5, 0, 0, 0]), &Books::new([105, 7, 0, 0]), 0);
        audit.check(&Books::new([205, 7, 0, 0]), &Books::new([105, 0, 0, 0]), 0);
        assert_eq!(audit.unseen()[0], (Group::Read, 0));
        // Completions that are counted but not booked yet hide nothing for ever.
        audit.check(&Books::new([300, 8, 0, 0]), &Books::new([240, 0, 0, 0]), 0);
        assert_eq!(
            audit.unseen(),
            [(Group::Read, 0), (Group::Write, 1), (Group::Discard, 0), (Group::Flush, 0)]
        );
        audit.check(&Books::new([350, 8, 0, 0]), &Books::new([240, 0, 0, 0]), 0);
        assert_eq!(audit.unseen()[0], (Group::Read, 10));
        // It never shrinks.
        audit.check(&Books::new([350, 8, 0, 0]), &Books::new([260, 9, 0, 0]), 0);
        assert_eq!(audit.unseen()[..2], [(Group::Read, 10), (Group::Write, 1)]);
    }

    #[test]
    fn what_completed_while_the_audit_was_opened_does_not_hide_for_ever() {
        // 50 completed between the two readings.
        let mut audit = Audit::open(&Books::new([0; 4]), &Books::new([150, 0, 0, 0]), 0);
        audit.tighten(&Books::new([70, 0, 0, 0]), &Books::new([172, 0, 0, 0]));
        audit.tighten(&Books::new([100, 0, 0, 0]), &Books::new([200, 0, 0, 0]));
        audit.check(&Books::new([230, 0, 0, 0]), &Books::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.unseen()[0], (Group::Read, 0));
        audit.check(&Books::new([240, 0, 0, 0]), &Books::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.unseen()[0], (Group::Read, 10));
        // A later, larger excess is no news of what was before.
        audit.tighten(&Books::new([130, 0, 0, 0]), &Books::new([240, 0, 0, 0]));
        audit.check(&Books::new([241, 0, 0, 0]), &Books::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.unseen()[0], (Group::Read, 11));
    }

    #[test]
    fn a_known_loss_is_not_unseen() {
        let mut audit = Audit::open(&Books::new([0; 4]), &Books::new([0; 4]), 3);
        audit.check(&Books::new([10, 0, 0, 0]), &Books::new([6, 0, 0, 0]), 7);
        assert_eq!(audit.unseen()[0], (Group::Read, 0));
        audit.check(&Books::new([11, 0, 0, 0]), &Books::new([6, 0, 0, 0]), 7);
        assert_eq!(audit.unseen()[0], (Group::Read, 1));
    }
}
