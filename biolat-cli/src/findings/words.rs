//! Counts of I/Os in words.

use biolat_model::text::format;

/// `1 read`, `1,234 flushes`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let noun = if count == 1 { singular(noun) } else { plural(noun) };
    format!("{} {noun}", format::count(count))
}

/// Appends "I/O" to an op's name that is not an English word.
fn singular(noun: &str) -> String {
    if noun.contains('_') { format!("{noun} I/O") } else { noun.to_owned() }
}

pub(super) fn plural(noun: &str) -> String {
    singular(noun) + if noun == "flush" { "es" } else { "s" }
}
