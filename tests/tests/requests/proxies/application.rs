//! What is protected: answers everything with a few words, and counts.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A small web server. Its threads end with the process.
pub(crate) struct Application {
    pub(crate) address: SocketAddr,
    answered: Arc<AtomicUsize>,
}

impl Application {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let address = listener.local_addr().expect("an address");
        let answered = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&answered);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || serve(stream, &count));
            }
        });
        Self { address, answered }
    }

    /// How many requests the application has answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Begins to count from zero.
    pub(crate) fn forget(&self) {
        self.answered.store(0, Ordering::SeqCst);
    }
}

/// Answers one connection until it ends.
fn serve(stream: TcpStream, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0;
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            reader.read_exact(&mut vec![0; length]).expect("a body");
            length = 0;
            count.fetch_add(1, Ordering::SeqCst);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nthe application";
            if reader.get_mut().write_all(answer).is_err() {
                return;
            }
        }
        line.clear();
    }
}
