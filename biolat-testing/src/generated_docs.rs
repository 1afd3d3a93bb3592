//! Checks the generated parts of the documentation, delimited by `<!-- generated: NAME -->` and `<!-- end -->`.

use std::{fs, path::Path};

/// If this environment variable is set to any value, the documentation is written instead of checked.
const UPDATE: &str = "BIOLAT_UPDATE_DOCS";

/// Checks that a generated part matches the code. `file` is relative to the repository root.
pub fn check(file: &str, part: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- generated: {part} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{file} has no {begin}"));
    let (found, after) =
        rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{file}: {part} has no end"));
    let expected = format!("\n{}\n\n", expected.trim());
    if found == expected {
        return;
    }
    assert!(
        std::env::var_os(UPDATE).is_some(),
        "{file}: the part '{part}' differs from the code. Rewrite it with:\n\n    \
         {UPDATE}=1 cargo test --lib documented -- --test-threads 1\n"
    );
    fs::write(&path, format!("{before}{begin}{expected}<!-- end -->{after}")).unwrap();
}
