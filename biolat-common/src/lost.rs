//! The reasons why a completion is missing from the histograms. Each such completion is counted under one of them.

/// Loss reasons that the probe itself counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// I/O statistics are disabled (`queue/iostats` is 0), so the kernel does not account the request. With a scheduler it still
    /// has timestamps.
    IostatsOff = 0,
    /// A passthrough command without timestamps.
    Passthrough = 1,
    /// The queue has no disk: a command for a controller or bus, not for a block device.
    NoDisk = 2,
    /// No slot was free for a new series.
    NoRoom = 3,
    /// A kernel timestamp is later than the completion.
    Clock = 4,
}

/// Number of entries in [`Counts`]: more than there are reasons, so a new reason does not change the layout.
pub const REASONS: usize = 8;

/// Lost completions by [`Reason`] on one CPU.
pub type Counts = [u64; REASONS];

/// Index in [`Counts`] for waits for a tag that were not counted because too many devices have had some. These are no completions.
pub const TAG_WAITS: usize = 5;
/// Index in [`Counts`] for completions that the first program left to the understudy. These are not lost.
pub const LEFT: usize = 6;
/// Index in [`Counts`] for completions that the understudy recorded, because they were left to it or because the kernel refused
/// to run the first program.
pub const TAKEN: usize = 7;

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::IostatsOff, Self::Passthrough, Self::NoDisk, Self::NoRoom, Self::Clock];

    /// The value of the label `reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IostatsOff => "iostats_off",
            Self::Passthrough => "passthrough",
            Self::NoDisk => "no_disk",
            Self::NoRoom => "no_room",
            Self::Clock => "clock",
        }
    }

    /// Whether diskstats accounts such a completion, in which case the audit must not report it as missed.
    #[must_use]
    pub const fn is_accounted(self) -> bool {
        matches!(self, Self::NoRoom | Self::Clock)
    }
}
