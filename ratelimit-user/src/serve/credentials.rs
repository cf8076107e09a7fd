//! Certificates, keys, authorities and tokens of the listeners. They are read again when their files change; a file that cannot be used changes
//! nothing.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use super::{protocol::ServedProtocol, tls};
use crate::{
    certificate, clock, log,
    policy::{Listen, ListenTls},
    requests::decision_service::DecisionService,
    secret_file::{self, TokenDigest},
    stamp::Stamp,
};

/// How often files are looked at, by a thread that answers nobody.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Everything that listeners have from files.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The certificates that TCP listeners speak TLS with.
    pub certificates: Option<Arc<Certificates>>,
    /// The token that callers over TCP must show.
    pub token: Option<Arc<Token>>,
    /// The token that operators show to change something in the dashboard, and to reset keys.
    pub operator_token: Option<Arc<Token>>,
}

/// Certificates as they are now.
pub struct Certificates {
    files: ListenTls,
    now: RwLock<LoadedCertificates>,
}

struct LoadedCertificates {
    /// One configuration for each protocol: callers that ask for another protocol are refused while TLS is agreed on.
    configs: Vec<(ServedProtocol, Arc<ServerConfig>)>,
    /// When the first certificate that is shown ends, in seconds since 1970.
    expires: Option<u64>,
}

/// A token as it is now.
pub struct Token {
    /// The key of the policy that names the file.
    key: &'static str,
    file: PathBuf,
    now: RwLock<TokenDigest>,
    /// The number of the token in force, counted from 1.
    generation: AtomicU64,
}

/// What one listener needs to agree on TLS.
#[derive(Clone, Debug)]
pub struct Speaking {
    certificates: Arc<Certificates>,
    protocol: ServedProtocol,
}

impl Credentials {
    /// Reads everything that a policy names.
    pub fn read(listen: &Listen) -> Result<Self, String> {
        let certificates = listen.tls.as_ref().map(Certificates::read).transpose()?;
        let token = |key: &'static str, file: &Option<PathBuf>| {
            let read = file.as_ref().map(|file| Token::read(key, file.clone())).transpose()?;
            Ok::<_, String>(read.map(Arc::new))
        };
        Ok(Self {
            certificates: certificates.map(Arc::new),
            token: token("token_file", &listen.token_file)?,
            operator_token: token("operator_token_file", &listen.operator_token_file)?,
        })
    }

    /// Returns what a listener of this protocol needs for TLS, if there are certificates.
    pub fn speaking(&self, protocol: ServedProtocol) -> Option<Speaking> {
        let certificates = Arc::clone(self.certificates.as_ref()?);
        Some(Speaking { certificates, protocol })
    }

    /// Follows the files until the process ends, from a thread of its own: a disk that hangs keeps nobody waiting.
    pub fn follow(self, decisions: Arc<DecisionService>) -> io::Result<()> {
        if self.certificates.is_none() && self.tokens().next().is_none() {
            return Ok(());
        }
        let mut stamps = self.stamps();
        let mut said = None;
        let look = move || {
            loop {
                let warning = self.expiry();
                if warning != said {
                    warning.iter().for_each(log::warning);
                    decisions.warn(warning.iter().cloned().collect());
                    said = warning;
                }
                thread::sleep(LOOK_EVERY);
                // Stamps are taken before the files are read: a file that is written meanwhile has another stamp at the next look.
                let now = self.stamps();
                if now != stamps {
                    stamps = now;
                    self.read_again();
                }
            }
        };
        thread::Builder::new().name("credentials".to_owned()).spawn(look).map(drop)
    }

    fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.token.iter().chain(&self.operator_token)
    }

    fn stamps(&self) -> Vec<Stamp> {
        let tls = self.certificates.iter().flat_map(|certificates| {
            let ListenTls { certificate, key, client_ca } = &certificates.files;
            [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten()
        });
        let files: Vec<PathBuf> = tls.chain(self.tokens().map(|token| &token.file)).cloned().collect();
        secret_file::stamps(&files)
    }

    fn read_again(&self) {
        let tls = self.certificates.as_ref().map(|certificates| {
            ("certificates".to_owned(), certificates.read_again(), "for connections from now on")
        });
        let tokens = self.tokens().map(|token| {
            let what = token.key.trim_end_matches("_file").replace('_', " ");
            (what, token.read_again(), "for every question from now on, on open connections too")
        });
        for (what, read, since) in tls.into_iter().chain(tokens) {
            match read {
                Ok(true) => log::info(format!("{what} of listeners read again, {since}")),
                Ok(false) => {}
                Err(error) => {
                    log::error(format!("{what} of listeners not read again, the old stay in use: {error}"));
                }
            }
        }
    }

    fn expiry(&self) -> Option<String> {
        let certificates = self.certificates.as_ref()?;
        let expires = certificates.now.read().unwrap_or_else(PoisonError::into_inner).expires?;
        certificate::warning(
            &certificates.files.certificate.display().to_string(),
            expires,
            clock::since_1970().as_secs(),
        )
    }
}

impl Certificates {
    fn read(files: &ListenTls) -> Result<Self, String> {
        Ok(Self { files: files.clone(), now: RwLock::new(LoadedCertificates::read(files)?) })
    }

    fn read_again(&self) -> Result<bool, String> {
        let shown = LoadedCertificates::read(&self.files)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(true)
    }
}

impl LoadedCertificates {
    fn read(files: &ListenTls) -> Result<Self, String> {
        let (config, expires) = tls::config(files)?;
        let speaking = |protocol: ServedProtocol| (protocol, tls::speaking(&config, protocol.in_tls()));
        let configs = [ServedProtocol::Http, ServedProtocol::Grpc, ServedProtocol::Resp].map(speaking).into();
        Ok(Self { configs, expires })
    }
}

impl Speaking {
    /// Returns what agrees on TLS for one connection.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        let shown = self.certificates.now.read().unwrap_or_else(PoisonError::into_inner);
        let config = shown.configs.iter().find(|(protocol, _)| *protocol == self.protocol);
        config.map(|(_, config)| TlsAcceptor::from(Arc::clone(config)))
    }
}

impl Token {
    fn read(key: &'static str, file: PathBuf) -> Result<Self, String> {
        let now = RwLock::new(secret_file::token(key, &file)?);
        Ok(Self { key, file, now, generation: AtomicU64::new(1) })
    }

    fn read_again(&self) -> Result<bool, String> {
        let token = secret_file::token(self.key, &self.file)?;
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let is_another = *now != token;
        if is_another {
            *now = token;
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(is_another)
    }

    /// Whether the given bytes are the token.
    pub fn is(&self, given: &[u8]) -> bool {
        self.now.read().unwrap_or_else(PoisonError::into_inner).is_of(given)
    }

    /// Returns the number of the token in force, counted from 1. A caller that has shown an earlier token has not shown this one.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

// Shows the file, and not the token itself.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}
