//! Which servers `biolat --host` trusts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use x509_cert::{Certificate, der::Decode as _};

/// Locations of the CA certificates by distribution: Debian, Fedora, openSUSE, Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Trusts the certificates in this file, or the system's by default.
pub(super) fn config(file: Option<&Path>) -> Result<ClientConfig> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => bundle()
            .context("this system has no CA certificates: install ca-certificates, or give --ca-file FILE")?,
    };
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let trusted = trusted.map_err(|error| anyhow!("{} is not PEM: {error}", path.display()))?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(trusted.iter().cloned()).0 == 0 {
        bail!("{} contains no PEM certificate", path.display());
    }
    let provider = Arc::new(default_provider());
    let issued =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let own = if file.is_some() { trusted } else { Vec::new() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // rustls' name for custom verifiers.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Servers { issued, own }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn bundle() -> Option<PathBuf> {
    BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Accepts certificates issued by a trusted CA, and certificates that are trusted themselves. A self-signed one is a CA
/// certificate, which rustls' own verifier rejects for a server.
#[derive(Debug)]
struct Servers {
    issued: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.own.iter().any(|own| own == certificate) {
            return self.issued.verify_server_cert(certificate, intermediates, name, ocsp, now);
        }
        check_validity(certificate, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.tbs_certificate().validity();
    let since = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
    if now.as_secs() < since(validity.not_before) {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > since(validity.not_after) {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Why a handshake failed, and the fix.
pub(super) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is issued by a CA that is not trusted here: give that CA's certificate, or the server's \
             own, with --ca-file FILE"
                .to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is for another name ({error}): use that name"),
        // A self-signed certificate is a CA certificate.
        Error::InvalidCertificate(CertificateError::Other(error)) => {
            format!("its certificate is not trusted here ({error}): give it, or its CA's, with --ca-file FILE")
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidMessage(_) => "it does not speak TLS: is it http://?".to_owned(),
        _ => error.to_string(),
    }
}
