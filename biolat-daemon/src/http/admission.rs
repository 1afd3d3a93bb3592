//! The admission of a request, for responses that outlive a change of the configuration.

use std::sync::Arc;

use crate::web_config::{Access, WebConfig};

/// The configuration under which a request was admitted.
#[derive(Clone)]
pub(super) struct Admission {
    web_config: Option<Arc<WebConfig>>,
    access: Arc<Access>,
    /// The handshake was under an older configuration.
    is_outdated: bool,
}

impl Admission {
    pub(super) fn new(web_config: Option<Arc<WebConfig>>, access: Arc<Access>, is_outdated: bool) -> Self {
        Self { web_config, access, is_outdated }
    }

    /// Whether that configuration still applies. If not, the client has to authenticate again.
    pub(super) async fn is_current(&self) -> bool {
        match &self.web_config {
            Some(web_config) => !self.is_outdated && Arc::ptr_eq(&web_config.access().await, &self.access),
            None => true,
        }
    }
}
