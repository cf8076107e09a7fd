//! A tun interface: its frames are IP packets, as those of WireGuard, PPP and other tunnels.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use crate::netns::{Wire, run};

/// Python, because a tun interface is made by a system call that needs unsafe code in Rust.
const SCRIPT: &str = include_str!("tun.py");

/// A tun interface on an edge host. Gone with the value.
#[derive(Debug)]
pub struct Tun {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Tun {
    /// An interface that is up and has this address.
    pub fn new(wire: &Wire, name: &str, address: &str) -> Self {
        let tun = Self::start(wire, &[name]);
        run(wire.on_edge("ip").args(["address", "add", address, "dev", name]));
        run(wire.on_edge("ip").args(["link", "set", name, "up"]));
        tun
    }

    /// One that is down and says that it is a link of another type.
    pub fn of_type(wire: &Wire, name: &str, link_type: u16) -> Self {
        Self::start(wire, &[name, &link_type.to_string()])
    }

    fn start(wire: &Wire, words: &[&str]) -> Self {
        let mut command = wire.on_edge("python3");
        command.args(["-c", SCRIPT]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start python3");
        let commands = child.stdin.take().expect("stdin");
        let answers = BufReader::new(child.stdout.take().expect("stdout"));
        let mut tun = Self { child, commands, answers };
        assert_eq!(tun.answer(), "there", "these tests need root, python3 and /dev/net/tun");
        tun
    }

    /// Has so many copies of a packet come in.
    pub fn send(&mut self, packet: &[u8], count: u32) {
        let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.commands, "send {count} {hex}").expect("ask");
        assert_eq!(self.answer(), "done");
    }

    /// What the host sends out meanwhile.
    pub fn sent(&mut self, milliseconds: u32) -> Vec<Vec<u8>> {
        writeln!(self.commands, "sent {milliseconds}").expect("ask");
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("a number");
        let packet = |word: &str| word.as_bytes().chunks(2).map(byte).collect();
        self.answer().split_whitespace().map(packet).collect()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
