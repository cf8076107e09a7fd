//! One connection to one server. A command over it waits for as long as its caller lets it.

use std::sync::Arc;

use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
};

use super::{
    refusal::{RefusedCall, refusal},
    store_error::StoreError,
};

/// A connection. Clones share it, and it is closed with the last clone.
#[derive(Clone)]
pub(super) struct Connection {
    at: Arc<str>,
    inner: MultiplexedConnection,
    driver: Arc<Driver>,
}

/// The task that reads and writes. It ends with the connection.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Makes a connection over a stream on which nothing was said yet that matters.
    pub(super) async fn over<S>(stream: S, at: String) -> Result<Self, StoreError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Sets no name of the library, because a user with few rights may not set it. Sets no time limit of the crate, because deadlines are ours.
        let quiet = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (inner, driver) = MultiplexedConnection::new_with_config(&quiet, stream, config)
            .await
            .map_err(|error| lost(&at, &error))?;
        Ok(Self { at: at.into(), inner, driver: Arc::new(Driver(tokio::spawn(driver))) })
    }

    /// The address of the socket, for messages.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// Whether the other end is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.0.is_finished()
    }

    /// Sends commands, and returns one answer for each; a refusal is among them as `Value::ServerError`.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Value>, StoreError> {
        let count = commands.len();
        let answers = self.inner.clone().send_packed_commands(commands, 0, count).await;
        let answers = answers.map_err(|error| lost(&self.at, &error))?;
        if answers.len() == count {
            return Ok(answers);
        }
        let why = format!("{} answers to {count} commands", answers.len());
        Err(StoreError::Nonsense { at: self.at.to_string(), why })
    }

    /// Sends one command; a refusal is an error.
    pub(super) async fn ask(&self, name: &str, command: &Cmd) -> Result<Value, StoreError> {
        match self.inner.clone().send_packed_command(command).await {
            Ok(Value::ServerError(error)) => Err(refusal(&self.at, RefusedCall::Command(name), &error)),
            Ok(value) => Ok(value),
            Err(error) => Err(lost(&self.at, &error)),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.at)
    }
}

/// Makes the error of a failure that is no answer of the server.
fn lost(at: &str, error: &RedisError) -> StoreError {
    let at = at.to_owned();
    match error.kind() {
        ErrorKind::Parse => StoreError::Nonsense { at, why: error.to_string() },
        _ => StoreError::Lost { at, why: error.to_string() },
    }
}
