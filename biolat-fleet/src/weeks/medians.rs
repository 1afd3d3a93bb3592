//! Computes the medians of groups of values.

/// Values by group. They must not be negative.
#[derive(Default)]
pub(crate) struct Groups(Vec<(u64, f32)>);

/// One figure per group, sorted by group.
#[derive(Default)]
pub(crate) struct Figures(Vec<(u64, f32)>);

/// Median of a group and the number of its values.
pub(crate) struct Median {
    pub(crate) group: u64,
    pub(crate) value: f32,
    pub(crate) count: usize,
}

impl Groups {
    pub(crate) fn add(&mut self, group: u64, value: f32) {
        self.0.push((group, value));
    }

    /// Returns the medians, sorted by group.
    pub(crate) fn medians(mut self) -> Vec<Median> {
        // Non-negative floats sort like their bits.
        self.0.sort_unstable_by_key(|&(group, value)| (group, value.to_bits()));
        let of_group = |values: &[(u64, f32)]| {
            let (below, above) = (values[(values.len() - 1) / 2].1, values[values.len() / 2].1);
            Median { group: values[0].0, value: f32::midpoint(below, above), count: values.len() }
        };
        self.0.chunk_by(|one, other| one.0 == other.0).map(of_group).collect()
    }
}

impl Figures {
    /// Creates figures from groups in ascending order.
    pub(crate) fn new(figures: impl Iterator<Item = (u64, f32)>) -> Self {
        Self(figures.collect())
    }

    pub(crate) fn get(&self, group: u64) -> Option<f32> {
        let place = self.0.binary_search_by_key(&group, |&(group, _)| group);
        place.ok().map(|place| self.0[place].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, f32)> {
        self.0.iter().copied()
    }
}
