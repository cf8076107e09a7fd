//! A caller that speaks the protocol of Redis and sees every byte of its answers.

use std::{
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// How long an answer may take that is not to be held.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection of a caller.
#[derive(Debug)]
pub struct Caller<S: Read + Write> {
    stream: BufReader<S>,
}

impl Caller<TcpStream> {
    /// Connects over TCP.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream: BufReader::new(stream) }
    }
}

impl Caller<UnixStream> {
    /// Connects to a Unix socket.
    pub fn open(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream: BufReader::new(stream) }
    }
}

impl<S: Read + Write> Caller<S> {
    /// Asks one question, words with spaces between them, and waits for the answer. An error is an answer.
    pub fn ask(&mut self, question: &str) -> String {
        self.send(&packed(question));
        self.receive()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("send");
    }

    /// Sends bytes as they are; an error if the other end has closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The next answer as one line: `1 5 0` for an array, `{allowed: 1}` for a map, `nil`, `-ERR why`.
    pub fn receive(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        let line = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).expect("a kind");
        let count = || rest.parse::<usize>().unwrap_or_else(|_| panic!("no number: {line:?}"));
        match (kind, rest) {
            ("$" | "*", "-1") | ("_", "") => "nil".to_owned(),
            ("+" | ":", rest) => rest.to_owned(),
            ("-", _) => line.to_owned(),
            ("$", _) => {
                let mut bytes = vec![0; count() + 2];
                self.stream.read_exact(&mut bytes).expect("a string");
                assert!(bytes.ends_with(b"\r\n"), "{bytes:?}");
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            ("*" | "~", _) => (0..count()).map(|_| self.receive()).collect::<Vec<_>>().join(" "),
            ("%", _) => {
                let pairs = (0..count()).map(|_| format!("{}: {}", self.receive(), self.receive()));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            _ => panic!("no answer: {line:?}"),
        }
    }

    /// Everything that still comes until the other end closes.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ended = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// The stream under the caller.
    pub fn stream(&self) -> &S {
        self.stream.get_ref()
    }
}

/// Words with spaces between them as an array.
pub fn packed(question: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = question.split(' ').map(str::as_bytes).collect();
    packed_bytes(&words)
}

/// Words of any bytes as an array.
pub fn packed_bytes(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}
