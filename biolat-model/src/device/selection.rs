//! The device selection: the grammar of `--device` and `--device-exclude`, which all commands share.

use regex_lite::Regex;

/// Lists of regular expressions, each of which has to match the whole device name. By default all devices are selected except
/// those that node_exporter also ignores: loop devices, RAM disks and floppy disks.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Option<Regex>,
    exclude: Option<Regex>,
    has_loops: bool,
}

/// An invalid regular expression.
#[derive(Debug, PartialEq, Eq)]
pub struct BadExpression {
    /// Whether it was in the list of excluded devices.
    pub exclude: bool,
    /// Parse error, in one line.
    pub reason: String,
}

impl Selection {
    pub fn new(include: Option<&str>, exclude: Option<&str>) -> Result<Self, BadExpression> {
        let bad = |exclude| move |reason| BadExpression { exclude, reason };
        Ok(Self {
            include: include.map(whole).transpose().map_err(bad(false))?,
            exclude: exclude.map(whole).transpose().map_err(bad(true))?,
            has_loops: false,
        })
    }

    /// Also selects all loop devices.
    #[must_use]
    pub fn with_loops(self) -> Self {
        Self { has_loops: true, ..self }
    }

    /// Also selects loop devices if the host has no device that is selected by default, because otherwise nothing would be shown.
    pub fn for_devices<'a>(self, mut names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let has_loop = names.clone().any(is_loop);
        if self.include.is_none() && has_loop && names.all(is_unusual) { self.with_loops() } else { self }
    }

    /// Whether a device with this name is shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        let is_included = match &self.include {
            Some(include) => include.is_match(name),
            None => !is_unusual(name),
        };
        (is_included || self.has_loops && is_loop(name)) && !self.excludes(name)
    }

    /// Whether a device with this name is excluded.
    pub fn excludes(&self, name: &str) -> bool {
        self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(name))
    }

    /// Whether a device with this name is hidden by default, as opposed to excluded.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.include.is_none() && is_unusual(name) && !(self.has_loops && is_loop(name))
    }
}

fn is_loop(name: &str) -> bool {
    driver(name) == Some("loop")
}

/// Whether a device of this kind is shown only on request.
fn is_unusual(name: &str) -> bool {
    matches!(driver(name), Some("loop" | "ram" | "zram" | "fd"))
}

/// Returns `loop` for `loop7`.
fn driver(name: &str) -> Option<&str> {
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (driver.len() < name.len()).then_some(driver)
}

/// Builds an expression that matches a whole name if any expression in the list does. Compiles each one on its own first, so that
/// error messages quote the user's text.
fn whole(list: &str) -> Result<Regex, String> {
    let text = |error: regex_lite::Error| error.to_string();
    let mut each = Vec::new();
    for pattern in split(list) {
        Regex::new(pattern).map_err(text)?;
        // A comment (allowed by the flag `x`) ends only at a line feed.
        let end = if Regex::new(&format!("(?:{pattern})")).is_ok() { "" } else { "\n" };
        each.push(format!("(?:{pattern}{end})"));
    }
    if each.is_empty() {
        return Err("it names no device".to_owned());
    }
    Regex::new(&format!("^(?:{})$", each.join("|"))).map_err(text)
}

