//! The configuration under which a request was admitted. A long response ends when it changes.

use std::sync::Arc;

use crate::web_config::{Access, WebConfig};

/// The configuration under which a request was admitted.
#[derive(Clone)]
pub(super) struct Admission {
    web_config: Option<Arc<WebConfig>>,
    access: Arc<Access>,
    /// Whether the TLS handshake used an older configuration.
    is_outdated: bool,
}

impl Admission {
    pub(super) fn new(web_config: Option<Arc<WebConfig>>, access: Arc<Access>, is_outdated: bool) -> Self {
        Self { web_config, access, is_outdated }
    }

    /// Whether the configuration still applies. If not, the client must authenticate again.
    pub(super) async fn is_current(&self) -> bool {
        match &self.web_config {
            Some(web_config) => !self.is_outdated && Arc::ptr_eq(&web_config.access().await, &self.access),
            None => true,
        }
    }
}
