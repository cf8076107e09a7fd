//! Certificates and tokens of listeners, from their files.

use std::{fs, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use crate::{certificate, policy::ListenTls};

/// The shortest token that nobody guesses.
const MIN_TOKEN: usize = 16;

/// What TCP listeners show and ask for, and when the first certificate ends that is shown, in seconds since 1970.
pub(super) fn config(files: &ListenTls) -> Result<(ServerConfig, Option<u64>), String> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let expires = certificate::first_end(chain.iter().map(AsRef::as_ref));
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("cannot read the key {}: {error}", files.key.display()))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS is not possible: {error}"))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("client_ca {}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| format!("client_ca {}: {error}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("certificate {} and key do not go together: {error}", files.certificate.display())
    })?;
    Ok((config, expires))
}

/// The same for listeners that speak this: callers that would rather speak something else are told so while they greet.
pub(super) fn speaking(config: &ServerConfig, protocol: Option<&[u8]>) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    Arc::new(config)
}

/// The token in a file: its first line.
pub(super) fn token(key: &str, path: &Path) -> Result<Arc<str>, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {key} {}: {error}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_TOKEN || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(format!(
            "{key} {} has no token of at least {MIN_TOKEN} letters and digits in its first line",
            path.display()
        ));
    }
    Ok(token.into())
}

/// Whether a token is the right one, in a time that does not tell how much of it is.
pub(super) fn is_token(given: &[u8], right: &str) -> bool {
    let right = right.as_bytes();
    let differ = given.iter().zip(right).fold(0_u8, |sum, (one, other)| sum | (one ^ other));
    given.len() == right.len() && differ == 0
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = |error| format!("cannot read certificates from {}: {error}", path.display());
    let all: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
    match all.is_empty() {
        true => Err(format!("{} has no certificate in it; use a PEM file", path.display())),
        false => Ok(all),
    }
}
