//! Verifies client certificates, which decide who can connect to the TLS server.

use std::{net::IpAddr, sync::Arc};

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use x509_cert::{
    Certificate,
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::WebConfigError;

/// The value of `client_auth_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientAuthPolicy {
    requested: bool,
    pub(super) required: bool,
    pub(super) verified: bool,
}

impl ClientAuthPolicy {
    pub(super) fn parse(name: &str) -> Result<Self, WebConfigError> {
        let (requested, required, verified) = match name {
            "" | "NoClientCert" => (false, false, false),
            "RequestClientCert" => (true, false, false),
            "RequireAnyClientCert" | "RequireClientCert" => (true, true, false),
            "VerifyClientCertIfGiven" => (true, false, true),
            "RequireAndVerifyClientCert" => (true, true, true),
            _ => {
                return Err(WebConfigError(format!(
                    "client_auth_type '{name}' is not one of NoClientCert, RequestClientCert, RequireAnyClientCert, \
                     VerifyClientCertIfGiven, RequireAndVerifyClientCert"
                )));
            }
        };
        Ok(Self { requested, required, verified })
    }
}

/// Makes the verifier of client certificates; `None` if they are not requested.
pub(super) fn verifier(
    policy: ClientAuthPolicy,
    authorities: Option<RootCertStore>,
    allowed_sans: Option<Vec<String>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, WebConfigError> {
    if allowed_sans.is_some() && !(policy.required && policy.verified) {
        return Err(WebConfigError(
            "client_allowed_sans requires client_auth_type RequireAndVerifyClientCert: without it, anyone can make a \
             certificate with any name"
                .into(),
        ));
    }
    let issued = match (policy.verified, authorities) {
        (false, None) => None,
        (false, Some(_)) => {
            return Err(WebConfigError(
                "client_ca_file is given, but client certificates are not verified: set client_auth_type to \
                 RequireAndVerifyClientCert"
                    .into(),
            ));
        }
        (true, None) => {
            return Err(WebConfigError("client_auth_type requires client_ca_file".into()));
        }
        (true, Some(authorities)) => Some(
            WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider))
                .build()
                .map_err(|error| WebConfigError(format!("client_ca_file: {error}")))?,
        ),
    };
    if !policy.requested {
        return Ok(None);
    }
    let algorithms = provider.signature_verification_algorithms;
    Ok(Some(Arc::new(ClientVerifier { required: policy.required, issued, allowed_sans, algorithms })))
}

#[derive(Debug)]
struct ClientVerifier {
    required: bool,
    /// Checks issuer and validity; `None`: any certificate is accepted.
    issued: Option<Arc<dyn ClientCertVerifier>>,
    allowed_sans: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.as_ref().map_or(&[], |issued| issued.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(issued) = &self.issued {
            issued.verify_client_cert(certificate, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_sans
            && !names(certificate)?.iter().any(|name| allowed.contains(name))
        {
            return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the subject alternative names of a certificate: DNS, e-mail, URI and IP.
fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let certificate = Certificate::from_der(certificate).map_err(bad)?;
    let extension = certificate.tbs_certificate().get_extension::<SubjectAltName>().map_err(bad)?;
    let names = extension.map_or_else(Vec::new, |(_critical, names)| names.0);
    Ok(names.iter().filter_map(name).collect())
}

fn name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name)
        | GeneralName::Rfc822Name(name)
        | GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
        GeneralName::IpAddress(address) => {
            let bytes = address.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
                .ok()
                .map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_rustls::rustls::{RootCertStore, crypto::ring::default_provider};

    use super::{ClientAuthPolicy, verifier};

    #[test]
    fn rejects_options_without_effect() {
        let rejected = |policy: &str, authorities: bool, names: bool| {
            let policy = ClientAuthPolicy::parse(policy).unwrap();
            let authorities = authorities.then(RootCertStore::empty);
            let names = names.then(|| vec!["client.example".to_owned()]);
            verifier(policy, authorities, names, &Arc::new(default_provider())).err().map(|error| error.0)
        };
        for policy in ["", "NoClientCert", "RequestClientCert", "RequireClientCert", "RequireAnyClientCert"] {
            assert_eq!(rejected(policy, false, false), None, "{policy}");
            let authorities = rejected(policy, true, false).unwrap_or_default();
            assert!(authorities.contains("client_ca_file is given, but"), "{policy}: {authorities}");
            for authorities in [false, true] {
                let names = rejected(policy, authorities, true).unwrap_or_default();
                assert!(names.contains("client_allowed_sans requires"), "{policy}: {names}");
            }
        }
        assert!(rejected("VerifyClientCertIfGiven", true, true).is_some());
    }
}
