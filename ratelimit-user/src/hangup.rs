//! Ends the process when its reader goes away: a terminal whose session is closed, or a pipe whose reader has ended.

use std::{io, os::fd::AsFd, process, thread};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Ends this process, with exit code 0, when the terminal or pipe behind standard output goes away, even while there is nothing to write.
pub(crate) fn end_with_reader() {
    thread::spawn(|| {
        if has_gone(&io::stdout(), None) {
            process::exit(0);
        }
    });
}

/// Ends this process, with exit code 0, when the terminal that it draws on and reads keys from goes away. The library that reads keys does not notice it and
/// reads the empty input again and again.
pub(crate) fn end_with_terminal() {
    end_with_reader();
    thread::spawn(|| {
        if has_gone(&io::stdin(), None) {
            process::exit(0);
        }
    });
}

/// Whether the other end of standard output is gone now.
pub(crate) fn reader_has_gone() -> bool {
    has_gone(&io::stdout(), Some(Timespec { tv_sec: 0, tv_nsec: 0 }))
}

/// Waits until the other end is gone. An output that cannot be polled, or is not a terminal, pipe or socket, never goes.
fn has_gone(end: &impl AsFd, patience: Option<Timespec>) -> bool {
    loop {
        // The kernel reports a hangup and errors without being asked for them.
        let mut ends = [PollFd::new(end, PollFlags::empty())];
        match poll(&mut ends, patience.as_ref()) {
            Ok(ready) => return ready > 0 && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;

    #[test]
    fn a_pipe_has_gone_when_its_reader_has() {
        let now = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        let (reader, writer) = pipe().unwrap();
        assert!(!has_gone(&writer, now));
        drop(reader);
        assert!(has_gone(&writer, now));
        assert!(has_gone(&writer, None));
    }
}
