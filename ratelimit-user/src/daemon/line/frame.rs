//! Reads and writes messages on a stream: the length in four bytes, then JSON.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads one message of at most `largest` bytes; `None` at the end of the stream.
pub(in crate::daemon) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    largest: usize,
) -> io::Result<Option<T>> {
    let length = match stream.read_u32().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > largest {
        return Err(io::Error::other(format!("a message of {length} bytes; at most {largest} are taken")));
    }
    // The memory grows with the bytes that come, not with the length that was announced.
    let mut bytes = Vec::new();
    let read = (&mut *stream).take(length as u64).read_to_end(&mut bytes).await?;
    if read < length {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

/// Writes one message.
pub(in crate::daemon) async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    stream.write_all(&bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_as_they_were_written_and_nothing_else_does() {
        let mut stream = Vec::new();
        write(&mut stream, &vec!["one", "two"]).await.unwrap();
        write(&mut stream, &vec!["three"]).await.unwrap();
        let mut bytes = stream.as_slice();
        let mut next = async || read::<Vec<String>>(&mut bytes, 64).await.unwrap();
        assert_eq!(next().await.unwrap(), ["one", "two"]);
        assert_eq!(next().await.unwrap(), ["three"]);
        assert_eq!(next().await, None, "the end");
        assert_eq!(read::<Vec<String>>(&mut &stream[..9], 64).await.unwrap(), None, "half a message is none");
        let refused = read::<Vec<String>>(&mut stream.as_slice(), 8).await.unwrap_err();
        assert_eq!(refused.to_string(), "a message of 13 bytes; at most 8 are taken");
        assert!(read::<u64>(&mut stream.as_slice(), 64).await.is_err(), "another type");
        let huge = u32::MAX.to_be_bytes();
        assert!(read::<u64>(&mut huge.as_slice(), 1 << 20).await.is_err());
    }
}
