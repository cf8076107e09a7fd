//! `MULTI` to `EXEC`: requests that are kept until all of them are there. Nothing is counted before `EXEC`, and nothing at all if one of them
//! cannot be asked.

use super::{command::RespVerb, frame::MAX_FRAME};

/// Requests of a transaction that has not been executed.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The requests as they came, behind one another.
    requests: Vec<u8>,
    count: usize,
    is_spoiled: bool,
}

/// What a request means to a transaction that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The request waits for `EXEC`.
    Waits,
    /// The request is about the transaction or the connection, and is answered at once.
    AtOnce,
    /// The request has no place in a transaction: it would change what the answers behind it mean.
    Never,
}

impl Transaction {
    /// Keeps a request, if there is room for it.
    pub fn keep(&mut self, request: &[u8]) -> bool {
        let fits = self.requests.len() + request.len() <= MAX_FRAME;
        if fits {
            self.requests.extend_from_slice(request);
            self.count += 1;
        } else {
            self.spoil();
        }
        fits
    }

    /// Spoils the transaction, because something was wrong: nothing of it will be carried out.
    pub fn spoil(&mut self) {
        self.is_spoiled = true;
        self.requests = Vec::new();
    }

    /// Returns the requests and how many there are; none if one of them was wrong.
    pub fn requests(&self) -> Option<(&[u8], usize)> {
        (!self.is_spoiled).then_some((&self.requests, self.count))
    }

    /// The bytes of memory that the transaction takes.
    pub fn len(&self) -> usize {
        self.requests.capacity()
    }

    /// Whether the transaction takes no memory yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a command means to a transaction that is open.
pub fn part(verb: RespVerb) -> Part {
    match verb {
        RespVerb::Multi | RespVerb::Exec | RespVerb::Discard | RespVerb::Reset | RespVerb::Quit => {
            Part::AtOnce
        }
        RespVerb::Hello | RespVerb::Auth => Part::Never,
        _ => Part::Waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_spoils_all_of_it() {
        let mut transaction = Transaction::default();
        assert!(transaction.keep(&[0; MAX_FRAME]));
        assert_eq!(
            transaction.requests().map(|(requests, count)| (requests.len(), count)),
            Some((MAX_FRAME, 1))
        );
        assert!(!transaction.keep(&[0]));
        assert_eq!((transaction.requests(), transaction.is_empty()), (None, true));
    }
}
