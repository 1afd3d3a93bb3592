//! The statuses of failed I/Os by name.

use biolat_common::status::{STATUSES, name};

/// The name of a status as the program knows it, on any kernel; none if there is no such status.
pub fn find(text: &str) -> Option<&'static str> {
    let names = [true, false]
        .into_iter()
        .flat_map(|since_6_10| (0..STATUSES).map(move |status| name(status, since_6_10)));
    names.into_iter().find(|name| *name == text)
}
