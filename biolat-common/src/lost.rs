//! Why a completion is in no histogram. Each such completion is counted by one of these reasons.

/// Reasons that the probe itself counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// I/O statistics are disabled (`queue/iostats` is 0): the kernel neither accounts the request nor sets its
    /// timestamps.
    IostatsOff = 0,
    /// A passthrough command without timestamps.
    Passthrough = 1,
    /// The queue has no disk: commands of a controller or bus, not of a block device.
    NoDisk = 2,
    /// No slot was free for a new series.
    NoRoom = 3,
    /// A kernel timestamp is later than the completion.
    Clock = 4,
}

/// Entries of [`Counts`]. There are fewer reasons: a new one does not change the layout.
pub const REASONS: usize = 8;

/// Losses by [`Reason`] on one CPU.
pub type Counts = [u64; REASONS];

/// The entry of [`Counts`] for completions that the first program leaves to the understudy. They are not losses.
pub const LEFT: usize = 6;
/// The entry of [`Counts`] for completions that the understudy records: completions that were left to it, and completions for which
/// the kernel refused to run the first program.
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

    /// Whether the kernel accounts such a completion in diskstats. The audit must not report it as missed.
    #[must_use]
    pub const fn is_accounted(self) -> bool {
        matches!(self, Self::NoRoom | Self::Clock)
    }
}