/// Splits a comma-separated list into expressions, and strips `/dev/` from each. A comma within brackets belongs to the
/// expression.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut in_class, mut is_escaped) = (0, false, false);
    let separates = move |c: char| {
        match c {
            _ if is_escaped => {}
            '[' => in_class = true,
            ']' => in_class = false,
            '{' | '(' if !in_class => depth += 1,
            '}' | ')' if !in_class => depth -= 1,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        c == ',' && depth == 0 && !in_class
    };
    let each = list.split(separates).map(str::trim);
    let each = each.map(|pattern| pattern.strip_prefix("/dev/").unwrap_or(pattern));
    each.filter(|pattern| !pattern.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{BadExpression, Selection};

    #[test]
    fn hides_unusual_devices_by_default() {
        for selection in [Selection::new(None, None).unwrap(), Selection::default()] {
            for shown in ["nvme0n1", "nvme0c1n1", "sda", "xvda1", "mmcblk0", "nbd0", "dm-3", "loop", "loopy0"]
            {
                assert!(selection.shows(shown) && !selection.leaves_out(shown), "{shown}");
            }
            for hidden in ["loop7", "zram0", "ram12", "fd0"] {
                assert!(!selection.shows(hidden) && selection.leaves_out(hidden), "{hidden}");
            }
        }
        let excluded = Selection::new(None, Some("sda")).unwrap();
        assert!(!excluded.shows("loop7") && excluded.leaves_out("loop7"), "still hidden by default");
        assert!(!excluded.shows("sda") && !excluded.leaves_out("sda"));
        let named = Selection::new(Some("loop.*|zram0|fd0"), None).unwrap();
        assert!(named.shows("loop7") && named.shows("zram0") && named.shows("fd0"));
    }

    #[test]
    fn with_loops_adds_loop_devices() {
        let loops = Selection::default().with_loops();
        assert!(
            loops.shows("loop7") && loops.shows("sda") && !loops.shows("zram0") && !loops.leaves_out("loop7")
        );
        let both = Selection::new(Some("nvme.*"), Some("loop1")).unwrap().with_loops();
        assert!(both.shows("nvme0n1") && both.shows("loop7") && !both.shows("loop1") && !both.shows("sda"));
    }

    #[test]
    fn shows_loop_devices_if_there_are_no_others() {
        let shows = |selection: Selection, names: &[&str]| {
            selection.for_devices(names.iter().copied()).shows("loop0")
        };
        assert!(shows(Selection::default(), &["fd0", "loop0"]));
        assert!(!shows(Selection::default(), &["loop0", "vda"]));
        assert!(!shows(Selection::default(), &["fd0"]) && !shows(Selection::default(), &[]));
        let excluded = |name| Selection::new(None, Some(name)).unwrap();
        assert!(!shows(excluded("vda"), &["loop0", "vda"]), "there is another device");
        assert!(!shows(excluded("loop0"), &["loop0"]));
        assert!(!shows(Selection::new(Some("sda"), None).unwrap(), &["loop0"]));
    }

    #[test]
    fn matches_whole_names_and_exclude_wins() {
        let selection = Selection::new(Some("nvme.*|sda"), Some("nvme1n1")).unwrap();
        assert!(selection.shows("nvme0n1") && selection.shows("sda"));
        assert!(!selection.shows("sdaa") && !selection.shows("nvme1n1") && selection.shows("nvme1n12"));
        assert!(Selection::new(Some("zram0"), None).unwrap().shows("zram0"));
    }

    #[test]
    fn rejects_invalid_expressions() {
        let bad = Selection::new(Some("nvme["), None).unwrap_err();
        assert_eq!(bad, BadExpression { exclude: false, reason: "found unclosed character class".into() });
        assert!(Selection::new(Some("a"), Some("*")).unwrap_err().exclude);
    }

    #[test]
    fn supports_classes_and_flags() {
        let selection = Selection::new(Some(r"nvme\d+n\d+|(?i)SD\w"), None).unwrap();
        assert!(selection.shows("nvme10n1") && selection.shows("sdb") && !selection.shows("nvmexn1"));
        let commented = Selection::new(Some("(?x) vda # my disk"), None).unwrap();
        assert!(commented.shows("vda") && !commented.shows("vdab"));
    }

    #[test]
    fn splits_lists_and_strips_dev() {
        let selection = Selection::new(Some("sd[a,b],/dev/vda,nvme[0-9]{1,2}n1,x(y,z)?"), None).unwrap();
        for shown in ["sda", "sdb", "vda", "nvme10n1", "x", "xy,z"] {
            assert!(selection.shows(shown), "{shown}");
        }
        assert!(!selection.shows("sdc") && !selection.shows("sd[a") && !selection.shows("vdab"));
        assert!(Selection::new(Some(","), None).is_err());
        let spaced = Selection::new(Some("sda, /dev/sdb ,x[(]y,sdc"), None).unwrap();
        assert!(["sda", "sdb", "x(y", "sdc"].iter().all(|name| spaced.shows(name)));
    }
}
