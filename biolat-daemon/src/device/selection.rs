//! Which devices are shown: the grammar of `--device` and `--device-exclude`, which is the same for all commands.

use regex_lite::Regex;

/// Devices that are not shown by default: RAM disks.
const EXCLUDED_BY_DEFAULT: &str = "^z?ram[0-9]+$";

/// Lists of regular expressions on device names, each matched against the whole name.
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

/// Matches whole names against any expression of a list. Each is compiled alone first, so that an error message is about what
/// the user wrote.
fn whole(list: &str) -> Result<Regex, String> {
    let text = |error: regex_lite::Error| error.to_string();
    let mut each = Vec::new();
    for pattern in split(list) {
        Regex::new(pattern).map_err(text)?;
        // A line feed ends a comment, which the flag `x` allows.
        let end = if Regex::new(&format!("(?:{pattern})")).is_ok() { "" } else { "\n" };
        each.push(format!("(?:{pattern}{end})"));
    }
    if each.is_empty() {
        return Err("it names no device".to_owned());
    }
    Regex::new(&format!("^(?:{})$", each.join("|"))).map_err(text)
}

/// The expressions of a list that is separated by commas, without the folder of device nodes. A comma within brackets belongs to
/// the expression.
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
        let commented = Selection::new(Some("(?x) vda # my disk"), None).unwrap();
        assert!(commented.shows("vda") && !commented.shows("vdab"));
    }

    #[test]
    fn lists_and_device_nodes() {
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
