//! Checks the web config: TLS and the authentication methods.

use std::{path::Path, time::SystemTime};

use super::finding::Finding;
use crate::web_config::WebConfig;

pub(super) fn auth_modes(path: &Path) -> Finding {
    const ID: &str = "web_config";
    const SUBJECT: &str = "web config";
    match WebConfig::open(path) {
        Ok(web_config) => {
            let modes = match web_config.protections() {
                modes if modes.is_empty() => "no authentication".to_owned(),
                modes => modes.join(", "),
            };
            let text = format!("{}: {}, {modes}", path.display(), web_config.scheme());
            if web_config.certificate_expires().is_some_and(|expires| expires <= SystemTime::now()) {
                return Finding::fail(ID, SUBJECT, format!("{text}; its certificate has expired"))
                    .step("renew the certificate: clients reject it");
            }
            Finding::ok(ID, SUBJECT, text)
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
    use biolat_testing::Tree;

    use super::{
        super::finding::Verdict::{Fail, Ok as Fine},
        auth_modes,
    };

    #[test]
    fn reports_scheme_and_authentication() {
        let tree = Tree::new("auth_modes", &[]);
        let path = tree.0.join("web.yml");
        for (text, verdict, expected) in [
            ("", Fine, "http, no authentication"),
            (
                "basic_auth_users: {a: $2y$04$V6LaZZ1z8T9IRnzO9hNiDOeDWdXzHGzHNTNqp7Mw0VZyTxfUfVtEa}",
                Fine,
                "http, passwords",
            ),
            ("basic_auth_users: {a: hunter2}", Fail, "web.yml: "),
            ("tls_server_config: [", Fail, "web.yml: "),
        ] {
            tree.write("web.yml", text.as_bytes());
            let finding = auth_modes(&path);
            assert_eq!((finding.id, finding.verdict), ("web_config", verdict), "{finding:?}");
            assert!(finding.text.contains(expected), "{finding:?}");
            assert!(!finding.text.contains("hunter2"), "{finding:?}");
        }
        assert_eq!(auth_modes(&tree.0.join("missing.yml")).verdict, Fail);
    }
}
