//! From a socket's address to a connection that is let in: connect, TLS, a first word, password, database.
//!
//! The first word is an inline PING before the crate takes over. Its answer tells what a refused handshake would hide: a server that
//! speaks TLS, one in protected mode, one with too many clients, something that is not Redis.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::timeout_at,
};

use super::{connection::Connection, password, store_error::StoreError, tls};
use crate::{
    policy::address::{Endpoint, StoreAddress, StoreLogin},
    secret_file,
    store::deadline::Deadline,
};

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What kind of server is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// A server with our data.
    Data,
    /// A Sentinel. Most have no password: ours is given only if it is asked for.
    Sentinel,
}

/// What all connections to a store have in common: login, database, TLS.
pub(super) struct Dialer {
    login: Option<StoreLogin>,
    database: u32,
    tls: Option<tls::Connector>,
}

/// How a server answered the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    Open,
    PasswordWanted,
}

impl Dialer {
    pub(super) fn new(address: &StoreAddress) -> Result<Self, StoreError> {
        let tls = address.tls.as_ref().map(tls::Connector::new).transpose()?;
        Ok(Self { login: address.login.clone(), database: address.database, tls })
    }

    /// Makes a connection that is ready for commands, before `until`.
    pub(super) async fn dial(
        &self,
        endpoint: &Endpoint,
        whom: Whom,
        until: Deadline,
    ) -> Result<Connection, StoreError> {
        let at = endpoint.to_string();
        until.hold(&at, self.admitted(endpoint, &at, whom, until)).await
    }

    async fn admitted(
        &self,
        endpoint: &Endpoint,
        at: &str,
        whom: Whom,
        until: Deadline,
    ) -> Result<Connection, StoreError> {
        let mut stream = self.stream(endpoint, at, until).await?;
        let greeting = match greet(&mut stream, at).await {
            Err(StoreError::Lost { .. }) if self.tls.is_none() && tls::is_spoken_at(endpoint).await => {
                return Err(StoreError::SpeaksTls { at: at.to_owned() });
            }
            greeting => greeting?,
        };
        let connection = Connection::over(stream, at.to_owned()).await?;
        match (&self.login, greeting, whom) {
            (Some(login), Greeting::PasswordWanted, _) | (Some(login), _, Whom::Data) => {
                log_in(&connection, login).await?;
            }
            (None, Greeting::PasswordWanted, _) => return Err(StoreError::NoPassword { at: at.to_owned() }),
            (_, Greeting::Open, _) => {}
        }
        if whom == Whom::Data && self.database != 0 {
            self.select(&connection).await?;
        }
        Ok(connection)
    }

    async fn stream(
        &self,
        endpoint: &Endpoint,
        at: &str,
        until: Deadline,
    ) -> Result<Box<dyn Stream>, StoreError> {
        match (endpoint, &self.tls) {
            (Endpoint::Unix(path), _) => {
                let path = path.clone();
                let opened = tokio::task::spawn_blocking(move || secret_file::connect(&path)).await;
                let opened = opened.map_err(io::Error::other).flatten().and_then(UnixStream::from_std);
                Ok(Box::new(opened.map_err(|error| unreachable(at, &error))?))
            }
            (Endpoint::Tcp { host, port }, None) => Ok(Box::new(tcp(host, *port, at).await?)),
            (Endpoint::Tcp { host, port }, Some(connector)) => {
                let name = tls::name_of(host)?;
                let plain = tcp(host, *port, at).await?;
                // A server without TLS says nothing and waits for the end of a line: half of the time is kept to find that out.
                let failure =
                    match timeout_at(until.halfway(), connector.current().connect(name, plain)).await {
                        Ok(Ok(stream)) => return Ok(Box::new(stream)),
                        Ok(Err(error)) => tls::meaning(at, &error)
                            .unwrap_or_else(|| StoreError::Tls { at: at.to_owned(), why: error.to_string() }),
                        Err(_) => until.missed(at),
                    };
                let is_unclear = matches!(failure, StoreError::TimedOut { .. } | StoreError::Tls { .. });
                if is_unclear && speaks_plain(host, *port, at).await {
                    return Err(StoreError::SpeaksPlain { at: at.to_owned() });
                }
                Err(failure)
            }
        }
    }

    async fn select(&self, connection: &Connection) -> Result<(), StoreError> {
        let command = ::redis::cmd("SELECT").arg(self.database).to_owned();
        match connection.ask("SELECT", &command).await {
            Ok(_) => Ok(()),
            Err(StoreError::Refused { at, .. }) => {
                Err(StoreError::NoDatabase { at, database: self.database })
            }
            Err(other) => Err(other),
        }
    }
}

