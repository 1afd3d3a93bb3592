//! Test certificates and temporary folders.

#![allow(dead_code, reason = "each test uses only part of it")]

use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// A temporary folder, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("biolat-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns a TLS client configuration that trusts this authority.
    pub(crate) fn client(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
    }

    /// Issues a certificate for `name.example` and 127.0.0.1.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_until(name, 2100)
    }

    /// Issues an expired certificate.
    pub(crate) fn issue_expired(&self, name: &str) -> Issued {
        self.issue_until(name, 2020)
    }

    fn issue_until(&self, name: &str, year: i32) -> Issued {
        let names = [format!("{name}.example"), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { name: name.to_owned(), certificate, key: key.serialize_pem() }
    }
}

/// A certificate and its key.
pub(crate) struct Issued {
    name: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Issued {
    /// Writes `NAME.pem` and `NAME.key`.
    pub(crate) fn write(&self, folder: &Folder) {
        folder.write(&format!("{}.pem", self.name), &self.certificate);
        folder.write(&format!("{}.key", self.name), &self.key);
    }
}
