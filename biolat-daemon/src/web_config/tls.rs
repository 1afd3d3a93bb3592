//! The TLS server that `tls_server_config` describes: rustls, with the names that Go has for things.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
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

use super::{
    WebConfigError,
    client_certificates::{self, ClientAuthPolicy},
    file_format::TlsSection,
    files::Files,
};

/// What Go has and rustls deliberately has not.
const CIPHERS_LEFT_OUT: [&str; 4] = [
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
];

/// In TLS 1.3 every suite is sound and, as in Go, none is chosen.
const CIPHERS_OF_TLS13: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// A TLS server.
pub(super) struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    /// What keeps strangers out.
    pub(super) protections: Vec<&'static str>,
}

/// A server as described; nothing if nothing is.
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
        ("TLS 1.3 alone", !versions.contains(&&TLS12)),
        ("required client certificates", policy.required),
        ("verified client certificates", policy.required && policy.verified),
        ("client_allowed_sans", tls.client_allowed_sans.is_some()),
    ];
    let protections =
        protections.into_iter().filter_map(|(protection, there)| there.then_some(protection)).collect();
    let authorities = authorities.as_ref().map(roots).transpose()?;
    let verifier = client_certificates::verifier(policy, authorities, tls.client_allowed_sans, &provider)?;

    let certificates = certificates.ok_or_else(|| WebConfigError("cert_file is lacking".into()))?;
    let pem = key.ok_or_else(|| WebConfigError("key_file is lacking".into()))?;
    let chain = chain(&certificates)?;
    let key = PrivateKeyDer::from_pem_slice(&pem.bytes)
        .map_err(|_| pem.unfit("holds no private key in PEM, or one under a passphrase"))?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| WebConfigError(format!("versions and ciphers do not go together: {error}")))?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let (file, other) = if pem.from.is_ok() { (&pem, &certificates) } else { (&certificates, &pem) };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| file.unfit(&format!("and {other} do not go together: {error}")))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    server.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
    // Who keeps a connection needs no session; and a certificate is checked_at at each time.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Some(TlsServer { config: Arc::new(server), protections }))
}

/// PEM, and where it stands: the key whose value it is, or a file.
struct Pem {
    bytes: Vec<u8>,
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
    /// An error. [`WebConfigError`] only if the PEM stands in the configuration itself: other files may be about to be replaced.
    fn unfit(&self, what: &str) -> anyhow::Error {
        let message = format!("{self} {what}");
        if self.from.is_ok() { anyhow!(message) } else { WebConfigError(message).into() }
    }
}

/// What is given inline or by a file's name; both is one too many.
fn pem(
    name: &'static str,
    inline: Option<String>,
    file: Option<String>,
    folder: &Path,
    files: &mut Files,
) -> Result<Option<Pem>> {
    // As for the exporters, what is empty is not given.
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(match (given(inline), given(file)) {
        (None, None) => None,
        (Some(inline), None) => Some(Pem { bytes: inline.into_bytes(), from: Err(name) }),
        // An error would name it, private key and all.
        (None, Some(file)) if file.contains('\n') || file.contains("-----BEGIN") => {
            return Err(WebConfigError(format!("{name}_file takes a file's name; PEM goes to {name}")).into());
        }
        (None, Some(file)) => {
            let path = folder.join(file);
            Some(Pem { bytes: files.read(&path)?, from: Ok(path) })
        }
        (Some(_), Some(_)) => {
            return Err(WebConfigError(format!("{name} and {name}_file are both given: keep one")).into());
        }
    })
}

fn chain(pem: &Pem) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    let chain = chain.map_err(|_| pem.unfit("is not PEM"))?;
    if chain.is_empty() { Err(pem.unfit("holds no certificate in PEM")) } else { Ok(chain) }
}

fn roots(pem: &Pem) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots.add(certificate).map_err(|error| pem.unfit(&format!("is not an authority's: {error}")))?;
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
        Some(other) => Err(WebConfigError(format!("{name} '{other}' is neither TLS12 nor TLS13"))),
    };
    let (min, max) = (number("min_version", min, 12)?, number("max_version", max, 13)?);
    if max < 12 || max < min {
        return Err(WebConfigError(
            "no version lies between min_version and max_version: biolat speaks TLS12 and TLS13".into(),
        ));
    }
    if min < 12 {
        log::warn!("min_version below TLS12: TLS 1.0 and 1.1 are unsafe and not spoken, it is TLS12");
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

/// The suites of these names, in this order, and those of TLS 1.3.
fn ciphers(names: Vec<String>) -> Result<Vec<SupportedCipherSuite>, WebConfigError> {
    let all = default_provider().cipher_suites;
    if names.is_empty() {
        return Ok(all);
    }
    let (mut chosen, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|suite| suite.tls13().is_some());
    for name in &names {
        if let Some(suite) = others.iter().find(|suite| suite.suite().as_str() == Some(name)) {
            chosen.push(*suite);
        } else if CIPHERS_LEFT_OUT.contains(&name.as_str()) {
            log::warn!("cipher_suites: {name} is unsafe and left out");
        } else if !CIPHERS_OF_TLS13.contains(&name.as_str()) {
            return Err(WebConfigError(format!(
                "cipher_suites: there is no {name}; there is {}",
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
            "CurveP521" => log::warn!("curve_preferences: biolat has no CurveP521, it is left out"),
            _ => return Err(WebConfigError(format!("curve_preferences: there is no {name}; {CURVES}"))),
        }
    }
    if chosen.is_empty() {
        Err(WebConfigError(format!("curve_preferences: none is left; {CURVES}")))
    } else {
        Ok(chosen)
    }
}

const CURVES: &str = "there is X25519, CurveP256 and CurveP384";

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};

    use super::{ciphers, curves, versions};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn versions_are_those_that_are_safe() {
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
    fn ciphers_keep_their_order_and_unsafe_ones_are_left_out() {
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
