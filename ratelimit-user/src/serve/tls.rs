//! Certificates of listeners, from their files.

use std::{path::Path, sync::Arc};

use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use crate::{certificate, policy::ListenTls, secret_file};

/// Reads what TCP listeners show and ask for, and when the first certificate ends that is shown, in seconds since 1970.
pub(super) fn config(files: &ListenTls) -> Result<(ServerConfig, Option<u64>), String> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let expires = certificate::first_end(chain.iter().map(AsRef::as_ref));
    let unreadable =
        |error: &dyn std::fmt::Display| format!("cannot read the key {}: {error}", files.key.display());
    let key = secret_file::read(&files.key).map_err(|error| unreadable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unreadable(&error))?;
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

/// Returns the configuration for listeners of one protocol: callers that ask for another protocol are refused while TLS is agreed on.
pub(super) fn speaking(config: &ServerConfig, protocol: Option<&[u8]>) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    Arc::new(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable =
        |error: &dyn std::fmt::Display| format!("cannot read certificates from {}: {error}", path.display());
    let text = secret_file::read(path).map_err(|error| unreadable(&error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| unreadable(&error))?;
    match all.is_empty() {
        true => Err(format!("{} has no certificate in it; use a PEM file", path.display())),
        false => Ok(all),
    }
}
