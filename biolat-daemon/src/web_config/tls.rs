//! Builds the TLS server of `tls_server_config`, which uses Go's names for versions, ciphers and curves.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Result, anyhow};
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{
        CryptoProvider, SupportedKxGroup,
        ring::{default_provider, kx_group},
    },
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::NoServerSessionStorage,
    version::{TLS12, TLS13},
};
use x509_cert::{Certificate, der::Decode as _};

use super::{
    WebConfigError,
    client_certificates::{self, ClientAuthPolicy},
    file_format::TlsSection,
    files::Files,
};

/// Ciphers that Go supports but rustls rejects as unsafe.
const UNSAFE_CIPHERS: [&str; 4] = [
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
];

/// TLS 1.3 cipher suites: all are safe and, as in Go, not configurable.
const TLS13_CIPHERS: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

pub(super) struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    /// Names of the active protections.
    pub(super) protections: Vec<&'static str>,
    /// Expiry time of the certificate.
    pub(super) expires: Option<SystemTime>,
}

/// Builds the server; `None` if TLS is not configured.
pub(super) fn server(tls: TlsSection, folder: &Path, files: &mut Files) -> Result<Option<TlsServer>> {
    if tls == TlsSection::default() {
        return Ok(None);
    }
    let mut pem = |name, inline, file| pem(name, inline, file, folder, files);
    let certificates = pem("cert", tls.cert, tls.cert_file)?;
    let key = pem("key", tls.key, tls.key_file)?;
    let authorities = pem("client_ca", tls.client_ca, tls.client_ca_file)?;

    let provider = Arc::new(CryptoProvider {
        cipher_suites: ciphers(tls.cipher_suites.unwrap_or_default())?,
        kx_groups: curves(tls.curve_preferences.unwrap_or_default())?,
        ..default_provider()
    });
    let versions = versions(tls.min_version, tls.max_version)?;
    let policy = ClientAuthPolicy::parse(&tls.client_auth_type.unwrap_or_default())?;
    let protections = [
        ("TLS", true),
        ("TLS 1.3 only", !versions.contains(&&TLS12)),
        ("required client certificates", policy.required),
        ("verified client certificates", policy.required && policy.verified),
        ("client_allowed_sans", tls.client_allowed_sans.is_some()),
    ];
    let protections =
        protections.into_iter().filter_map(|(protection, there)| there.then_some(protection)).collect();
    let authorities = authorities.as_ref().map(roots).transpose()?;
    let verifier = client_certificates::verifier(policy, authorities, tls.client_allowed_sans, &provider)?;

    let certificates = certificates.ok_or_else(|| WebConfigError("cert_file is missing".into()))?;
    let pem = key.ok_or_else(|| WebConfigError("key_file is missing".into()))?;
    let chain = chain(&certificates)?;
    let expires = chain.first().and_then(expiry);
    let key = PrivateKeyDer::from_pem_slice(&pem.bytes)
        .map_err(|_| pem.error("holds no private key in PEM, or an encrypted one"))?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| WebConfigError(format!("versions and ciphers do not match: {error}")))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let (file, other) = if pem.from.is_ok() { (&pem, &certificates) } else { (&certificates, &pem) };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| file.error(&format!("and {other} do not match: {error}")))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    server.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
    // No session resumption: clients keep connections open, and every handshake must check the client certificate.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Some(TlsServer { config: Arc::new(server), protections, expires }))
}

/// Returns the expiry time of a certificate; `None` if it cannot be parsed.
fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_system_time())
}

/// PEM data and its origin.
struct Pem {
    bytes: Vec<u8>,
    /// The file, or the configuration key that contains the data.
    from: Result<PathBuf, &'static str>,
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Ok(path) => path.display().fmt(f),
            Err(key) => f.write_str(key),
        }
    }
}

impl Pem {
    /// Returns an error. It is a [`WebConfigError`] only for PEM in the configuration itself, because other files may be about to
    /// be replaced.
    fn error(&self, what: &str) -> anyhow::Error {
        let message = format!("{self} {what}");
        if self.from.is_ok() { anyhow!(message) } else { WebConfigError(message).into() }
    }
}

/// Reads PEM that is given inline or as a file name, but not both.
fn pem(
    name: &'static str,
    inline: Option<String>,
    file: Option<String>,
    folder: &Path,
    files: &mut Files,
) -> Result<Option<Pem>> {
    // As in the exporter toolkit, an empty value counts as absent.
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(match (given(inline), given(file)) {
        (None, None) => None,
        (Some(inline), None) => Some(Pem { bytes: inline.into_bytes(), from: Err(name) }),
        // The value is PEM: opening it as a file would put the private key into the error.
        (None, Some(file)) if file.contains('\n') || file.contains("-----BEGIN") => {
            return Err(
                WebConfigError(format!("{name}_file must be a file name; put PEM into {name}")).into()
            );
        }
        (None, Some(file)) => {
            let path = folder.join(file);
            Some(Pem { bytes: files.read(&path)?, from: Ok(path) })
        }
        (Some(_), Some(_)) => {
            return Err(WebConfigError(format!("{name} and {name}_file are both given: remove one")).into());
        }
    })
}

fn chain(pem: &Pem) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    let chain = chain.map_err(|_| pem.error("is not PEM"))?;
    if chain.is_empty() { Err(pem.error("holds no certificate in PEM")) } else { Ok(chain) }
}

fn roots(pem: &Pem) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots
            .add(certificate)
            .map_err(|error| pem.error(&format!("is not a certificate of an authority: {error}")))?;
    }
    Ok(roots)
}

