//! A proxy in front of a server that loses replies, delays them, or refuses connections, when it is told to.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::free_port;

/// Forwards to one server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    to: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<(TcpListener, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Replies still to be lost.
    to_lose: AtomicU64,
    /// Replies that were lost.
    lost: AtomicU64,
    delay_ms: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// In front of a server at a port of the loopback interface.
    pub fn to(port: u16) -> Self {
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let mut proxy = Self { port: free_port(), to, shared: Arc::default(), listening: None };
        proxy.accept_again();
        proxy
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next reply is read from the server and thrown away, and both connections end: what was asked for has happened, and nobody
    /// was told.
    pub fn lose_next_reply(&self) {
        self.shared.to_lose.fetch_add(1, Ordering::SeqCst);
    }

    /// How many replies were lost.
    pub fn lost_replies(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// Replies come this much later; also those that are under way.
    pub fn delay(&self, by: Duration) {
        self.shared.delay_ms.store(u64::try_from(by.as_millis()).expect("a short time"), Ordering::SeqCst);
    }

    /// Ends all connections and refuses new ones.
    pub fn refuse(&mut self) {
        let Some((listener, listening)) = self.listening.take() else { return };
        // The thread sleeps in `accept`, which ends with this, in whatever network namespace the proxy is.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("a listener");
        listening.join().expect("the end of the proxy");
        self.cut();
    }

    /// Takes connections again after a pause.
    pub fn accept_again(&mut self) {
        if self.listening.is_some() {
            return;
        }
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("its port");
        let (to, shared) = (self.to, Arc::clone(&self.shared));
        let own = listener.try_clone().expect("a second handle of the listener");
        self.listening = Some((own, thread::spawn(move || listen(&listener, to, &shared))));
    }

    /// Ends all connections there are.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().expect("no panic").drain(..) {
            let _closed_already = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}

fn listen(listener: &TcpListener, to: SocketAddr, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        // The server is not there: the client sees its connection end.
        let Ok(server) = TcpStream::connect(to) else { continue };
        let copies = (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(client2), Ok(server2), Ok(client3), Ok(server3)) = copies else { continue };
        shared.open.lock().expect("no panic").extend([client3, server3]);
        for stream in [&client, &server] {
            let _slower_then = stream.set_nodelay(true);
        }
        thread::spawn(move || requests(client, server));
        let shared = Arc::clone(shared);
        thread::spawn(move || replies(server2, client2, &shared));
    }
}

fn requests(mut client: TcpStream, mut server: TcpStream) {
    let _either_end_is_gone = std::io::copy(&mut client, &mut server);
    let _closed_already = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
}

fn replies(mut server: TcpStream, mut client: TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let loses = |left: u64| left.checked_sub(1);
        if shared.to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, loses).is_ok() {
            shared.lost.fetch_add(1, Ordering::SeqCst);
            break;
        }
        thread::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst)));
        if client.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _closed_already = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
}