async fn tcp(host: &str, port: u16, at: &str) -> Result<TcpStream, StoreError> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(at, &error))?;
    // Small pipelines must not wait for the acknowledgement of the pipeline before.
    stream.set_nodelay(true).map_err(|error| unreachable(at, &error))?;
    Ok(stream)
}

async fn speaks_plain(host: &str, port: u16, at: &str) -> bool {
    match tcp(host, port, at).await {
        Ok(mut stream) => greet(&mut stream, at).await.is_ok(),
        Err(_) => false,
    }
}

async fn greet(stream: &mut (impl Stream + ?Sized), at: &str) -> Result<Greeting, StoreError> {
    let failed = |error: io::Error| {
        tls::meaning(at, &error)
            .unwrap_or_else(|| StoreError::Lost { at: at.to_owned(), why: error.to_string() })
    };
    stream.write_all(b"PING\r\n").await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut line = Vec::new();
    // Reads one byte at a time: what follows this line belongs to the crate.
    while line.len() < 512 && !line.ends_with(b"\n") && !is_tls_record(&line) {
        let mut byte = [0];
        if stream.read(&mut byte).await.map_err(failed)? == 0 {
            break;
        }
        line.push(byte[0]);
    }
    greeting(&line, at)
}

/// Whether a line begins with type alert or handshake and version 3.x, which is what a TLS server answers to plain text.
fn is_tls_record(line: &[u8]) -> bool {
    matches!(line, [0x15 | 0x16, 3, ..])
}

fn greeting(line: &[u8], at: &str) -> Result<Greeting, StoreError> {
    let at = at.to_owned();
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match line {
        [] => {
            Err(StoreError::Lost { at, why: "it closed the connection before it answered anything".into() })
        }
        _ if is_tls_record(line) => Err(StoreError::SpeaksTls { at }),
        _ if text == "+PONG" => Ok(Greeting::Open),
        _ if text.starts_with("-NOAUTH") => Ok(Greeting::PasswordWanted),
        _ if text.starts_with("-DENIED") => Err(StoreError::Protected { at }),
        _ if text.starts_with("-ERR max number of clients") => Err(StoreError::TooManyClients { at }),
        // The server is loading, is without its master, or does not permit PING: it is Redis, and refuses again when it matters.
        [b'-', code, ..] if code.is_ascii_uppercase() => Ok(Greeting::Open),
        _ => {
            let beginning: String = text.chars().take(40).collect();
            Err(StoreError::Nonsense { at, why: format!("it answers PING with {beginning:?}") })
        }
    }
}

async fn log_in(connection: &Connection, login: &StoreLogin) -> Result<(), StoreError> {
    let mut command = ::redis::cmd("AUTH");
    if let Some(user) = &login.user {
        command.arg(user);
    }
    command.arg(password::read(&login.password)?);
    match connection.ask("AUTH", &command).await {
        Ok(_) => Ok(()),
        Err(StoreError::Refused { at, why, .. }) if why.starts_with("WRONGPASS") => {
            Err(StoreError::WrongPassword {
                at,
                user: login.user.clone().unwrap_or_else(|| "default".into()),
            })
        }
        Err(other) => Err(other),
    }
}

fn unreachable(at: &str, error: &io::Error) -> StoreError {
    StoreError::Unreachable { at: at.to_owned(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_tells_what_is_at_the_other_end() {
        let at = || "h:1".to_owned();
        for (line, meaning) in [
            (&b"+PONG\r\n"[..], Ok(Greeting::Open)),
            (b"-NOAUTH Authentication required.\r\n", Ok(Greeting::PasswordWanted)),
            (b"-LOADING Redis is loading the dataset in memory\r\n", Ok(Greeting::Open)),
            (b"-NOPERM this user has no permissions\r\n", Ok(Greeting::Open)),
            (b"\x15\x03\x01", Err(StoreError::SpeaksTls { at: at() })),
            (b"-DENIED Redis is running in protected mode\r\n", Err(StoreError::Protected { at: at() })),
            (b"-ERR max number of clients reached\r\n", Err(StoreError::TooManyClients { at: at() })),
            (
                b"HTTP/1.1 400 Bad Request\r\n",
                Err(StoreError::Nonsense {
                    at: at(),
                    why: "it answers PING with \"HTTP/1.1 400 Bad Request\"".into(),
                }),
            ),
            (
                b"",
                Err(StoreError::Lost {
                    at: at(),
                    why: "it closed the connection before it answered anything".into(),
                }),
            ),
        ] {
            assert_eq!(greeting(line, "h:1"), meaning, "{line:?}");
        }
    }
}
