//! Whom a client of `report --from` trusts.

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

/// Where distributions keep the certificates of those whom everybody trusts: Debian, Fedora, openSUSE, Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A client that trusts the certificates in this file, or else those that the system does.
pub(super) fn config(file: Option<&Path>) -> Result<ClientConfig> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => bundle().context(
            "this system has no certificates of authorities: install ca-certificates, or give --ca-file FILE",
        )?,
    };
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let trusted = trusted.map_err(|error| anyhow!("{} is not PEM: {error}", path.display()))?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(trusted.iter().cloned()).0 == 0 {
        bail!("{} holds no certificate in PEM", path.display());
    }
    let provider = Arc::new(default_provider());
    let issued =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let own = if file.is_some() { trusted } else { Vec::new() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // So called as it is for us to say whom to trust.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Servers { issued, own }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn bundle() -> Option<PathBuf> {
    BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Servers whose certificate an authority has issued that is trusted, or is itself among those that are: a certificate of
/// one's own making is its own authority, and rustls takes no authority's for a server's.
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
        is_of_now(certificate, now)?;
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

fn is_of_now(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
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

/// What is the matter with a handshake, and what to do.
pub(super) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is of an authority that is not trusted here: give that authority's certificate, or the \
             server's own, by --ca-file FILE"
                .to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is another host's ({error}): use the name that it is for"),
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        Error::InvalidMessage(_) => "it does not speak TLS there: is it http://?".to_owned(),
        _ => error.to_string(),
    }
}
