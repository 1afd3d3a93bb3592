//! Findings as a JSON document, for programs.

use biolat_probe::abilities::{self, Abilities};
use serde::Serialize;

use super::finding::{Finding, Verdict, count};
use crate::version;

/// Version of the document format. Within a version, fields can be added, but never renamed, removed or redefined.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    biolat: &'a str,
    works: bool,
    findings: &'a [Finding],
    /// Empty if the kernel's BTF cannot be used.
    abilities: Vec<AbilityEntry>,
}

#[derive(Serialize)]
struct AbilityEntry {
    name: &'static str,
    available: bool,
    kernels: String,
    without: &'static str,
}

pub(super) fn document(findings: &[Finding], abilities: Option<Abilities>) -> String {
    let works = count(findings, Verdict::Fail) == 0;
    let entries = |found: Abilities| {
        abilities::ALL.iter().map(move |row| AbilityEntry {
            name: row.name,
            available: found.has(row.ability),
            kernels: row.kernels.to_string(),
            without: row.without,
        })
    };
    let abilities = abilities.into_iter().flat_map(entries).collect();
    let document = Document { version: VERSION, biolat: version::LONG, works, findings, abilities };
    // Serializing strings and numbers cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use biolat_probe::abilities::Ability;

    use super::{Abilities, Finding, abilities, document};

    #[test]
    fn serializes_findings() {
        let note = Finding::note("a.b", "vda", "x").command("run \"it\"").step("or do");
        let read = |findings: &[Finding]| {
            serde_json::from_str::<serde_json::Value>(&document(findings, None)).unwrap()
        };
        let found = read(&[Finding::ok("c", "port 1", ""), note]);
        assert_eq!((&found["version"], &found["works"]), (&json!(1), &json!(true)));
        let expected = json!([
            {"id": "c", "subject": "port 1", "verdict": "ok", "text": "", "fix": []},
            {"id": "a.b", "subject": "vda", "verdict": "note", "text": "x",
             "fix": [{"command": "run \"it\""}, {"step": "or do"}]},
        ]);
        assert_eq!(found["findings"], expected);
        assert_eq!(read(&[Finding::fail("d", "", "")])["works"], json!(false));
        assert_eq!(found["abilities"], json!([]));
    }

    #[test]
    fn lists_abilities() {
        let all = Abilities::with(abilities::ALL.iter().map(|row| row.ability));
        let found = document(&[], Some(all.without(Ability::FlushStatistics)));
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let found = found["abilities"].as_array().unwrap();
        assert_eq!(found.len(), abilities::ALL.len());
        let flushes = found.iter().find(|entry| entry["name"] == "flush_statistics").unwrap();
        assert_eq!((&flushes["available"], &flushes["kernels"]), (&json!(false), &json!("from 5.5")));
        assert_eq!(found.iter().filter(|entry| entry["available"] == false).count(), 1);
    }
}
