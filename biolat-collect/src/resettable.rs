//! Counters of the kernel that can start again from zero: a user has written to the file, or the counted object was replaced.

/// A counter's growth since its first reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResettableCounter {
    pub(crate) last: u64,
    pub(crate) growth: u64,
}

impl ResettableCounter {
    /// What was counted before the first reading is left out.
    pub(crate) const fn starting_at(first: u64) -> Self {
        Self { last: first, growth: 0 }
    }

    /// A value below the last one has grown from zero.
    pub(crate) fn update(&mut self, now: u64) {
        self.growth = self.growth.saturating_add(now.checked_sub(self.last).unwrap_or(now));
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::ResettableCounter;

    #[test]
    fn growth_never_decreases() {
        let mut counter = ResettableCounter::starting_at(10);
        let growth = [10, 12, 0, 0, 3, 2].map(|now| {
            counter.update(now);
            counter.growth
        });
        assert_eq!(growth, [0, 2, 2, 2, 5, 7]);
    }
}
