//! Which devices are shown.

use regex::Regex;

/// Names that are not shown unless asked for: disks that are made of memory.
pub const EXCLUDED_BY_DEFAULT: &str = "^z?ram[0-9]+$";

/// Regular expressions on device names, each matched against the whole name.
#[derive(Clone, Debug)]
pub struct Selection {
    include: Option<Regex>,
    exclude: Option<Regex>,
}

impl Selection {
    /// From what the user gave. With neither, everything but [`EXCLUDED_BY_DEFAULT`].
    pub fn new(include: Option<&str>, exclude: Option<&str>) -> Result<Self, regex::Error> {
        let exclude = exclude.or(include.is_none().then_some(EXCLUDED_BY_DEFAULT));
        Ok(Self { include: include.map(whole).transpose()?, exclude: exclude.map(whole).transpose()? })
    }

    /// Whether a device of this name is shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(name))
    }
}

/// Compiled as given first, so that an error points into what the user wrote.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(pattern)?;
    Regex::new(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests {
    use super::Selection;

    #[test]
    fn the_default_leaves_memory_out() {
        let selection = Selection::new(None, None).unwrap();
        assert!(selection.shows("nvme0n1") && selection.shows("loop7") && selection.shows("nvme0c1n1"));
        assert!(!selection.shows("zram0") && !selection.shows("ram12"));
    }

    #[test]
    fn whole_names_and_both_ways() {
        let selection = Selection::new(Some("nvme.*|sda"), Some("nvme1n1")).unwrap();
        assert!(selection.shows("nvme0n1") && selection.shows("sda"));
        assert!(!selection.shows("sdaa") && !selection.shows("nvme1n1") && selection.shows("nvme1n12"));
        assert!(Selection::new(Some("zram0"), None).unwrap().shows("zram0"));
    }

    #[test]
    fn a_bad_expression_is_refused() {
        assert!(Selection::new(Some("nvme["), None).is_err());
        assert!(Selection::new(None, Some("*")).is_err());
    }
}
