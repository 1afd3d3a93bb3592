//! Findings as a JSON document, for programs.

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
}

pub(super) fn document(findings: &[Finding]) -> String {
    let works = count(findings, Verdict::Fail) == 0;
    let document = Document { version: VERSION, biolat: version::LONG, works, findings };
    // Serializing strings and numbers cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Finding, document};

    #[test]
    fn serializes_findings() {
        let note = Finding::note("a.b", "vda", "x").command("run \"it\"").step("or do");
        let read =
            |findings: &[Finding]| serde_json::from_str::<serde_json::Value>(&document(findings)).unwrap();
        let found = read(&[Finding::ok("c", "port 1", ""), note]);
        assert_eq!((&found["version"], &found["works"]), (&json!(1), &json!(true)));
        let expected = json!([
            {"id": "c", "subject": "port 1", "verdict": "ok", "text": "", "fix": []},
            {"id": "a.b", "subject": "vda", "verdict": "note", "text": "x",
             "fix": [{"command": "run \"it\""}, {"step": "or do"}]},
        ]);
        assert_eq!(found["findings"], expected);
        assert_eq!(read(&[Finding::fail("d", "", "")])["works"], json!(false));
    }
}
