//! The formats of a block.

/// How a block has the counts of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Each has a length of its own. Files may have it; it is written no more.
    One,
    /// Four have one length.
    #[default]
    Two,
}
