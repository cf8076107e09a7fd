//! Connections to a store whose socket is a file: the daemon opens them, and the front process uses them. Few users may connect to the socket of a Redis,
//! and the user of the front need not be one of them.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::{answers::DaemonAnswers, handles};

/// The largest length of a path in bytes, longer than the kernel takes for a socket.
const LONGEST: usize = 256;
/// How long the daemon may take to open a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's end of the stream. Dropping the value ends the stream and its thread, also if a front that is not the daemon's any more keeps its end open.
#[derive(Debug)]
pub(super) struct StoreDoor(UnixStream);

impl Drop for StoreDoor {
    fn drop(&mut self) {
        // It fails if the front has closed its end, and then the thread ends as well.
        let _closed = self.0.shutdown(Shutdown::Both);
    }
}

/// Opens connections for the front until the stream ends, on a thread of its own: a store that does not accept delays nothing else.
pub(super) fn serve(mut stream: UnixStream, answers: DaemonAnswers) -> io::Result<StoreDoor> {
    let door = StoreDoor(stream.try_clone()?);
    let work = move || {
        while let Ok((number, path)) = asked(&mut stream) {
            let opened = match answers.may_connect(&path) {
                true => UnixStream::connect(&path),
                false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
            };
            if answer(&mut stream, number, &opened).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("store-socket".to_owned()).spawn(work)?;
    Ok(door)
}

/// Sends the connection, or the error number if there is none.
fn answer(stream: &mut UnixStream, number: u8, opened: &io::Result<UnixStream>) -> io::Result<()> {
    stream.write_all(&[number])?;
    match opened {
        Ok(connection) => handles::send(stream, &[connection.as_fd()]),
        Err(error) => {
            handles::send(stream, &[])?;
            stream.write_all(&error.raw_os_error().unwrap_or(libc::EACCES).to_be_bytes())
        }
    }
}

/// Reads the number of the next question, and the path that the front asks for.
fn asked(stream: &mut UnixStream) -> io::Result<(u8, PathBuf)> {
    let mut head = [0; 3];
    stream.read_exact(&mut head)?;
    let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
    if length > LONGEST {
        return Err(io::Error::other("no socket has so long a path"));
    }
    let mut path = vec![0; length];
    stream.read_exact(&mut path)?;
    Ok((head[0], PathBuf::from(std::ffi::OsStr::from_bytes(&path))))
}

/// The front's end of the stream; one thread asks at a time.
#[derive(Debug)]
pub(super) struct StoreSocket(Mutex<Questions>);

#[derive(Debug)]
struct Questions {
    stream: UnixStream,
    /// The number of the last question.
    last: u8,
}

impl StoreSocket {
    /// Makes the front's end of the stream.
    pub(super) fn new(handle: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from(handle);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(Mutex::new(Questions { stream, last: 0 })))
    }

    /// Asks the daemon for a connection to the store's socket.
    pub(super) fn connect(&self, path: &Path) -> io::Result<UnixStream> {
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Questions { stream, last } = &mut *questions;
        *last = last.wrapping_add(1);
        let bytes = path.as_os_str().as_bytes();
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        stream.write_all(&[&[*last][..], &length.to_be_bytes(), bytes].concat())?;
        loop {
            let (number, opened) = answered(stream)?;
            // An answer with another number is to an earlier question that was given up.
            if number == *last {
                return opened;
            }
        }
    }
}

fn answered(stream: &mut UnixStream) -> io::Result<(u8, io::Result<UnixStream>)> {
    let (mut number, mut error) = ([0], [0; 4]);
    stream.read_exact(&mut number)?;
    let opened = match handles::receive(stream)?.pop() {
        Some(connection) => Ok(connection.into()),
        None => {
            stream.read_exact(&mut error)?;
            Err(io::Error::from_raw_os_error(i32::from_be_bytes(error)))
        }
    };
    Ok((number[0], opened))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let path = std::env::temp_dir().join(format!("ratelimit-store-socket-{}", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let (mut daemon, front) = UnixStream::pair().unwrap();
        let socket = StoreSocket::new(front.into()).unwrap();
        // This is the late answer to an earlier question that was given up.
        answer(&mut daemon, 0, &UnixStream::connect(&path)).unwrap();
        let answering = thread::spawn(move || {
            for _ in 0..2 {
                let (number, path) = asked(&mut daemon).unwrap();
                answer(&mut daemon, number, &UnixStream::connect(path)).unwrap();
            }
        });
        assert_eq!(socket.connect(Path::new("/nowhere/s")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(socket.connect(&path).is_ok());
        answering.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
