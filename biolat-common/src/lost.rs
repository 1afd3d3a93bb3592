//! Why a completion did not get into a histogram. Every one that did not is counted under one of these.

/// Reasons that the probe itself counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// The queue keeps no statistics (`queue/iostats` is 0): the kernel neither stamps nor books the request.
    IostatsOff = 0,
    /// A passthrough command that the kernel did not stamp.
    Passthrough = 1,
    /// The queue has no disk: commands of a controller or bus, not of a block device.
    NoDisk = 2,
    /// There was no room for another series.
    NoRoom = 3,
    /// The kernel's stamp lies after the time of completion.
    Clock = 4,
}

/// Cells of a [`Counts`]; more than there are reasons, so that a new one does not change the layout.
pub const REASONS: usize = 8;

/// Losses by [`Reason`] on one CPU.
pub type Counts = [u64; REASONS];

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

    /// Whether the kernel's books hold such a completion, so that it explains an excess of theirs.
    #[must_use]
    pub const fn is_booked(self) -> bool {
        matches!(self, Self::NoRoom | Self::Clock)
    }
}
