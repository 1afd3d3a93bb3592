//! `cargo xtask deploy`: that what stands in `deploy/` works, by the tools of those who will use it.

use anyhow::{Result, bail};

use crate::machine::Need;

/// Something in `deploy/`, and the check of it.
struct Part {
    name: &'static str,
    needs: &'static [Need],
    check: fn() -> Result<()>,
}

const PARTS: &[Part] = &[];

/// Checks one part or all of them; one that this machine cannot check is named, and fails if `strict`.
pub(crate) fn check(strict: bool, wanted: Option<&str>) -> Result<()> {
    if let Some(wanted) = wanted
        && !PARTS.iter().any(|part| part.name == wanted)
    {
        bail!(
            "deploy/ has no part {wanted}: there is {}",
            PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")
        );
    }
    let mut left_out = Vec::new();
    for part in PARTS.iter().filter(|part| wanted.is_none_or(|wanted| part.name == wanted)) {
        let lacking: Vec<_> = part.needs.iter().filter_map(|need| need.lacking()).collect();
        if lacking.is_empty() {
            (part.check)()?;
            println!("ok: deploy {}", part.name);
        } else {
            println!("not checked: deploy {}: {}", part.name, lacking.join("; "));
            left_out.push(part.name);
        }
    }
    if strict && !left_out.is_empty() {
        bail!("{} cannot be checked here, and --strict wants all of it", left_out.join(", "));
    }
    Ok(())
}
