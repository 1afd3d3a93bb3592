//! Which devices are shown.

use regex_lite::Regex;

/// Devices that are not shown by default: RAM disks.
const EXCLUDED_BY_DEFAULT: &str = "^z?ram[0-9]+$";

/// Regular expressions on device names, each matched against the whole name.
#[derive(Clone, Debug)]
pub struct Selection {
    include: Option<Regex>,
    exclude: Option<Regex>,
}

/// An invalid regular expression.
#[derive(Debug, PartialEq, Eq)]
pub struct BadExpression {
    /// Whether it is that of excluded devices.
    pub exclude: bool,
    /// What is wrong with it, in one line.
    pub reason: String,
}

/// Everything but [`EXCLUDED_BY_DEFAULT`].
impl Default for Selection {
    fn default() -> Self {
        // The constant is valid: a test compiles it.
        Self { include: None, exclude: whole(EXCLUDED_BY_DEFAULT).ok() }
    }
}

impl Selection {
    /// With neither expression, everything but [`EXCLUDED_BY_DEFAULT`].
    pub fn new(include: Option<&str>, exclude: Option<&str>) -> Result<Self, BadExpression> {
        let default = include.is_none().then_some(EXCLUDED_BY_DEFAULT);
        let bad = |exclude| move |reason| BadExpression { exclude, reason };
        Ok(Self {
            include: include.map(whole).transpose().map_err(bad(false))?,
            exclude: exclude.or(default).map(whole).transpose().map_err(bad(true))?,
        })
    }

    /// Whether a device of this name is shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(name))
    }
}

/// Matches whole names. The pattern is compiled alone first, so that an error message is about what the user wrote.
fn whole(pattern: &str) -> Result<Regex, String> {
    let whole = Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})$")));
    whole.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{BadExpression, Selection};

    #[test]
    fn ram_disks_are_excluded_by_default() {
        for selection in [Selection::new(None, None).unwrap(), Selection::default()] {
            assert!(selection.shows("nvme0n1") && selection.shows("loop7") && selection.shows("nvme0c1n1"));
            assert!(!selection.shows("zram0") && !selection.shows("ram12"));
        }
    }

    #[test]
    fn whole_names_and_both_ways() {
        let selection = Selection::new(Some("nvme.*|sda"), Some("nvme1n1")).unwrap();
        assert!(selection.shows("nvme0n1") && selection.shows("sda"));
        assert!(!selection.shows("sdaa") && !selection.shows("nvme1n1") && selection.shows("nvme1n12"));
        assert!(Selection::new(Some("zram0"), None).unwrap().shows("zram0"));
    }

    #[test]
    fn an_invalid_expression_is_an_error() {
        let bad = Selection::new(Some("nvme["), None).unwrap_err();
        assert_eq!(bad, BadExpression { exclude: false, reason: "found unclosed character class".into() });
        assert!(Selection::new(Some("a"), Some("*")).unwrap_err().exclude);
    }

    #[test]
    fn classes_and_flags() {
        let selection = Selection::new(Some(r"nvme\d+n\d+|(?i)SD\w"), None).unwrap();
        assert!(selection.shows("nvme10n1") && selection.shows("sdb") && !selection.shows("nvmexn1"));
    }
}
