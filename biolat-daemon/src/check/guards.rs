//! The web config, if there is one.

use std::path::Path;

use super::finding::Finding;
use crate::web_config::WebConfig;

pub(super) fn guards(path: &Path) -> Finding {
    const ID: &str = "web_config";
    const SUBJECT: &str = "web config";
    match WebConfig::open(path) {
        Ok(web_config) => {
            let guards = match web_config.protections() {
                guards if guards.is_empty() => "keeps nobody out".to_owned(),
                guards => guards.join(", "),
            };
            Finding::ok(ID, SUBJECT, format!("{}: {}, {guards}", path.display(), web_config.scheme()))
        }
        Err(error) => {
            let text = format!("{error:#}");
            let text = text.strip_prefix("web config ").unwrap_or(&text);
            Finding::fail(ID, SUBJECT, text).step("deploy/web-config.yml explains every key")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::finding::Verdict::{Fail, Ok as Fine},
        guards,
    };
    use crate::device::tree::Tree;

    #[test]
    fn what_it_says() {
        let tree = Tree::new("guards", &[]);
        let path = tree.0.join("web.yml");
        for (text, verdict, expected) in [
            ("", Fine, "http, keeps nobody out"),
            (
                "basic_auth_users: {a: $2y$04$V6LaZZ1z8T9IRnzO9hNiDOeDWdXzHGzHNTNqp7Mw0VZyTxfUfVtEa}",
                Fine,
                "http, passwords",
            ),
            ("basic_auth_users: {a: hunter2}", Fail, "web.yml: "),
            ("tls_server_config: [", Fail, "web.yml: "),
        ] {
            tree.write("web.yml", text.as_bytes());
            let finding = guards(&path);
            assert_eq!((finding.id, finding.verdict), ("web_config", verdict), "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
            assert!(!finding.text.contains("hunter2"), "{finding:?}");
        }
        assert_eq!(guards(&tree.0.join("missing.yml")).verdict, Fail);
    }
}