fn versions(
    min: Option<String>,
    max: Option<String>,
) -> Result<Vec<&'static SupportedProtocolVersion>, WebConfigError> {
    let number = |name: &str, text: Option<String>, default| match text.as_deref() {
        None | Some("") => Ok(default),
        Some("TLS10") => Ok(10),
        Some("TLS11") => Ok(11),
        Some("TLS12") => Ok(12),
        Some("TLS13") => Ok(13),
        Some(other) => Err(WebConfigError(format!("{name} '{other}' is not TLS12 or TLS13"))),
    };
    let (min, max) = (number("min_version", min, 12)?, number("max_version", max, 13)?);
    if max < 12 || max < min {
        return Err(WebConfigError(
            "no version between min_version and max_version: biolat supports TLS12 and TLS13".into(),
        ));
    }
    if min < 12 {
        log::warn!("min_version is below TLS12: using TLS12, because TLS 1.0 and 1.1 are unsafe");
    }
    let mut versions = Vec::new();
    if max == 13 {
        versions.push(&TLS13);
    }
    if min <= 12 {
        versions.push(&TLS12);
    }
    Ok(versions)
}

/// Returns the TLS 1.3 suites, followed by the suites with these names in this order.
fn ciphers(names: Vec<String>) -> Result<Vec<SupportedCipherSuite>, WebConfigError> {
    let all = default_provider().cipher_suites;
    if names.is_empty() {
        return Ok(all);
    }
    let (mut chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|suite| suite.tls13().is_some());
    for name in &names {
        if let Some(suite) = others.iter().find(|suite| suite.suite().as_str() == Some(name)) {
            chosen.push(*suite);
        } else if UNSAFE_CIPHERS.contains(&name.as_str()) {
            log::warn!("cipher_suites: {name} is unsafe: ignored");
        } else if !TLS13_CIPHERS.contains(&name.as_str()) {
            return Err(WebConfigError(format!(
                "cipher_suites: unknown suite {name}; supported: {}",
                others.iter().filter_map(|suite| suite.suite().as_str()).collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Ok(chosen)
}

fn curves(names: Vec<String>) -> Result<Vec<&'static dyn SupportedKxGroup>, WebConfigError> {
    if names.is_empty() {
        return Ok(default_provider().kx_groups);
    }
    let mut chosen = Vec::new();
    for name in &names {
        match name.as_str() {
            "X25519" => chosen.push(kx_group::X25519),
            "CurveP256" => chosen.push(kx_group::SECP256R1),
            "CurveP384" => chosen.push(kx_group::SECP384R1),
            "CurveP521" => log::warn!("curve_preferences: CurveP521 is not supported: ignored"),
            _ => return Err(WebConfigError(format!("curve_preferences: unknown curve {name}; {CURVES}"))),
        }
    }
    if chosen.is_empty() {
        Err(WebConfigError(format!("curve_preferences: no supported curve; {CURVES}")))
    } else {
        Ok(chosen)
    }
}

const CURVES: &str = "supported: X25519, CurveP256, CurveP384";

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};

    use super::{ciphers, curves, versions};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn uses_only_safe_versions() {
        let between = |min: &str, max: &str| {
            let versions = versions(Some(min.to_owned()), Some(max.to_owned()));
            versions.ok().map(|versions| versions.iter().map(|version| version.version).collect::<Vec<_>>())
        };
        assert_eq!(between("", ""), Some(vec![TLSv1_3, TLSv1_2]));
        assert_eq!(between("TLS10", "TLS13"), Some(vec![TLSv1_3, TLSv1_2]));
        assert_eq!(between("TLS11", "TLS12"), Some(vec![TLSv1_2]));
        assert_eq!(between("TLS13", ""), Some(vec![TLSv1_3]));
        for (min, max) in [("TLS10", "TLS11"), ("TLS13", "TLS12"), ("SSL3", ""), ("", "tls13")] {
            assert_eq!(between(min, max), None, "{min} to {max}");
        }
    }

    #[test]
    fn ciphers_keep_their_order_without_unsafe_ones() {
        let chosen = |names: &[&str]| {
            let suites = ciphers(texts(names)).unwrap();
            let old = suites.iter().filter(|suite| suite.tls13().is_none());
            old.filter_map(|suite| suite.suite().as_str()).collect::<Vec<_>>()
        };
        let (slow, quick) =
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");
        assert_eq!(chosen(&[quick, slow]), [quick, slow]);
        assert_eq!(chosen(&[slow, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", quick]), [slow, quick]);
        assert_eq!(chosen(&["TLS_AES_128_GCM_SHA256"]), [""; 0]);
        assert_eq!(chosen(&[]).len(), 6);
        assert!(ciphers(texts(&["TLS_NULL"])).unwrap_err().to_string().contains(slow));
    }

    #[test]
    fn curves_keep_their_order() {
        let chosen = |names: &[&str]| {
            let curves = curves(texts(names)).ok()?;
            Some(curves.iter().filter_map(|curve| curve.name().as_str()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["CurveP384", "X25519"]), Some(vec!["secp384r1", "X25519"]));
        assert_eq!(chosen(&["CurveP521", "CurveP256"]), Some(vec!["secp256r1"]));
        assert_eq!((chosen(&["CurveP521"]), chosen(&["P256"])), (None, None));
        assert_eq!(chosen(&[]).map(|curves| curves.len()), Some(3));
    }
}
