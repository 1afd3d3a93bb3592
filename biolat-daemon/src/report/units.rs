//! Numbers as people read them.

/// A time: `5 s`, `500 ms`, `1.5 s`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.9995 {
        format!("{} ms", trimmed(seconds * 1e3))
    } else {
        format!("{} s", trimmed(seconds))
    }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
